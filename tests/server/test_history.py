from pathlib import Path

import numpy as np
import pytest

from stabmon.server import history as history_module
from stabmon.server.history import History
from stabmon.server.standing import POLL_SECONDS, Standing
from tests.server.recorded import Writing, alert, snapshot

END = 10**9


class Clock:
    """A second later at each look, unless it is stopped."""

    now = 0.0
    stopped = False

    def __call__(self) -> float:
        self.now += not self.stopped
        return self.now


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    return Writing(tmp_path / "r1.stabmon")


def read(writing: Writing) -> History:
    found = History(writing.path, clock=Clock())
    while found.refresh():
        pass
    return found


def test_a_short_run_is_shown_value_by_value(writing: Writing) -> None:
    for step in range(1, 6):
        writing.emit(snapshot(step, loss=step * 0.5))
    window = read(writing).window("loss", 0, END, 100)
    assert window.steps.tolist() == [1, 2, 3, 4, 5]
    assert window.low.tolist() == window.high.tolist() == [[0.5, 1.0, 1.5, 2.0, 2.5]]
    layers = read(writing).window("norm_input_msq", 0, END, 100)
    assert [site.name for site in layers.sites] == ["h.0.ln", "h.1.ln"]
    assert layers.high.tolist() == [[1, 2, 3, 4, 5], [2, 4, 6, 8, 10]]


def test_steps_at_which_a_statistic_was_not_read_are_left_out(writing: Writing) -> None:
    for step in range(1, 31):
        writing.emit(snapshot(step, layers=step % 10 == 0))
    assert read(writing).window("norm_gain", 0, END, 100).steps.tolist() == [10, 20, 30]


def test_a_long_run_comes_in_at_most_so_many_points_with_its_spike(writing: Writing) -> None:
    writing.step(700)
    writing.step(1, loss=40.0)
    writing.step(300)
    window = read(writing).window("loss", 0, END, 50)
    assert len(window.steps) <= 50
    assert window.steps[-1] == 1001
    assert window.high.max() == 40.0
    point = int(window.high[0].argmax())
    assert window.steps[point - 1] < 701 <= window.steps[point]


def test_a_short_range_of_a_long_run_is_read_again_in_full(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "OVERVIEW", (64, 64))
    for step in range(1, 1001):
        writing.emit(snapshot(step, loss=step))
    found = read(writing)
    assert len(found.window("loss", 0, END, 1000).steps) == 1000  # 1000 rows are few enough
    monkeypatch.setattr(history_module, "REREAD_ROWS", 200)
    assert len(found.window("loss", 0, END, 1000).steps) == 63  # as fine as the overview: 16 rows each
    window = found.window("loss", 501, 520, 1000)
    assert window.steps.tolist() == list(range(501, 521))
    assert window.low[0].tolist() == list(range(501, 521))
    layers = found.window("norm_input_msq", 501, 520, 1000)
    assert layers.high[1].tolist() == [2 * step for step in range(501, 521)]


def test_a_range_without_rows_is_empty(writing: Writing) -> None:
    writing.step(5)
    window = read(writing).window("loss", 6, END, 10)
    assert window.steps.tolist() == []
    assert window.low.size == 0


def test_totals_newest_values_and_alerts_are_those_of_the_rows(writing: Writing) -> None:
    writing.step(100, alerts=[alert(100)], step_seconds=0.5, monitor_seconds=0.001)
    writing.step(2, loss=7.0, step_seconds=0.25, monitor_seconds=0.002)
    found = read(writing)
    assert found.totals["step_seconds"] == pytest.approx(50.5)
    assert found.totals["monitor_seconds"] == pytest.approx(0.104)
    assert (found.first_step, found.step, found.steps) == (1, 102, 102)
    assert found.latest["loss"] == 7.0
    assert found.latest["context_share"] == 0.5
    assert list(found.recent["loss"])[-3:] == [2.0, 7.0, 7.0]
    assert [told.detector for told in found.open_alerts()] == ["context_stall"]


def test_the_version_grows_with_news_alone(writing: Writing) -> None:
    found = read(writing)
    before = found.version
    found.refresh()
    assert found.version == before
    writing.step()
    found.refresh()
    assert found.version > before
    before = found.version
    writing.close("stopped")
    found.refresh()
    assert found.version > before
    assert found.state == "stopped"


def test_a_resume_forgets_what_lies_beyond_it(writing: Writing) -> None:
    writing.step(10, loss=2.0, alerts=[alert(10)])
    writing.close("failed")
    found = read(writing)
    resumed = Writing(writing.path, resume_at=6)
    resumed.step(2, loss=3.0)
    found.refresh()
    window = found.window("loss", 0, END, 100)
    assert window.steps.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert window.low[0].tolist() == [2.0] * 6 + [3.0] * 2
    assert found.open_alerts() == []


def test_many_pages_ask_the_file_no_more_than_twice_a_second(writing: Writing) -> None:
    clock = Clock()
    standing = Standing(writing.path, clock=clock)
    standing.refresh()
    clock.stopped = True
    writing.step()
    standing.refresh()
    assert standing.steps == 0
    clock.now += POLL_SECONDS
    standing.refresh()
    assert standing.steps == 1


def test_a_file_that_nobody_wrote_to_is_not_read_again(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    writing.step()
    found = read(writing)
    monkeypatch.setattr(found.tail, "poll", lambda: pytest.fail("was read"))
    found.refresh()


def test_infinity_is_a_reading(writing: Writing) -> None:
    writing.step(3)
    writing.step(1, loss=float("inf"))
    assert read(writing).window("loss", 0, END, 10).high[0].tolist() == [2.0, 2.0, 2.0, np.inf]
