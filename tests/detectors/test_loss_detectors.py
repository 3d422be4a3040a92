"""What the detectors of the loss keep together: silent on healthy runs of every shape, the same after a resume."""

from collections.abc import Callable

import numpy as np
import pytest

from stabmon.detectors import loss_detectors
from stabmon.detectors.alarm import Alarm
from stabmon.detectors.arrays import Floats
from stabmon.records import Snapshot
from tests.detectors.losses import autocorrelated, learning
from tests.detectors.series import make_series

FIRST, LAST = 64, 2000
"""Rows that a resume shows of any run, however long: the first ones, for where it began, and its last."""


def judged(snapshots: list[Snapshot], names: tuple[str, ...] | None = None) -> list[tuple[int, str, str, str]]:
    """(step, detector, state, severity), infos left out."""
    alarms = [Alarm(d, "run") for d in loss_detectors() if names is None or d.name in names]
    alerts = [alert for snapshot in snapshots for alarm in alarms for alert in alarm.judge(snapshot)]
    return [(a.step, a.detector, a.state, a.severity) for a in alerts if a.severity != "info"]


def times(noise: Callable[[np.random.Generator], Floats], count: int = 2500) -> Floats:
    return learning(count, noise=0.0) * np.exp(noise(np.random.default_rng(5)))


def mixup() -> Floats:
    """Each batch's loss depends on how it was mixed."""
    share = np.random.default_rng(0).beta(0.2, 0.2, 2500)
    return learning(2500) * (1 + 1.5 * np.minimum(share, 1 - share))


def outliers() -> Floats:
    loss = learning(2500)
    loss[200::53] *= 8
    return loss


def batch_norm() -> Floats:
    """As recorded: 10.9, down to 8.2 by step 10, back to about 12, then it learns."""
    t = np.arange(2500)
    start = np.interp(t, [0, 9, 24, 160, 300], [10.9, 8.2, 12.0, 11.0, 7.0])
    rest = np.where(t > 300, 2 + 5 * (np.maximum(t, 300) / 300) ** -0.7, start)
    return np.asarray(rest * np.exp(np.random.default_rng(0).normal(0, 0.06, 2500)))


t = np.arange(1.0, 2501)
HEALTHY = {
    "a power law": 11 * t**-0.3,
    "a line": 5 - t / 1000,
    "a low learning rate": (11 - 1.1 * t / 20_000) * np.exp(np.random.default_rng(0).normal(0, 0.001, 2500)),
    "a constant": np.full(2500, 2.0),
    "an exponential": 0.1 + 3 * np.exp(-t / 300),
    "steps": np.repeat(np.arange(25, 0, -1.0), 100),
    "Gaussian noise": times(lambda rng: rng.normal(0, 0.05, 2500)),
    "t3 noise": times(lambda rng: 0.03 * rng.standard_t(3, 2500)),
    "autocorrelated noise": times(lambda rng: autocorrelated(rng.normal(0, 0.03, 2500))),
    "log-normal noise": times(lambda rng: 0.03 * rng.lognormal(0, 0.7, 2500)),
    "rounded to two digits": np.round(learning(2500), 2),
    "mixup": mixup(),
    "one bad batch now and then": outliers(),
    "batch norm's start": batch_norm(),
    "learnt by heart": 3 * np.exp(-t / 200) + 1e-4 * np.exp(np.random.default_rng(0).normal(0, 0.5, 2500)),
}


@pytest.mark.parametrize("shape", HEALTHY)
def test_a_healthy_loss_is_silent(shape: str) -> None:
    assert judged(make_series({"loss": HEALTHY[shape]})) == []


@pytest.mark.parametrize(("factor", "shift"), [(1e-3, 0.0), (1e3, 0.0), (1.0, 0.5)])
@pytest.mark.parametrize("shape", ["mixup", "batch norm's start", "learnt by heart"])
def test_a_healthy_loss_in_other_units_or_with_a_constant_added_is_silent(
    shape: str, factor: float, shift: float
) -> None:
    assert judged(make_series({"loss": factor * HEALTHY[shape][:1200] + shift})) == []


@pytest.mark.parametrize("every", [1, 100])
def test_a_restart_in_the_log_is_silent(every: int) -> None:
    once = make_series({"loss": learning(700)}, first=every, every=every)
    again = make_series({"loss": learning(400, seed=1)}, first=every, every=every)
    assert judged([*once, *again, *once[300:]]) == []


def test_a_loss_scaler_that_overflows_at_first_is_silent() -> None:
    """Of a log that knows nothing of skipped steps: infinite gradients, the loss as it was."""
    loss, square = learning(300), np.full(300, 4.0)
    loss[:12], square[:12] = loss[0], np.inf
    assert judged(make_series({"loss": loss, "total_grad_sq": square})) == []


def test_the_first_100_steps_are_silent_whatever_the_noise() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        loss = 7 * np.exp(-np.arange(100) / 60) * np.exp(rng.normal(0, rng.uniform(0, 0.5), 100))
        assert judged(make_series({"loss": loss})) == []


def eventful(count: int = 3400) -> list[Snapshot]:
    """Spikes at 700 and 2900, a lasting loss from 3100 on, an explosion at 3200, ending in Inf."""
    loss = learning(count)
    for at in (700, 2900):
        loss[at : at + 30] *= np.exp(0.8 * np.exp(-np.arange(30) / 10))
    loss[3100:] *= 4
    loss[3200:] *= 1000
    loss[3350:] = np.inf
    return make_series({"loss": loss, "learning_rate": np.full(count, 1e-3)})


def resumed(
    snapshots: list[Snapshot], at: int, first: int = FIRST, last: int = LAST
) -> list[tuple[int, str, str, str]]:
    """The alerts after a resume at that step, the detectors having been shown the first rows and the last again."""
    shown = [s for s in snapshots[:at] if s.step <= first or s.step > at - last]
    names = ("nonfinite", "exploded", "diverged", "spike")
    return [alert for alert in judged([*shown, *snapshots[at:]], names) if alert[0] > at]


def test_a_resume_that_shows_the_first_64_rows_and_the_last_2000_changes_no_alert() -> None:
    run = eventful()
    uninterrupted = resumed(run, 0, last=0)
    assert {name for _, name, _, _ in uninterrupted} == {"nonfinite", "exploded", "diverged", "spike"}
    for at in (702, 2450, 2902, 2910, 3102, 3112, 3201, 3352):
        assert resumed(run, at) == [alert for alert in uninterrupted if alert[0] > at], at


def test_without_the_first_rows_a_resumed_run_would_take_a_small_rise_for_a_lost_one() -> None:
    """The progress is measured from the first loss: why a resume must show it."""
    loss = learning(2700)
    loss[2500:] *= 1.2
    run = make_series({"loss": loss})
    assert "diverged" not in {name for _, name, _, _ in resumed(run, 2400)}
    assert "diverged" in {name for _, name, _, _ in resumed(run, 2400, first=0)}
