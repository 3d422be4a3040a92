"""What every detector keeps, on runs that hold every stored statistic."""

import copy
import inspect
import pkgutil
from collections.abc import Callable
from importlib import import_module, resources

import numpy as np
import pytest

import stabmon.detectors
from stabmon.catalog import STATISTICS, ranks
from stabmon.detectors import Detector, default_detectors, loss_detectors
from stabmon.detectors.dead_units import DeadUnits
from stabmon.detectors.diverged import Diverged
from stabmon.detectors.exploded import Exploded
from stabmon.detectors.flat import Flat
from stabmon.detectors.logit_drift import LogitDrift
from stabmon.detectors.loss_shift import LossShift
from stabmon.detectors.residual_blowup import ResidualBlowup
from stabmon.detectors.spike import Spike
from stabmon.records import Snapshot
from tests.detectors.series import alerts_of, make_series

STORED = [name for name, row in STATISTICS.items() if row.formula is None]
LAYERS = 4

KINDS = list(dict.fromkeys(type(d) for d in (*default_detectors(), *loss_detectors())))
OF_THE_LOSS = (Exploded, Diverged, LossShift, Flat, Spike)
every_detector = pytest.mark.parametrize("make", KINDS, ids=lambda kind: kind.name)
Make = Callable[[], Detector]


def noisy_run(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    width = {name: 1 if STATISTICS[name].scope == "model" else LAYERS for name in STORED}
    rows = {name: np.exp(rng.normal(0, 0.1, (count, width[name]))) for name in STORED}
    equal = {row.name: np.zeros((count, width[row.name])) for row in ranks.TABLE if row.name != "ranks_read"}
    return rows | equal


def sick_run(count: int = 150, stalled: bool = True) -> list[Snapshot]:
    """All failures in one: a stall from the start, a blow-up, an infinite loss at step 120, and what the rows say."""
    t = np.arange(1, count + 1)
    rows = noisy_run(count)
    if stalled:
        rows["context_share"] = 0.5 * np.exp(-np.minimum(t, 40) * 0.4)[:, None]
        rows["token_similarity"] = np.ones((count, LAYERS))
        rows["grad_sq"] = np.ones((count, LAYERS)) * np.logspace(-8, 0, LAYERS)
    rows["norm_input_msq"] = 1e-3 * t[:, None] ** np.array([1.0, 2, 4, 5])
    rows["learning_rate"] = np.full((count, 1), 1e-3)
    rows["skipped_steps"] = np.zeros((count, 1))
    rows["pretrained"] = np.zeros((count, 1))
    for name, level in (("loss", 3.1), ("unigram_loss", 3.1), ("bigram_loss", 2.4), ("uniform_loss", 5.5)):
        rows[name] = np.full((count, 1), level)
    rows["loss"][119:120] = np.inf
    rows["rank_weight_spread"][99:, 2] = 0.1
    rows["intended_update_sq"][:, 1] = 0
    rows["output_change_kl"][139:] *= 100
    rows["predicted_loss_change"][139:] *= -1
    rows["total_grad_sq"] *= np.exp(3 * np.clip(t - 130, 0, 8))[:, None]
    rows["activation_max"] = np.full((count, LAYERS), 3e4)
    rows["attention_logit_max"] = 1e-3 * t[:, None] ** np.array([1.0, 2, 4, 5])
    rows["range_used"] = np.log(rows["activation_max"] / 65504)
    return make_series(rows)


def sick_loss(count: int = 1600) -> list[Snapshot]:
    """Four failures of the loss in one: flat at 7 nats, a spike at step 1400, and from 1500 on other data and 700 nats;
    a log Z that drifts off, and units that die at step 200."""
    log_z = 0.05 * np.arange(1, count + 1)
    loss, unigram = 7 * np.exp(np.random.default_rng(1).normal(0, 0.01, (2, count)))
    loss[:5] = [10, 9, 8, 7.5, 7.2]
    loss[1399:1405] *= 2
    loss[1499:] *= 100
    unigram[1499:] += 1
    units = np.repeat([[0.1], [0.9]], [199, count - 199], axis=0) * np.ones(LAYERS)
    return make_series(
        {
            "loss": loss,
            "learning_rate": np.full(count, 1e-3),
            "unigram_loss": unigram,
            "log_z_msq": log_z**2,
            "dead_unit_share": units,
            "saturated_unit_share": 0 * units,
        }
    )


def sick(make: Make) -> list[Snapshot]:
    """A stall explains a stream that grows, so the blow-up comes without one."""
    if make in (*OF_THE_LOSS, LogitDrift, DeadUnits):
        return sick_loss()
    return sick_run(stalled=make is not ResidualBlowup)


def unread(snapshot: Snapshot) -> Snapshot:
    return Snapshot(snapshot.step, snapshot.time, np.full_like(snapshot.values, np.nan), snapshot.layout)


@every_detector
def test_it_alerts_on_the_sick_run(make: Make) -> None:
    assert {a.detector for a in alerts_of(make(), sick(make))} == {make().name}


@every_detector
def test_it_is_silent_on_a_noisy_healthy_run(make: Make) -> None:
    rows = noisy_run(200)
    rows["context_share"] *= 0.5
    rows["output_change_kl"] *= 0.5  # a nat in one update is no health
    rows["skipped_steps"] = np.zeros((200, 1))
    assert alerts_of(make(), make_series(rows)) == []


@every_detector
def test_it_scores_each_site_of_its_first_need_and_0_while_warming_up(make: Make) -> None:
    detector = make()
    first, *_ = sick_run()
    score = detector.score(first)
    assert score.dtype == np.float32
    assert score.tolist() == [0] * len(first.layout.sites_of(detector.needs[0]))


@every_detector
def test_steps_at_which_nothing_was_read_leave_its_state_alone(make: Make) -> None:
    """The same alerts at the same steps with an unread snapshot before every one."""
    plain = sick(make)
    mixed = [either for snapshot in plain for either in (unread(snapshot), snapshot)]
    assert alerts_of(make(), mixed) == alerts_of(make(), plain)


@every_detector
def test_a_part_that_was_not_read_changes_no_score(make: Make) -> None:
    detector = make()
    for snapshot in sick_run(100):
        before = detector.score(snapshot)
        assert detector.score(unread(snapshot)).tolist() == before.tolist()


@every_detector
def test_the_same_run_gives_the_same_alerts(make: Make) -> None:
    assert alerts_of(make(), sick(make)) == alerts_of(make(), sick(make))


@every_detector
def test_it_leaves_the_snapshot_as_it_was(make: Make) -> None:
    detector = make()
    for snapshot in sick(make):
        before = copy.copy(snapshot.values)
        detector.score(snapshot)
        np.testing.assert_array_equal(snapshot.values, before)


@every_detector
@pytest.mark.parametrize("value", [np.inf, 0.0, 3e38, 1e-45])
def test_no_value_makes_it_fail(make: Make, value: float) -> None:
    rows = noisy_run(120)
    for row in rows.values():
        row[60:] = value
    alerts_of(make(), make_series(rows))


@every_detector
def test_a_layout_without_its_statistics_is_silent(make: Make) -> None:
    assert alerts_of(make(), make_series({"step_seconds": np.ones(60)})) == []


@every_detector
def test_a_changed_model_is_judged_afresh(make: Make) -> None:
    before, after = sick_run(60), make_series({k: v[:, :1] for k, v in noisy_run(60).items()}, first=61)
    detector = make()
    for snapshot in [*before, *after]:
        assert len(detector.score(snapshot)) == len(snapshot[detector.needs[0]])


@every_detector
def test_its_needs_are_in_the_catalog_and_its_runbook_exists(make: Make) -> None:
    detector = make()
    assert set(detector.needs) <= set(STATISTICS)
    page = resources.files("stabmon.detectors") / "runbooks" / f"{detector.name}.md"
    assert page.read_text().startswith(f"# {detector.name}: ")


@every_detector
def test_its_first_line_follows_the_name_of_the_run(make: Make) -> None:
    for alert in alerts_of(make(), sick(make)):
        assert alert.action.startswith(("is ", "has ", "will "))
        assert "\n" not in alert.action
        assert alert.remedies or alert.state == "cleared"


def test_every_detector_of_the_package_is_a_default_one() -> None:
    modules = [import_module(f"stabmon.detectors.{m.name}") for m in pkgutil.iter_modules(stabmon.detectors.__path__)]
    classes = {
        kind
        for module in modules
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and hasattr(kind, "explain")
    }
    assert classes == set(KINDS)
