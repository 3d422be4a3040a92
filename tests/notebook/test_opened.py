"""What `stabmon.open` gives is what was fed."""

import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import stabmon
from stabmon.notebook import OpenedRun
from stabmon.records import Event, Layout, Run, Site, Snapshot
from stabmon.runlog import RunLogWriter
from tests.server.recorded import STARTED, Writing, alert, snapshot


def opened(run: str | Path) -> OpenedRun:
    found = stabmon.open(run)
    assert isinstance(found, OpenedRun)
    return found


@pytest.fixture(autouse=True)
def _always_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run log is otherwise asked twice a second at most."""
    monkeypatch.setattr("stabmon.server.standing.POLL_SECONDS", 0.0)


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    return Writing(tmp_path / "stabmon-runs" / "r1.stabmon")


def test_a_frame_has_a_row_for_each_step_that_was_read_and_a_column_for_each_layer(writing: Writing) -> None:
    for step in range(1, 8):
        writing.emit(snapshot(step, layers=step % 3 == 1))
    frame = opened(writing.path).frame("norm_gain")
    # The recipe of the run: step x (layer + 1).
    wanted = pd.DataFrame(
        {"h.0.ln": [1, 4, 7], "h.1.ln": [2, 8, 14]}, index=pd.Index([1, 4, 7], name="step"), dtype=np.float32
    )
    pd.testing.assert_frame_equal(frame, wanted)
    assert frame.attrs["unit"] == "1"


def test_a_derived_statistic_is_derived(writing: Writing) -> None:
    writing.step(3)
    # grad_sq is 3 and 6 at step 3; people see its root.
    assert opened(writing.path).frame("grad_norm").loc[3].tolist() == pytest.approx([3**0.5, 6**0.5])
    assert opened(writing.path).frame("grad_sq").loc[3].tolist() == [3, 6]


def test_without_a_name_come_the_time_and_all_of_the_whole_model(writing: Writing) -> None:
    writing.step(2, loss=3.5)
    frame = opened(writing.path).frame()
    assert frame["loss"].tolist() == [3.5, 3.5]
    assert frame.columns[0] == "time"
    assert frame["time"].iloc[1] == pd.Timestamp(STARTED + 2, unit="s", tz="UTC")
    assert set(frame.columns) >= {"bigram_loss", "unigram_loss", "uniform_loss", "context_share", "step_seconds"}
    assert "norm_gain" not in frame


def test_what_is_not_finite_comes_as_it_was_read(writing: Writing) -> None:
    for value in (math.inf, -math.inf, 1e38):
        writing.step(loss=value, norm_gain=value)
    writing.step(loss=math.nan)
    run = opened(writing.path)
    assert run.frame("loss")["loss"].tolist() == [math.inf, -math.inf, pytest.approx(1e38)]
    assert math.isnan(run.frame()["loss"].iloc[3])
    assert run.frame("norm_gain")["h.0.ln"].tolist()[:2] == [math.inf, -math.inf]


def test_a_run_that_is_resumed_has_each_step_once(writing: Writing) -> None:
    writing.step(6, loss=2.0)
    again = Writing(writing.path, resume_at=3)
    again.step(2, loss=1.0)
    frame = opened(writing.path).frame("loss")
    assert frame.index.tolist() == [1, 2, 3, 4, 5]
    assert frame["loss"].tolist() == [2, 2, 2, 1, 1]


def test_a_model_that_changed_has_the_columns_of_both(tmp_path: Path) -> None:
    writer = RunLogWriter(tmp_path / "r.stabmon", Run("r", started=STARTED))
    for step, site in ((1, "old"), (2, "new")):
        layout = Layout((("loss", ""), ("norm_gain", site)), (Site(site, 0, "ln"),))
        writer.emit(Snapshot(step, STARTED + step, np.array([2, step], dtype=np.float32), layout), (), ())
    writer.close("finished")
    frame = opened(tmp_path / "r.stabmon").frame("norm_gain")
    assert frame.columns.tolist() == ["old", "new"]
    assert np.array_equal(frame.to_numpy(), [[1, np.nan], [np.nan, 2]], equal_nan=True)


def test_a_run_that_still_trains_is_followed(writing: Writing) -> None:
    writing.step(5)
    run = opened(writing.path)
    assert (run.step, run.state, len(run.alerts)) == (5, "running", 0)
    writing.step(2, alerts=[alert(7)])
    assert (run.step, len(run.frame("loss")), run.alerts[0].detector) == (7, 7, "context_stall")
    writing.close("failed")
    assert run.state == "failed"


def test_alerts_and_events_come_as_records_and_as_frames(writing: Writing) -> None:
    writing.step(4, alerts=[alert(4)], events=[Event(4, STARTED + 4, "resume", {"at": 3})])
    writing.step(2, alerts=[alert(6, state="cleared")])
    run = opened(writing.path)
    assert [(a.step, a.state) for a in run.alerts] == [(4, "raised"), (6, "cleared")]
    frame = run.alerts.frame()
    assert frame[["step", "severity", "layer"]].iloc[0].tolist() == [4, "critical", 1]
    assert frame["time"].iloc[0] == pd.Timestamp(STARTED + 4, unit="s", tz="UTC")
    assert run.events.frame()["kind"].tolist() == ["resume"]


def test_layers_and_statistics_tell_what_can_be_asked_for(writing: Writing) -> None:
    writing.step()
    run = opened(writing.path)
    assert [site.name for site in run.layers] == ["h.0.ln", "h.1.ln", "h.0", "h.1"]
    assert {"loss", "norm_gain", "grad_norm"} <= set(run.statistics)
    with pytest.raises(ValueError, match="'log_z' was not read in this run; there are: loss, "):
        run.frame("log_z")
    with pytest.raises(ValueError, match="'gain' is no statistic; there are: loss, "):
        run.frame("gain")


def test_a_run_without_a_step_has_empty_frames(writing: Writing) -> None:
    run = opened(writing.path)
    assert (run.step, run.statistics, run.layers) == (0, (), ())
    assert (len(run.frame()), len(run.alerts.frame()), len(run.events.frame())) == (0, 0, 0)
    assert "step" in run.alerts.frame()
    with pytest.raises(ValueError, match="'loss' was not read in this run; there are: none yet"):
        run.frame("loss")


def test_a_run_is_found_by_file_by_folder_and_by_name(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    writing.step()
    other = Writing(writing.path.parent / "sub" / "r2.stabmon", name="r2")
    other.step(2)
    monkeypatch.chdir(writing.path.parent.parent)
    assert [opened(what).run.name for what in (writing.path, "stabmon-runs", "r1", "r2", "sub/r2")] == [
        "r1", "r2", "r1", "r2", "r2",
    ]  # fmt: skip
    with pytest.raises(FileNotFoundError, match="there is no file, folder or run r3 in stabmon-runs; give a run log"):
        stabmon.open("r3")
    with pytest.raises(FileNotFoundError, match="there is no run log x.stabmon"):
        stabmon.open("x.stabmon")
    Path("empty").mkdir()
    with pytest.raises(ValueError, match="empty is a folder, and no run by itself; give a file of it"):
        stabmon.open("empty")


def test_what_another_tool_logged_is_judged_and_goes_when_nobody_looks(tmp_path: Path) -> None:
    losses = [5.0 - 0.02 * i for i in range(150)] + [math.inf, 2.0]
    log = tmp_path / "metrics.csv"
    log.write_text("step,loss\n" + "".join(f"{10 * i},{loss}\n" for i, loss in enumerate(losses, 1)))
    run = opened(log)
    frame = run.frame("loss")
    assert frame.index.tolist() == list(range(10, 1530, 10))
    assert frame["loss"].tolist() == [float(np.float32(loss)) for loss in losses]
    assert ("nonfinite", 1510) in [(alert.detector, alert.step) for alert in run.alerts]
    assert run.notes[0] == "metrics.csv: CSV."
    assert "metrics.csv: CSV." in run._repr_html_()
    kept = run.path
    assert kept.is_file()
    del run, frame
    assert not kept.exists()
    with pytest.raises(ValueError, match=r"notes\.txt"):
        stabmon.open(_text(tmp_path / "notes.txt", "nothing to see\n"))


def _text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_without_pandas_the_message_says_what_to_install(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    writing.step()
    run = opened(writing.path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'stabmon\[notebook\]'"):
        run.frame("loss")
    assert run.verdict.level in ("healthy", "silent")


def test_in_a_plain_terminal_it_is_one_line(writing: Writing) -> None:
    writing.step(60)
    writing.close()
    run = opened(writing.path)
    assert (
        repr(run)
        == "<stabmon run 'r1': Finished. Step 60, loss 2, 0.4 nats below the bigram baseline. No alert was open.>"
    )
    writing.path.unlink()
    assert repr(run) == f"<stabmon run 'r1': there is no run log {writing.path}>"


def test_in_a_plain_terminal_a_title_that_ends_in_a_full_stop_gets_no_second_one(writing: Writing) -> None:
    """Live: "as in a GAN.. Nothing was learnt"."""
    writing.step(60, alerts=[alert(60)])
    writing.close()
    shown = repr(opened(writing.path))
    assert ".." not in shown
    assert f"{stabmon.open(writing.path).verdict.title} " in shown
