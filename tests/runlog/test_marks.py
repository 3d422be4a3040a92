import json
import os
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest

from stabmon.runlog import RunLogWriter, newest, read
from stabmon.runlog.marks import Mark, add_mark, marks_of, muted, standing
from tests.snapshots import RUN, alert, snapshot


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r.stabmon"


def mark(kind: str = "acknowledged", of: str = "stall:4", until: int | None = None) -> Mark:
    return Mark(of, kind, 9, 2.5, until, "<b>seen</b> 🙂")  # type: ignore[arg-type]


def test_what_was_said_comes_back_in_order_and_the_last_word_counts(path: Path) -> None:
    RunLogWriter(path, RUN).close("finished")
    said = [mark(), mark("muted", until=50), mark("muted", "spike:7", until=20), mark("none")]
    for one in said:
        add_mark(path, one)
    assert marks_of(path) == said
    assert standing(said) == {"spike:7": said[2]}
    assert muted(said) == {"spike": 20}
    assert muted(said[:3]) == {"stall": 50, "spike": 20}


def test_a_mark_is_kept_while_the_training_writes_a_thousand_steps_and_none_of_those_is_lost(path: Path) -> None:
    writer, said, ended = RunLogWriter(path, RUN, clock=_Hurry()), [], threading.Event()

    def train() -> None:
        for step in range(1, 1001):
            writer.emit(snapshot(step, float(step), 1.0), [], [])
        ended.set()

    training = threading.Thread(target=train)
    training.start()
    for number in range(20):
        while True:
            try:
                add_mark(path, mark(of=f"stall:{number}"))
                break
            except TimeoutError:
                time.sleep(0.01)
        said.append(f"stall:{number}")
    training.join(60)
    writer.close("finished")
    assert ended.is_set()
    assert [known.alert for known in marks_of(path)] == said
    assert [taken.scalar("loss") for taken, _ in read(path).feeds()] == [float(step) for step in range(1, 1001)]


def test_what_other_versions_say_of_alerts_is_read_as_far_as_it_is_known(path: Path) -> None:
    RunLogWriter(path, RUN).close("finished")
    add_mark(path, mark())
    more = {**asdict(mark()), "who": "somebody"}
    odd = [json.dumps(more), json.dumps({**more, "kind": "snoozed"}), '{"kind": "none"}', "[]", "{", "7"]
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executemany("INSERT INTO marks (record) VALUES (?)", [(text,) for text in odd])
    assert marks_of(path) == [mark(), mark()]


def test_the_writer_waits_for_nobody_and_writes_what_it_could_not_with_the_next_commit(path: Path) -> None:
    writer = RunLogWriter(path, RUN)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.perf_counter()
        writer.emit(snapshot(1, 1.0), [alert(1)], [])
        assert time.perf_counter() - began < 2.0  # it gives up after 50 ms
        other.execute("ROLLBACK")
    other.close()
    assert read(path).alerts == []
    writer.emit(snapshot(2, 1.0), [alert(2)], [])
    assert [known.step for known in read(path).alerts] == [1, 2]
    writer.close("finished")


def test_who_is_locked_out_for_long_is_told_to_try_again(path: Path) -> None:
    RunLogWriter(path, RUN).close("finished")
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TimeoutError, match=r"r\.stabmon is being written; try again in a moment"):
            add_mark(path, mark())
        other.execute("ROLLBACK")
    other.close()


def test_a_mark_on_an_old_run_does_not_make_it_the_newest_but_is_seen_to_have_come(path: Path) -> None:
    RunLogWriter(path, RUN).close("finished")
    os.utime(path, (1000, 1000))
    later = path.with_name("later.stabmon")
    RunLogWriter(later, RUN).close("finished")
    before = path.stat().st_mtime_ns
    add_mark(path, mark())
    assert newest(path.parent) == later
    assert before < path.stat().st_mtime_ns < before + 10_000


def test_run_logs_of_earlier_versions_can_be_marked_and_have_no_marks_before(path: Path) -> None:
    RunLogWriter(path, RUN).close("finished")
    with sqlite3.connect(path) as db:
        db.executescript("DROP TABLE scores; DROP TABLE detectors;")
    db.close()
    assert marks_of(path) == []
    add_mark(path, mark())
    assert marks_of(path) == [mark()]


def test_what_is_no_run_log_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x.stabmon").write_text("a,b\n" * 500)
    with pytest.raises(ValueError, match="not a readable stabmon run log"):
        add_mark(tmp_path / "x.stabmon", mark())
    with pytest.raises(FileNotFoundError, match="there is no run log"):
        add_mark(tmp_path / "y.stabmon", mark())
    assert not (tmp_path / "y.stabmon").exists()


class _Hurry:
    """A clock on which a second passes at each look: every row is committed."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now
