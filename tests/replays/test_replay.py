import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import stabmon
from stabmon.catalog import Array
from stabmon.detectors import default_detectors, loss_detectors
from stabmon.records import Finding, Layout, Snapshot
from stabmon.replays import Verdict
from stabmon.replays.needs import Seen, judges
from tests.replays.files import diverging_losses, healthy_losses, table, trainer_state
from tests.server.recorded import Writing, alert

LOSSES = ("nonfinite", "exploded", "diverged", "flat", "spike")


class Always:
    """Critical at each step past 20."""

    name = "always"
    needs: tuple[str, ...] = ("loss",)

    def score(self, snapshot: Snapshot) -> Array:
        return np.array([2.0 if snapshot.step > 20 else 0.0], dtype=np.float32)

    def explain(self, site: int) -> Finding:
        return Finding("critical", "is <i>ill</i>", "", ("rest",), {}, since=20)


@pytest.fixture(scope="module")
def ill(tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    return stabmon.replay(trainer_state(tmp_path_factory.mktemp("ill") / "trainer_state.json", diverging_losses()))


def test_a_run_that_is_well_is_true_and_says_so(tmp_path: Path) -> None:
    found = stabmon.replay(table(tmp_path / "log.csv", healthy_losses()))
    assert found
    assert (found.severity, found.alerts, found.incidents) == (None, (), ())
    assert (found.steps, found.first_step, found.last_step, found.state) == (300, 1, 300, None)
    assert (found.first_loss, found.last_loss) == pytest.approx((healthy_losses()[0], healthy_losses()[-1]), rel=1e-6)
    assert str(found) == "log.csv (CSV, steps 1 to 300, loss 6.001 to 2.036): no alert"


def test_a_loss_that_ended_as_nan_is_said_to_be_not_finite(tmp_path: Path) -> None:
    found = stabmon.replay(table(tmp_path / "log.csv", [*healthy_losses(), float("nan"), float("nan")]))
    assert "loss 6.001 to not finite)" in found.title
    assert "inf" not in found.title


def test_one_that_diverged_is_false_and_says_since_when(ill: Verdict) -> None:
    assert not ill
    assert ill.severity == "critical"
    incident = next(each for each in ill.incidents if each.alert.detector == "diverged")
    assert incident.told <= incident.alert.step
    assert incident.alert.remedies
    lines = str(ill).splitlines()
    assert lines[0].endswith(": critical")
    assert any(line.startswith("critical since step 2,04") and "diverged: the run has" in line for line in lines[1:])


def test_what_could_run_is_what_the_file_holds(ill: Verdict) -> None:
    assert ill.could_run == LOSSES
    assert set(ill.could_not_run) == {detector.name for detector in default_detectors()} - set(LOSSES)
    assert "grad_norm" in ill.could_not_run["gradient_spike"]
    assert "total_grad_norm" not in ill.could_not_run["gradient_spike"]
    assert ill.unseen.startswith("Judged by nonfinite, exploded, diverged, flat, spike. What the others need is not in")


def test_a_run_log_goes_to_all_detectors_and_those_without_their_first_need_could_not_run(tmp_path: Path) -> None:
    run = Writing(tmp_path / "r1.stabmon")
    run.step(30)
    run.close("failed")
    found = stabmon.replay(run.path)
    assert (found.format, found.state, found.steps) == ("stabmon run log", "failed", 30)
    assert {"context_stall", "residual_blowup", "loss_shift"} <= set(found.could_run)
    assert {"attention_blowup", "rank_trouble", "logit_drift"} <= set(found.could_not_run)
    assert set(found.could_run) | set(found.could_not_run) == {detector.name for detector in default_detectors()}


def test_a_run_that_is_still_written_is_judged_so_far(tmp_path: Path) -> None:
    run = Writing(tmp_path / "r1.stabmon")
    run.step(7)
    found = stabmon.replay(run.path)
    assert (found.state, found.last_step) == ("running", 7)
    run.close()


@pytest.mark.parametrize("losses", [[3.0], [float("nan")], [float("inf"), 2.0]])
def test_a_run_of_a_step_or_two_is_judged(tmp_path: Path, losses: list[float]) -> None:
    found = stabmon.replay(table(tmp_path / "log.csv", losses))
    assert found.steps == len(losses)
    assert found.severity == (None if losses == [3.0] else "critical")


@pytest.mark.parametrize(("points", "told"), [(1, False), (20, False), (30, True), (200, True)])
def test_a_log_too_short_to_show_a_jump_says_so(tmp_path: Path, points: int, told: bool) -> None:
    noise = 0.01 * np.random.default_rng(0).standard_normal(points)
    falling = [float(loss) for loss in 3 - np.arange(points) / 50 * (points < 100) + noise]
    calm = stabmon.replay(trainer_state(tmp_path / "calm.json", falling))
    short = [note for note in calm.notes if note.endswith("to tell a jump of the loss from its noise takes 30.")]
    assert short == ([] if told else [f"{points} point{'s' * (points > 1)} only; {short[0].partition('; ')[2]}"])
    jumped = stabmon.replay(trainer_state(tmp_path / "jump.json", [*falling, 6.0, 6.1]))
    assert bool(jumped.alerts) == told


def test_detectors_of_ones_own_judge_instead_and_what_still_stands_is_told_of_with_since(tmp_path: Path) -> None:
    path = table(tmp_path / "log.csv", healthy_losses(60))
    found = stabmon.replay(path, detectors=[Always()])
    assert [(told.detector, told.step) for told in found.alerts] == [("always", 21)]
    assert found.could_run == ("always",)
    assert [told.step for told in stabmon.replay(path, detectors=[Always()], since=22).alerts] == [21]  # it stands
    with pytest.raises(ValueError, match="must be objects with name, needs"):
        stabmon.replay(path, detectors=[3])  # type: ignore[list-item]


def test_what_cannot_be_read_is_a_value_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none.csv"):
        stabmon.replay(tmp_path / "none.csv")


def test_in_a_notebook_a_verdict_is_a_table_of_text(tmp_path: Path) -> None:
    found = stabmon.replay(table(tmp_path / "<b>.csv", healthy_losses(60)), detectors=[Always()])
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, _: tags.append(tag)  # type: ignore[method-assign]
    parser.feed(found._repr_html_())
    assert set(tags) == {"p", "b", "table", "tr", "th", "td"}
    assert tags.count("b") == 1  # its own
    assert "always: the run is &lt;i&gt;ill&lt;/i&gt;" in found._repr_html_()


def test_alerts_of_one_incident_are_one_with_its_worst_and_its_end() -> None:
    told = [
        alert(10, "warning"),
        alert(12, "critical"),
        alert(20, "critical", "cleared"),
        alert(30, "info"),
        alert(31, "warning", detector="spike"),
    ]
    found = Verdict("f", "r", "CSV", None, 40, 1, 40, 3.0, 3.0, tuple(told), (), {}, ()).incidents
    assert [(each.alert.detector, each.alert.severity, each.told, each.until) for each in found] == [
        ("context_stall", "critical", 10, 20),
        ("context_stall", "info", 30, None),
        ("spike", "warning", 31, None),
    ]


def test_a_log_of_losses_goes_to_the_detectors_that_are_graded_on_such_logs_and_to_those_that_find_all() -> None:
    logged = Layout(tuple((name, "") for name in ("loss", "total_grad_sq", "learning_rate", "eval_loss")), ())
    assert {detector.name for detector in judges(logged)} == {detector.name for detector in loss_detectors()}
    logits = Layout((("loss", ""), *((name, "") for name in ("log_z", "log_z_msq", "logit_max", "logit_mean"))), ())
    assert {d.name for d in judges(logits)} - {d.name for d in loss_detectors()} == {"logit_drift"}


def test_a_statistic_that_was_never_read_does_not_count() -> None:
    layout = Layout((("loss", ""), ("total_grad_sq", ""), ("learning_rate", "")), ())
    seen = Seen()
    for values in ([1.0, np.nan, np.nan], [np.nan, np.nan, np.inf]):
        seen.see(Snapshot(1, 0.0, np.array(values, dtype=np.float32), layout))
    assert seen.statistics() == {"loss", "learning_rate"}


def test_neither_torch_nor_the_server_is_loaded(tmp_path: Path) -> None:
    path = table(tmp_path / "log.csv", healthy_losses(60))
    code = (
        f"import stabmon, sys; stabmon.replay({str(path)!r}); "
        "print(*{'torch', 'fastapi', 'pandas', 'tensorboard'} & {m.split('.')[0] for m in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
