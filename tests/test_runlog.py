import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stabmon.records import Event, Layout, Run, Site, Snapshot
from stabmon.runlog import RunLogWriter, alert_summary, path_of, read
from tests.snapshots import LAYOUT, NAN, RUN, alert, snapshot


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def steps_on_disk(path: Path) -> list[int]:
    return [snapshot.step for snapshot, _ in read(path).feeds()]


def test_the_file_is_named_after_the_run(tmp_path: Path) -> None:
    assert path_of(tmp_path, "r1") == tmp_path / "r1.stabmon"


def test_what_was_fed_comes_back_bit_for_bit_and_in_order(tmp_path: Path) -> None:
    odd = np.array([0x7FC00001, 0xFFC12345, 0x7F800000, 0xFF800000, 0x00000001, 0x80000000, 0x3F800000], dtype="<u4")
    fed = [
        (Snapshot(1, 0.1 + 0.2, odd.view(np.float32), LAYOUT), [Event(0, 1.5, "resume", {"step": 0.0, "by": "user"})]),
        (snapshot(2, 3.5), []),
        (snapshot(3, 3.25, NAN, 2.0, 7.0), [Event(3, 2.5, "batch_size", {"to": 8.0}), Event(3, 2.6, "evaluation", {})]),
    ]
    writer = RunLogWriter(tmp_path / "r.stabmon", RUN)
    for taken, events in fed:
        writer.emit(taken, [], events)
    writer.close("finished")

    back = list(read(tmp_path / "r.stabmon").feeds())
    assert [(s.step, s.time, events) for s, events in back] == [(s.step, s.time, events) for s, events in fed]
    assert [s.values.tobytes() for s, _ in back] == [s.values.tobytes() for s, _ in fed]
    assert all(s.layout == LAYOUT and s.values.dtype == np.float32 for s, _ in back)


def test_run_state_and_alerts_come_back(tmp_path: Path) -> None:
    path = tmp_path / "r.stabmon"
    raised, cleared = alert(4), alert(9, state="cleared")
    writer = RunLogWriter(path, RUN)
    writer.emit(snapshot(4), [raised], [])
    writer.emit(snapshot(9), [cleared], [])
    assert read(path).state == "running"
    writer.close("preempted")
    recorded = read(path)
    assert (recorded.run, recorded.state, recorded.alerts) == (RUN, "preempted", [raised, cleared])


def test_a_changed_layout_starts_a_segment_and_an_equal_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "r.stabmon"
    again = Layout(LAYOUT.columns, LAYOUT.sites)
    other = Layout((("grad_sq", "new"), ("loss", "")), (Site("new"),))
    writer = RunLogWriter(path, RUN)
    writer.emit(snapshot(1, 1.0), [], [])
    writer.emit(snapshot(2, 2.0, layout=again), [], [])
    writer.emit(snapshot(3, 9.0, 3.0, layout=other), [], [])
    writer.close("finished")
    back = [s for s, _ in read(path).feeds()]
    assert [s.scalar("loss") for s in back] == [1.0, 2.0, 3.0]
    assert [s.layout for s in back] == [LAYOUT, LAYOUT, other]
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM segments").fetchone() == (2,)
    db.close()


def test_a_step_without_layer_values_costs_no_vector_row(tmp_path: Path) -> None:
    path = tmp_path / "r.stabmon"
    writer = RunLogWriter(path, RUN)
    writer.emit(snapshot(1, 1.0, NAN, 2.0), [], [])
    writer.emit(snapshot(2, 1.0, 5.0, 2.0), [], [])
    writer.close("finished")
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT row, length(data) FROM vectors").fetchall() == [(2, 5 * 4)]
        assert db.execute("SELECT row, length(data) FROM scalars").fetchall() == [(1, 2 * 4), (2, 2 * 4)]
    db.close()


def test_rows_reach_the_disk_once_a_second(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "r.stabmon"
    writer = RunLogWriter(path, RUN, clock=clock)
    seen = []
    for step, clock.now in enumerate([0.2, 0.9, 1.0, 1.5, 1.9, 2.0], start=1):
        writer.emit(snapshot(step), [], [])
        seen.append(len(steps_on_disk(path)))
    writer.close("finished")
    assert seen == [0, 0, 3, 3, 3, 6]


@pytest.mark.parametrize("urgent", ["alert", "part_failed"])
def test_an_alert_or_a_failed_part_is_on_disk_at_once(tmp_path: Path, urgent: str) -> None:
    path = tmp_path / "r.stabmon"
    writer = RunLogWriter(path, RUN, clock=Clock())
    writer.emit(snapshot(1), [], [Event(1, 1.0, "evaluation", {})])
    assert steps_on_disk(path) == []
    failed = Event(2, 1.0, "part_failed", {"part": "slack"})
    writer.emit(snapshot(2), [alert(2)] if urgent == "alert" else [], [failed] if urgent == "part_failed" else [])
    assert steps_on_disk(path) == [1, 2]
    writer.close("finished")


def test_a_killed_process_leaves_what_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "r.stabmon"
    code = (
        "import sys, os, signal; from pathlib import Path; from stabmon.runlog import RunLogWriter\n"
        "from tests.snapshots import RUN, alert, snapshot\n"
        "writer = RunLogWriter(Path(sys.argv[1]), RUN)\n"
        "writer.emit(snapshot(1, 2.5), [], []); writer.emit(snapshot(2, 3.5), [alert(2)], [])\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    root = Path(__file__).parent.parent
    ended = subprocess.run([sys.executable, "-c", code, str(path)], cwd=root, check=False)
    assert ended.returncode == -signal.SIGKILL
    recorded = read(path)
    assert recorded.state == "running"
    assert [s.scalar("loss") for s, _ in recorded.feeds()] == [2.5, 3.5]
    assert recorded.alerts == [alert(2)]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_killed_runs_log_is_read_where_nothing_can_be_written_or_it_is_said_what_to_do(tmp_path: Path) -> None:
    """As in an archive, or a colleague's folder, without the side file of which nobody speaks."""
    writer = RunLogWriter(tmp_path / "r.stabmon", RUN)
    writer.emit(snapshot(1, 2.5), [alert(1)], [])
    archive = tmp_path / "archive"
    archive.mkdir()
    for side in ("", "-wal"):
        shutil.copy(tmp_path / f"r.stabmon{side}", archive)
    shutil.copy(tmp_path / "r.stabmon", archive / "alone.stabmon")
    archive.chmod(0o500)
    try:
        assert read(archive / "alone.stabmon").run == RUN
        with pytest.raises(ValueError, match=r"Copy it and r\.stabmon-wal to a folder in which you may write"):
            read(archive / "r.stabmon")
    finally:
        archive.chmod(0o700)


def test_a_name_that_is_no_utf8_is_read(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"r\xff.stabmon")
    RunLogWriter(path, RUN).close("finished")
    assert read(path).run == RUN


def test_a_finished_log_is_one_plain_file(tmp_path: Path) -> None:
    writer = RunLogWriter(tmp_path / "r.stabmon", RUN)
    writer.emit(snapshot(1), [], [])
    writer.close("finished")
    assert os.listdir(tmp_path) == ["r.stabmon"]


def test_a_reader_that_holds_the_file_does_not_stop_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # With a rollback journal readers block commits.
    monkeypatch.setattr("stabmon.runlog.writer._is_local", lambda folder: False)
    path = tmp_path / "r.stabmon"
    clock = Clock()
    writer = RunLogWriter(path, RUN, clock=clock)
    writer.emit(snapshot(1), [alert(1)], [])
    feeds = read(path).feeds()
    next(feeds)
    for step in (2, 3, 4):
        writer.emit(snapshot(step), [alert(step)], [])
    feeds.close()
    writer.emit(snapshot(5), [alert(5)], [])
    assert steps_on_disk(path) == [1, 2, 3, 4, 5]
    writer.close("finished")


def test_an_existing_run_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "r.stabmon"
    RunLogWriter(path, RUN).close("finished")
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"r\.stabmon exists and is never overwritten; give the run another name"):
        RunLogWriter(path, RUN)
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        OSError, match=r"cannot write run logs in folder .*/file/logs \(Not a directory\); pass a folder"
    ):
        RunLogWriter(tmp_path / "file" / "logs" / "r.stabmon", RUN)


def test_missing_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "r.stabmon"
    RunLogWriter(path, RUN).close("finished")
    assert read(path).run == read(str(path)).run == RUN


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no run log .*none\.stabmon; run logs end in \.stabmon"):
        read(tmp_path / "none.stabmon")
    with pytest.raises(FileNotFoundError, match="there is no run log none"):
        read("none")


@pytest.mark.parametrize("content", [b"", b"step,loss\n1,2\n" * 100])
def test_another_file_is_not_taken_for_a_run_log(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match="x is not a (readable )?stabmon run log"):
        read(tmp_path / "x")


def test_another_programs_database_is_not_taken_for_a_run_log(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "x")
    db.execute("CREATE TABLE run (record, state)")
    db.close()
    with pytest.raises(ValueError, match="x is not a stabmon run log"):
        read(tmp_path / "x")


def test_a_folder_is_not_taken_for_a_run_log(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a readable stabmon run log"):
        read(tmp_path)


def change(path: Path, statement: str) -> None:
    db = sqlite3.connect(path)
    db.execute(statement)
    db.commit()
    db.close()


def test_another_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    path = tmp_path / "r.stabmon"
    RunLogWriter(path, RUN).close("finished")
    change(path, "PRAGMA user_version = 7")
    with pytest.raises(ValueError, match="has run log format 7, this stabmon reads 1; use the stabmon that wrote it"):
        read(path)


def test_a_statistic_that_is_not_in_the_catalog_is_named(tmp_path: Path) -> None:
    path = tmp_path / "r.stabmon"
    writer = RunLogWriter(path, RUN)
    writer.emit(snapshot(1), [], [])
    writer.close("finished")
    change(path, "UPDATE segments SET layout = replace(layout, 'total_grad_sq', 'phase_of_moon')")
    with pytest.raises(ValueError, match=r"statistics that this stabmon does not know \(phase_of_moon\)"):
        list(read(path).feeds())


def test_a_field_that_a_later_version_added_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "r.stabmon"
    RunLogWriter(path, RUN).close("finished")
    change(path, """UPDATE run SET record = json_set(record, '$.colour', 'blue')""")
    assert read(path).run == RUN


@pytest.mark.parametrize(
    ("mounts", "mode"),
    [
        ("/dev/sda / ext4 rw 0 0\n", "wal"),
        ("/dev/sda / ext4 rw 0 0\nserver:/home {tmp} nfs4 rw 0 0\n", "truncate"),
        ("/dev/sda / ext4 rw 0 0\nx {tmp} mystery rw 0 0\n", "truncate"),
        ("server:/ / nfs rw 0 0\ntmpfs {tmp} tmpfs rw 0 0\n", "wal"),
    ],
)
def test_write_ahead_logging_is_used_on_local_disks_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounts: str, mode: str
) -> None:
    original = Path.read_text
    table = mounts.format(tmp=tmp_path)
    monkeypatch.setattr(Path, "read_text", lambda p, *a: table if str(p) == "/proc/self/mounts" else original(p, *a))
    writer = RunLogWriter(tmp_path / "r.stabmon", RUN)
    used = {name.rsplit("-", 1)[-1] for name in os.listdir(tmp_path)}
    assert ("wal" in used) == (mode == "wal")
    writer.close("finished")


def test_an_alert_summary_is_strict_json() -> None:
    summary = alert_summary(alert(4))
    assert json.loads(json.dumps(summary, allow_nan=False)) == {
        "detector": "stall",
        "severity": "warning",
        "state": "raised",
        "step": 4,
        "layer": 1,
        "message": alert(4).message,
        "evidence": {"loss": 3.5, "context_share": None},
    }


def test_a_run_with_more_ranks_keeps_every_field(tmp_path: Path) -> None:
    run = Run(
        "r2", 5.5, rank=3, world_size=8, framework="huggingface", model="Gpt", version="9", architecture={"a": "b"}
    )
    RunLogWriter(tmp_path / "r.stabmon", run).close("failed")
    assert read(tmp_path / "r.stabmon").run == run


def test_a_resume_goes_on_in_the_same_file_and_leaves_what_was_beyond_it(tmp_path: Path) -> None:
    path = tmp_path / "r.stabmon"
    first = RunLogWriter(path, RUN)
    for step in (1, 2, 3, 4, 5):
        first.emit(snapshot(step, float(step)), [alert(step)] if step in (2, 4) else [], [])
    first.keep("ladder", 2, b"at 2")
    first.keep("ladder", 5, b"at 5")
    first.close("failed")
    second = RunLogWriter(path, RUN, resume_at=3)
    assert read(path).blob("ladder") == b"at 2"
    second.emit(snapshot(4, 40.0), [], [Event(4, 0.0, "resume", {})])
    second.emit(snapshot(5, 50.0), [], [])
    second.close("failed")
    third = RunLogWriter(path, RUN, resume_at=4)
    third.emit(snapshot(5, 500.0), [], [])
    assert read(path).state == "running"
    third.close("finished")

    recorded = read(path)
    main_line = [(taken.step, taken.scalar("loss")) for taken, _ in recorded.feeds()]
    assert main_line == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 40.0), (5, 500.0)]
    assert [found.step for found in recorded.alerts] == [2], "the alert of step 4 was left behind"
    assert [len(events) for _, events in recorded.feeds()] == [0, 0, 0, 1, 0]
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT COUNT(*) FROM scalars").fetchone() == (8,), "nothing is thrown away"


def test_of_each_blob_the_newest_two_are_kept(tmp_path: Path) -> None:
    writer = RunLogWriter(tmp_path / "r.stabmon", RUN)
    for step in (1, 2, 3):
        writer.keep("ladder", step, b"%d" % step)
    writer.close("finished")
    assert read(tmp_path / "r.stabmon").blob("ladder") == b"3"
    assert read(tmp_path / "r.stabmon").blob("other") is None
    with sqlite3.connect(tmp_path / "r.stabmon") as db:
        assert db.execute("SELECT step FROM blobs ORDER BY step").fetchall() == [(2,), (3,)]


def test_a_copy_of_a_living_run_log_without_its_wal_file_can_be_read(tmp_path: Path) -> None:
    path, copy = tmp_path / "r.stabmon", tmp_path / "copy.stabmon"
    writer = RunLogWriter(path, RUN)
    copy.write_bytes(path.read_bytes())
    assert (read(copy).run, steps_on_disk(copy)) == (RUN, [])
    writer.close("finished")


def test_a_row_is_in_the_file_soon_though_no_other_follows_and_never_half_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stabmon.runlog.writer._KEEP_UP_SECONDS", 0.02)
    writer = RunLogWriter(tmp_path / "r.stabmon", RUN, clock=lambda: 0.0)  # no second ever passes
    writer.judged_by({"spike": ("loss",)})
    writer.keep_up()
    writer.scored(np.float32([0.5]))
    writer.emit(snapshot(1, 2.0), [], [])
    writer.scored(np.float32([0.7]))  # of a row that is still to come
    eventually(lambda: steps_on_disk(writer.path) == [1])
    with sqlite3.connect(writer.path) as db:
        assert db.execute("SELECT row FROM scores").fetchall() == [(1,)]
    db.close()
    writer.emit(snapshot(2, 2.0), [], [])
    eventually(lambda: steps_on_disk(writer.path) == [1, 2])
    writer.close("finished")
    assert read(writer.path).state == "finished"


def test_a_file_that_goes_while_no_step_comes_is_told_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stabmon.runlog.writer._KEEP_UP_SECONDS", 0.02)
    writer = RunLogWriter(tmp_path / "r.stabmon", RUN, clock=lambda: 0.0)
    writer.keep_up()
    writer.path.unlink()
    writer.emit(snapshot(1, 2.0), [], [])
    eventually(lambda: writer._error is not None)
    with pytest.raises(FileNotFoundError, match="was deleted or moved while it was written"):
        writer.emit(snapshot(2, 2.0), [], [])
    writer.close("stopped")


def test_what_a_signal_interrupts_while_it_writes_can_be_closed_by_its_handler(tmp_path: Path) -> None:
    def handler() -> float:
        if threading.current_thread().name == "trains":
            writer.close("preempted")
        return 0.0

    writer = RunLogWriter(tmp_path / "r.stabmon", RUN, clock=handler)
    writer.emit(snapshot(1, 2.0), [], [])

    def train() -> None:
        with pytest.raises(sqlite3.ProgrammingError):  # what was interrupted goes on, and finds it closed
            writer.emit(snapshot(2, 2.0), [alert(2, "critical")], [])

    training = threading.Thread(target=train, name="trains", daemon=True)
    training.start()
    training.join(60)
    assert not training.is_alive()
    assert (read(writer.path).state, steps_on_disk(writer.path)) == ("preempted", [1, 2])


def eventually(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.01)
