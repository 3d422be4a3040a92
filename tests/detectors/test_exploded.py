"""Two points above all that was known: critical at once; one point never."""

import numpy as np
import pytest

from stabmon.detectors.arrays import Floats
from stabmon.detectors.exploded import Exploded
from tests.detectors.losses import learning
from tests.detectors.series import alerts_of, make_series, told


def said(loss: Floats) -> list[tuple[int, str]]:
    return told(alerts_of(Exploded(), make_series({"loss": loss})))


def risen(factor: float, points: int = 100, noise: float = 0.01) -> Floats:
    loss = learning(500, noise, first=4.0)
    loss[300 : 300 + points] *= factor
    return loss


def test_the_second_point_at_ten_times_the_level_is_critical() -> None:
    """Progress is ln 2, so the line is ln 5."""
    (alert, *_) = alerts_of(Exploded(), make_series({"loss": risen(10)}))
    assert (alert.step, alert.severity, alert.since) == (302, "critical", 301)
    assert alert.evidence["loss"] / alert.evidence["best_loss"] == pytest.approx(10, rel=0.1)
    # What step 300 made of the weights shows in the loss of 301: a checkpoint of 300 has it.
    assert "go back to a checkpoint before step 300;" in alert.action


def test_four_times_the_level_is_left_to_the_slower_rule() -> None:
    assert said(risen(4)) == []


def test_one_point_however_high_is_a_bad_batch() -> None:
    assert said(risen(1e6, points=1)) == []


def test_noise_widens_the_line() -> None:
    """Noise of .3: 20 standard deviations are e^6 = 403."""
    assert said(risen(6)) == [(302, "critical"), (410, "cleared")]
    assert said(risen(6, noise=0.3)) == []


def swings(high: float) -> Floats:
    """As recorded: 13.9 at the start, then swings by a factor of two about 15, and two points that are higher."""
    loss = np.exp(np.random.default_rng(0).normal(2.7, 0.75, 400)).clip(6, 135)
    loss[:30] = 13.9
    loss[200:202] = 700, high
    return loss


def test_two_points_over_ten_times_the_start_are_critical_whatever_the_noise() -> None:
    """20 standard deviations are a factor of a million here."""
    assert said(swings(140)) == [(202, "critical"), (212, "cleared")]
    assert said(swings(138)) == []


def test_a_first_loss_that_is_low_by_chance_is_not_the_start() -> None:
    """Two points in a row are over ten times it all the time."""
    loss = 3 * np.exp(np.random.default_rng(0).normal(0, 0.4, 400))
    loss[0] = 0.15
    assert (np.minimum(loss[250:-1], loss[251:]) > 1.5).sum() > 100
    assert said(loss) == []


def test_a_start_that_rises_a_thousandfold_is_critical_within_eight_points() -> None:
    """Recorded: the whole log of a run that ended at its tenth step."""
    loss = [0.339, 0.335, 14.0, 54.6, 204.0, 1.06e4, 185.0, 3.48e3, 1.02e6, 2.08e26]
    assert said(np.array(loss)) == [(4, "critical")]


def test_a_warm_up_that_overshoots_ninefold_and_recovers_is_silent() -> None:
    """As recorded: .65 up to 5.7 and back."""
    t = np.arange(100)
    assert said(0.65 * (1 + 7.8 * np.exp(-(((t - 40) / 12) ** 2)))) == []


@pytest.mark.parametrize("scale", [1e-3, 7.0, 1e6])
def test_the_scale_of_the_loss_changes_nothing(scale: float) -> None:
    assert said(scale * risen(10)) == said(risen(10)) != []


def test_the_level_is_not_learnt_from_the_explosion() -> None:
    """It is told once, and ends when the loss is back."""
    assert said(risen(50, points=150)) == [(302, "critical"), (460, "cleared")]
