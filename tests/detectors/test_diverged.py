"""A loss that goes back up and stays there: at its step; not one that comes back."""

import numpy as np
import pytest

from stabmon.detectors.arrays import Floats
from stabmon.detectors.diverged import Diverged
from tests.detectors.losses import learning
from tests.detectors.series import alerts_of, make_series, told


def said(loss: Floats, **steps: int) -> list[tuple[int, str]]:
    return told(alerts_of(Diverged(), make_series({"loss": loss}, **steps)))


def lost(share: float, at: int = 500, points: int = 300, noise: float = 0.0) -> Floats:
    """A loss of that share of ln(first / best) from point `at` on."""
    loss = learning(900, noise)
    level = np.median(loss[at - 24 : at])
    loss[at : at + points] = level * (loss[0] / level) ** share
    return loss


def test_half_the_progress_lost_is_critical_after_ten_of_twelve_points() -> None:
    """The lower quartile of 12 is the third lowest: two low points of 12 are left when it passes the line."""
    (alert, *_) = alerts_of(Diverged(), make_series({"loss": lost(0.5)}))
    assert (alert.step, alert.severity, alert.since) == (510, "critical", 499)
    assert alert.evidence["progress_lost"] == pytest.approx(0.5, abs=0.01)
    # The loss of 498 is that of the weights after step 497: what step 498 made of them shows from 499 on.
    assert "Go back to a checkpoint before step 498" in alert.action


def test_a_third_of_the_progress_lost_is_silent() -> None:
    assert said(lost(0.33)) == []


@pytest.mark.parametrize("points", [1, 3, 9])
def test_a_loss_that_lasts_less_than_ten_points_is_silent(points: int) -> None:
    assert said(lost(0.8, points=points)) == []


def test_it_clears_once_the_level_is_back_for_ten_points() -> None:
    """Four points of the lower level bring the quartile down, then ten quiet ones."""
    assert said(lost(0.5, points=50)) == [(510, "critical"), (562, "cleared")]


def test_before_step_200_only_a_doubled_loss_is_told_and_as_a_warning() -> None:
    t = np.arange(100)
    start = np.where(t < 30, 10 - 0.1 * t, 7.0)
    assert said(np.where(t < 50, start, 7.0 * 1.55)) == []  # a batch-norm start goes this far
    assert said(np.where(t < 50, start, 7.0 * 2.4)) == [(60, "warning")]


def test_a_loss_that_never_fell_and_rises_is_a_warning_unless_its_weights_had_learnt_before() -> None:
    """A GAN's generator: from .44 up to .83 in 200 steps, and on."""
    loss = np.interp(np.arange(300), [0, 10, 50, 100, 300], [0.445, 0.437, 0.72, 0.62, 1.1])
    assert said(loss) == [(200, "warning")]
    (alert,) = alerts_of(Diverged(), make_series({"loss": loss, "pretrained": np.ones(300)}))
    assert (alert.severity, alert.step) == ("critical", 200)
    assert "all of its progress lost" in alert.action


def came_with(share: float, count: int = 250, noise: float = 0.02) -> dict[str, Floats]:
    """Weights that score 2.35, .26 in ln under the unigram loss, and lose that share of it in their first update."""
    loss = np.full(count, 2.35 * (3.05 / 2.35) ** share)
    loss[0] = 2.35
    loss *= np.exp(np.random.default_rng(0).normal(0, noise, count))
    known = np.arange(count) >= 8  # as live: the unigram loss has to be known first
    return {"loss": loss, "unigram_loss": np.full(count, 3.05), "pretrained": np.where(known, 1.0, 0.0)}


def test_weights_that_had_learnt_before_and_lose_it_at_once_are_told_from_their_first_loss_on() -> None:
    """4 sigma are .08, and 40 % of what they came with .10."""
    warning, critical = alerts_of(Diverged(), make_series(came_with(0.9)))
    assert told([warning, critical]) == [(12, "warning"), (200, "critical")]
    assert (warning.since, warning.evidence["first_loss"]) == (2, pytest.approx(2.35, rel=0.05))
    assert warning.evidence["progress_lost"] == pytest.approx(0.9, abs=0.1)
    assert "Go back to the weights that it began with" in warning.action


def test_a_new_task_that_takes_a_fifth_of_it_is_silent() -> None:
    assert told(alerts_of(Diverged(), make_series(came_with(0.2)))) == []
    assert told(alerts_of(Diverged(), make_series(came_with(0.9) | {"unigram_loss": np.full(250, np.nan)}))) == []


def test_noise_of_any_size_is_silent() -> None:
    """A stationary loss whose points differ by a factor of e either way."""
    rng = np.random.default_rng(0)
    assert said(3 * np.exp(rng.normal(0, 1.0, 3000))) == []
    assert said(3 * np.exp(0.3 * rng.standard_t(3, 3000))) == []


def swinging(factor: float) -> Floats:
    """Noise of 2 %, from point 400 on swings upwards by 60 % and more, and from 600 on all of it that many times."""
    loss = learning(900)
    loss[400:] *= np.exp(np.abs(np.random.default_rng(1).normal(0, 0.6, 500)))
    loss[600:] *= factor
    return loss


def test_swings_that_began_before_the_level_is_lost_do_not_hide_it() -> None:
    """Four of their standard deviations are a factor of 5, and of those before them 8 %."""
    (first, *_) = said(swinging(3.0))
    assert first[1] == "critical"
    assert 605 <= first[0] <= 612


def test_swings_from_the_level_that_was_reached_are_silent() -> None:
    assert said(swinging(1.0)) == []


def test_points_that_were_not_finite_are_not_learnt_from() -> None:
    loss = lost(0.5)
    loss[100:400:7] = np.inf
    assert said(loss)[0] == (510, "critical")


def test_a_step_that_goes_back_begins_another_run() -> None:
    first, second = make_series({"loss": learning(300)}), make_series({"loss": learning(300)})
    assert told(alerts_of(Diverged(), [*first, *second])) == []
    assert told(alerts_of(Diverged(), make_series({"loss": np.concatenate([learning(300), learning(300)])}))) != []


@pytest.mark.parametrize("scale", [1e-3, 7.0, 1e6])
def test_the_scale_of_the_loss_changes_nothing(scale: float) -> None:
    loss = lost(0.5, points=60, noise=0.03)
    assert said(scale * loss) == said(loss) != []


def test_losses_below_zero_are_not_judged() -> None:
    assert said(learning(400) - 5) == []
