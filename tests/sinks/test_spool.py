import logging
import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from stabmon.records import Alert
from stabmon.sinks.spool import Spool
from tests.snapshots import alert

ROOT = Path(__file__).parent.parent.parent
HOLDER = (
    "import os, sys, time\nfrom pathlib import Path\nfrom dataclasses import replace\n"
    "from stabmon.sinks.spool import Spool\nfrom tests.snapshots import alert\n"
    "Spool(Path(sys.argv[1])).put(replace(alert(4, 'critical'), time=time.time()))\n"
)


def now(step: int = 4) -> Alert:
    return replace(alert(step, "critical"), time=time.time())


def holder(folder: Path, then: str) -> "subprocess.Popen[str]":
    """A process that has put an alert into the spool, and does `then`."""
    code = HOLDER + then
    return subprocess.Popen([sys.executable, "-c", code, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_an_alert_comes_back_equal(tmp_path: Path) -> None:
    evidence = MappingProxyType[str, float]({"loss": np.float32(3.5), "context_share": float("inf")})
    given = replace(now(), evidence=evidence, remedies=("a", "b <é>"), layer=None)
    Spool(tmp_path).put(given).leave()
    ((found, _),) = Spool(tmp_path).leftovers()
    assert found == replace(given, evidence={"loss": 3.5, "context_share": float("inf")})


def test_it_is_one_file_for_its_owner_alone(tmp_path: Path) -> None:
    slip = Spool(tmp_path / "a" / "b").put(now())
    (file,) = (tmp_path / "a" / "b").iterdir()
    assert file == slip.path
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_is_held_is_not_taken_and_what_was_left_is_taken_once(tmp_path: Path) -> None:
    slip = Spool(tmp_path).put(now())
    assert Spool(tmp_path).leftovers() == []
    slip.leave()
    assert [a.step for a, _ in Spool(tmp_path).leftovers()] == [4]
    assert Spool(tmp_path).leftovers() == []


def test_what_is_delivered_is_gone_and_so_is_the_folder(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    first, second = spool.put(now()), spool.put(now())
    first.done()
    spool.tidy()
    assert len(list(spool.folder.iterdir())) == 1
    second.done()
    spool.tidy()
    assert not spool.folder.exists()
    assert spool.leftovers() == []


def test_they_come_oldest_first(tmp_path: Path) -> None:
    for step in (9, 4, 7):
        Spool(tmp_path).put(now(step)).leave()
    assert [a.step for a, _ in Spool(tmp_path).leftovers()] == [9, 4, 7]


def test_a_living_process_keeps_what_it_holds_and_a_killed_one_loses_it(tmp_path: Path) -> None:
    with holder(tmp_path, "print('put', flush=True); time.sleep(60)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "put\n"
        assert Spool(tmp_path).leftovers() == []
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        assert [a.step for a, _ in Spool(tmp_path).leftovers()] == [4]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_that_outlives_its_trainer_does_not_hold_its_alerts(tmp_path: Path) -> None:
    worker = "if os.fork() == 0:\n    print('forked', flush=True); time.sleep(60)\nelse:\n    os._exit(1)"
    with holder(tmp_path, worker + "\n") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "forked\n"
        assert process.wait(20) == 1
        children = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and str(tmp_path) in _command(p)]
        assert len(children) == 1
        assert [a.step for a, _ in Spool(tmp_path).leftovers()] == [4]
        os.kill(children[0], signal.SIGKILL)


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""


def test_what_is_a_day_old_and_what_is_no_alert_is_thrown_away_aloud(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Spool(tmp_path).put(replace(now(), time=time.time() - 86_401)).leave()
    Spool(tmp_path).put(replace(now(5), time=time.time() - 86_000)).leave()
    (tmp_path / "broken.json").write_text('{"run": 3}')
    with caplog.at_level(logging.WARNING, "stabmon"):
        assert [a.step for a, _ in Spool(tmp_path).leftovers()] == [5]
    old, broken = sorted(r.getMessage() for r in caplog.records)
    assert "broken.json is no alert" in old
    assert "more than a day old and is dropped: r1 is not learning" in broken
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_written_is_an_os_error_and_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="file"):
        Spool(tmp_path / "file").put(now())
    assert len(os.listdir("/proc/self/fd")) == before
