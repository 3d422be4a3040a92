import os
from pathlib import Path

import numpy as np
import pytest

from stabmon.records import Event
from stabmon.runlog import in_folder, newest, read
from stabmon.runlog import tail as tail_module
from stabmon.runlog.tail import Tail
from tests.server.recorded import STARTED, Writing, alert, snapshot


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    return Writing(tmp_path / "r1.stabmon")


def steps(tail: Tail) -> list[int]:
    return [step for chunk in tail.poll().chunks for step in chunk.steps.tolist()]


def test_each_poll_tells_the_rows_since_the_last_one_while_the_run_is_written(writing: Writing) -> None:
    tail = Tail(writing.path)
    writing.step(3)
    assert steps(tail) == [1, 2, 3]
    assert steps(tail) == []
    writing.step(2)
    assert steps(tail) == [4, 5]
    assert tail.poll().state == "running"
    writing.close("failed")
    assert tail.poll().state == "failed"


def test_values_are_those_that_replay_reads(writing: Writing) -> None:
    for step in range(1, 6):
        writing.emit(snapshot(step, loss=step / 3, layers=step % 2 == 0))
    (chunk,) = Tail(writing.path).poll().chunks
    fed = np.stack([recorded.values for recorded, _ in read(writing.path).feeds()], axis=1)
    np.testing.assert_array_equal(chunk.values, fed)
    assert chunk.sampled.tolist() == [False, True, False, True, False]
    assert chunk.times.tolist() == [STARTED + step for step in range(1, 6)]
    # Derived: the norm is the root of the sum of squares, step x (layer + 1).
    np.testing.assert_allclose(chunk["grad_norm"][1, [1, 3]], np.sqrt([4.0, 8.0]), rtol=1e-6)


def test_alerts_and_events_come_once_with_their_row(writing: Writing) -> None:
    tail = Tail(writing.path)
    writing.step(2, alerts=[alert(2)], events=[Event(2, 1.0, "evaluation", {"eval_loss": 2.5})])
    news = tail.poll()
    assert [(row, told.step) for row, told in news.alerts] == [(2, 2)]
    assert [(row, told.kind) for row, told in news.events] == [(2, "evaluation")]
    writing.step()
    news = tail.poll()
    assert (list(news.alerts), list(news.events)) == ([], [])


def test_a_poll_reads_so_many_rows_at_most_and_says_that_there_are_more(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_module, "POLL_ROWS", 4)
    writing.step(10)
    tail = Tail(writing.path)
    polls = [tail.poll() for _ in range(4)]
    assert [sum(len(chunk.steps) for chunk in news.chunks) for news in polls] == [4, 4, 2, 0]
    assert [news.more for news in polls] == [True, True, False, False]


def test_the_last_rows_alone_come_with_all_alerts(writing: Writing) -> None:
    writing.step(2, alerts=[alert(2)])
    writing.step(8)
    tail = Tail(writing.path, last=3)
    news = tail.poll()
    assert [chunk.steps.tolist() for chunk in news.chunks] == [[8, 9, 10]]
    assert [told.step for _, told in news.alerts] == [2]
    writing.step()
    assert steps(tail) == [11]


def test_a_resume_from_an_earlier_step_starts_anew_on_the_main_line(writing: Writing) -> None:
    writing.step(5, alerts=[alert(5)])
    writing.close("failed")
    tail = Tail(writing.path)
    assert not tail.poll().restarted
    resumed = Writing(writing.path, resume_at=3)
    resumed.step(1, loss=9.0)
    news = tail.poll()
    assert news.restarted
    assert np.concatenate([chunk.steps for chunk in news.chunks]).tolist() == [1, 2, 3, 4]
    assert news.chunks[-1]["loss"][0, -1] == 9.0
    assert list(news.alerts) == []


def test_another_run_in_the_same_file_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "r1.stabmon"
    first = Writing(path)
    first.step(3)
    first.close()
    tail = Tail(path)
    tail.poll()
    path.unlink()
    Writing(path, start=STARTED + 100).step(1)
    news = tail.poll()
    assert news.restarted
    assert [chunk.steps.tolist() for chunk in news.chunks] == [[1]]


def test_the_newest_value_read_of_each_slot_stands_for_a_chunk(writing: Writing) -> None:
    writing.emit(snapshot(1, loss=5.0, layers=True))
    writing.emit(snapshot(2, loss=4.0, layers=False))
    (chunk,) = Tail(writing.path).poll().chunks
    last = chunk.last()
    assert (last.step, last.scalar("loss")) == (2, 4.0)
    assert last["norm_input_msq"].tolist() == [1.0, 2.0]  # those of step 1


def test_a_range_of_rows_can_be_read_again(writing: Writing) -> None:
    writing.step(9)
    tail = Tail(writing.path)
    tail.poll()
    assert [chunk.rows.tolist() for chunk in tail.between(4, 6)] == [[4, 5, 6]]


def test_what_is_no_run_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no run log"):
        Tail(tmp_path / "nothing.stabmon").poll()
    text = tmp_path / "text.stabmon"
    text.write_text("no database\n" * 100, encoding="utf-8")
    with pytest.raises(ValueError, match="not a readable stabmon run log"):
        Tail(text).poll()


def test_a_folders_run_logs_are_found_in_it_and_where_trainers_put_them_newest_first(tmp_path: Path) -> None:
    for age, name in enumerate(["a.stabmon", "sub/b.stabmon", "sub/stabmon/c.stabmon", "x/y/z.stabmon", "other.txt"]):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

        os.utime(path, (1000 - age, 1000 - age))
    assert list(in_folder(tmp_path)) == ["a", "sub/b", "sub/stabmon/c"]


def test_what_is_no_file_is_left_out_of_a_folder_and_odd_bytes_of_a_name_are_told(tmp_path: Path) -> None:
    (tmp_path / "folder.stabmon").mkdir()
    (tmp_path / "link.stabmon").symlink_to(tmp_path / "nothing")
    assert newest(tmp_path) is None
    assert in_folder(tmp_path) == {}
    odd = tmp_path / os.fsdecode(b"r\xff.stabmon")
    odd.touch()
    assert newest(tmp_path) == odd
    assert in_folder(tmp_path) == {r"r\xff": odd}
