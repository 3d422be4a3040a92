from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stabmon.sinks.prometheus import Prometheus
from stabmon.sinks.textfile import Textfile
from tests.snapshots import RUN, snapshot


def until(true: object, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_file_is_there_at_once_follows_the_run_and_keeps_the_final_state(tmp_path: Path) -> None:
    metrics = Prometheus(RUN)
    textfile = Textfile(path := tmp_path / "run.prom", RUN, metrics.render, every=0.05)
    assert b"stabmon_steps_total" in path.read_bytes()
    metrics.emit(snapshot(1), [], [])
    until(lambda: b'stabmon_steps_total{rank="0",run="r1"} 1.0' in path.read_bytes())
    metrics.close("failed")
    textfile.close("failed")
    assert b'state="failed"} 1.0' in path.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["run.prom"]
    assert "stabmon-textfile" not in [thread.name for thread in threading.enumerate()]


def test_in_a_folder_it_is_named_after_run_and_rank(tmp_path: Path) -> None:
    Textfile(tmp_path, RUN, lambda: b"", every=60).close("finished")
    assert [p.name for p in tmp_path.iterdir()] == ["stabmon-r1-0.prom"]


def test_nobody_ever_reads_half_a_file(tmp_path: Path) -> None:
    texts = [b"a 1\n" * 5000, b"b 2\n" * 5000]
    textfile = Textfile(path := tmp_path / "x.prom", RUN, lambda: texts[time.monotonic_ns() % 2], every=0.001)
    found = {path.read_bytes() for _ in range(300)}
    textfile.close("finished")
    assert found <= set(texts)


def test_what_node_exporter_would_not_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"textfile=.*run.txt: node_exporter reads files that end in .prom alone"):
        Textfile(tmp_path / "run.txt", RUN, lambda: b"")
    with pytest.raises(
        ValueError, match=r"textfile=.*run.prom: cannot be written \(No such file or directory\); give a"
    ):
        Textfile(tmp_path / "no" / "run.prom", RUN, lambda: b"")


def test_a_folder_that_goes_away_is_told_once_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    textfile = Textfile(folder / "x.prom", RUN, lambda: b"", every=0.01)
    (folder / "x.prom").rename(tmp_path / "old")
    folder.rmdir()
    until(lambda: len(caplog.records) > 0)
    folder.mkdir()
    until(lambda: (folder / "x.prom").exists())
    textfile.close("finished")
    assert [r.getMessage() for r in caplog.records] == [
        f"stabmon: {folder / 'x.prom'} cannot be written (FileNotFoundError); it is tried again"
    ]


def test_prometheus_parser_reads_it(tmp_path: Path) -> None:
    Textfile(path := tmp_path / "x.prom", RUN, Prometheus(RUN, ["stall"]).render).close("finished")
    assert "stabmon_run_info" in [f.name for f in text_string_to_metric_families(path.read_text(encoding="utf-8"))]
