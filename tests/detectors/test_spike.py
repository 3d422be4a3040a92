"""Spikes at their step; outliers, known changes and noise of every kind silent."""

from collections.abc import Callable

import numpy as np
import pytest

from stabmon.detectors import Informed
from stabmon.detectors.alarm import Alarm
from stabmon.detectors.arrays import Floats
from stabmon.detectors.rises import Rises
from stabmon.detectors.spike import Spike
from stabmon.detectors.thresholds.loss import RUN_LENGTH
from stabmon.records import BATCH_SIZE, EVALUATION, RESUME, Event
from tests.detectors.losses import autocorrelated, learning
from tests.detectors.series import alerts_of, make_series, told

SPIKE = np.exp(-np.arange(40) / 10)
POINTS = 20_000


def said(loss: Floats, **more: Floats) -> list[tuple[int, str]]:
    return told(alerts_of(Spike(), make_series({"loss": loss, **more})))


def spiked(height: float, at: int = 600, noise: float = 0.02) -> Floats:
    """A rise of ln loss by `height` that decays over 10 points."""
    loss = learning(900, noise)
    loss[at : at + 40] *= np.exp(height * SPIKE)
    return loss


def test_a_doubled_loss_is_told_at_its_second_point() -> None:
    (alert, end) = alerts_of(Spike(), make_series({"loss": spiked(0.7)}))
    assert (alert.step, alert.severity, alert.since) == (602, "warning", 602)
    assert alert.evidence["expected_loss"] == pytest.approx(2.35, rel=0.03)
    assert end.state == "cleared"


def test_a_rise_of_a_tenth_that_lasts_is_told_by_its_ranks_within_twenty_points() -> None:
    """Five standard deviations, under the jump's eight."""
    loss = learning(900)
    loss[600:660] *= np.exp(0.1)
    ((step, severity), *_) = said(loss)
    assert severity == "warning"
    assert 602 < step <= 620


def test_a_rise_too_small_to_matter_is_silent() -> None:
    """Ten standard deviations, but 2 % of the loss."""
    loss = learning(900, noise=0.002)
    loss[600:660] *= 1.02
    assert said(loss) == []


def test_one_bad_batch_however_bad_is_silent() -> None:
    loss = learning(900)
    loss[300::97] *= 30
    assert said(loss) == []


def test_a_fall_is_no_spike() -> None:
    loss = learning(900)
    loss[600:] *= 0.5
    assert said(loss) == []


def test_a_level_that_stays_is_told_once_and_learnt_after_64_points() -> None:
    """Steps 502 to 565 are the spike, and ten quiet ones clear it."""
    loss = learning(900, noise=0.005)
    loss[500:] *= 1.6
    assert said(loss) == [(502, "warning"), (575, "cleared")]


def test_a_second_spike_is_told_again() -> None:
    loss = spiked(0.7, at=500)
    loss[700:740] *= np.exp(0.7 * SPIKE)
    assert [step for step, what in said(loss) if what == "warning"] == [502, 702]


def test_a_jump_of_the_learning_rate_explains_a_rise() -> None:
    loss, rate = learning(900), np.full(900, 1e-4)
    loss[600:660] *= 1.3
    rate[600:] = 1e-3
    assert said(loss, learning_rate=rate) == []
    assert said(loss, learning_rate=np.full(900, 1e-4))[0] == (602, "warning")


def test_a_smooth_schedule_explains_nothing() -> None:
    rate = 1e-3 * np.cos(np.linspace(0, np.pi / 2 - 0.01, 900))
    assert said(spiked(0.7), learning_rate=rate)[0] == (602, "warning")


def test_it_says_that_the_learning_rate_did_not_jump_where_it_knows() -> None:
    snapshots = make_series({"loss": spiked(0.7), "learning_rate": np.full(900, 3e-4)})
    (first, _) = alerts_of(Spike(), snapshots)
    assert first.ruled_out == (
        "one bad batch (two of three losses are high)",
        "a jump of the learning rate (3e-4, as before)",
    )


@pytest.mark.parametrize(("kind", "alerts"), [(BATCH_SIZE, 0), (RESUME, 1), (EVALUATION, 1)])
def test_another_batch_size_explains_a_rise_and_neither_a_resume_nor_an_evaluation_does(kind: str, alerts: int) -> None:
    alarm = Alarm(Spike(), "run")
    assert isinstance(alarm.detector, Informed)
    found = []
    for snapshot in make_series({"loss": spiked(0.7)}):
        if snapshot.step == 601:
            alarm.notice(Event(601, 0.0, kind, {}))
        found += [alert for alert in alarm.judge(snapshot) if alert.state == "raised"]
    assert len(found) == alerts


def test_the_first_200_steps_are_silent() -> None:
    loss = learning(199)
    loss[150:170] *= 3
    assert said(loss) == []


@pytest.mark.parametrize("scale", [1e-3, 7.0, 1e6])
def test_the_scale_of_the_loss_changes_nothing(scale: float) -> None:
    assert said(scale * spiked(0.7)) == said(spiked(0.7)) != []


def test_a_constant_added_to_the_loss_does_not_hide_a_spike_that_matters() -> None:
    """Noise and spike shrink alike."""
    assert said(1 + spiked(0.7))[0] == said(spiked(0.7))[0]


def test_missing_and_infinite_points_change_nothing() -> None:
    loss = spiked(0.7)
    holes = np.insert(loss, [100, 300, 601], [np.inf, np.nan, np.nan])
    steps = np.array([step for step, _ in said(holes)])
    assert (steps - [step for step, _ in said(loss)]).tolist() == [3, 3]


NOISES: dict[str, Callable[[np.random.Generator], Floats]] = {
    "Gaussian": lambda rng: 0.05 * rng.normal(size=POINTS),
    "t3": lambda rng: 0.03 * rng.standard_t(3, POINTS),
    "autocorrelated": lambda rng: autocorrelated(0.03 * rng.normal(size=POINTS)),
    "log-normal": lambda rng: 0.03 * rng.lognormal(0, 0.7, POINTS),
}


def opened(logs: Floats) -> int:
    """Rises that are told of, both tests together."""
    rises, count = Rises(), 0
    for step, z in enumerate(logs.tolist(), 1):
        before = rises.open
        rises.see(step, z, float("nan"))
        count += before is None and rises.open is not None
    return count


@pytest.mark.parametrize("noise", NOISES)
def test_points_between_false_alarms_are_as_promised(noise: str) -> None:
    """At one in 1e5 points two in 20,000 come once in sixty times."""
    assert POINTS == 0.2 * RUN_LENGTH
    assert opened(np.log(learning(POINTS, 0.0)) + NOISES[noise](np.random.default_rng(3))) <= 1
