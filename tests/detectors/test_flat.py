"""Stuck near where it began; merely flat; and falling, however slowly."""

import numpy as np
import pytest

from stabmon.detectors.arrays import Floats
from stabmon.detectors.flat import Flat
from tests.detectors.series import alerts_of, make_series, told


def test_100_steps_are_too_few_to_say_anything() -> None:
    assert said(np.full(100, 7.0)) == said(np.full(999, 7.0)) == []


def said(loss: Floats, **steps: int) -> list[tuple[int, str]]:
    return told(alerts_of(Flat(), make_series({"loss": loss}, **steps)))


def plateau(count: int, level: float, first: float = 11.0, noise: float = 0.01) -> Floats:
    """From `first` to `level` within ten points."""
    t = np.arange(count)
    curve = level + (first - level) * np.exp(-t / 3)
    return np.asarray(curve * np.exp(np.random.default_rng(0).normal(0, noise, count)))


def test_a_loss_that_stays_at_two_thirds_of_its_start_is_a_warning_soon_after_step_1000() -> None:
    """Every step logged: looks are 10 % apart, and two must agree after the fall has left the window."""
    ((step, severity), *_) = said(plateau(1500, 7.2))
    assert severity == "warning"
    assert 1000 <= step <= 1100


def test_with_a_point_every_100_steps_it_takes_20_to_60_points() -> None:
    ((step, severity), *_) = said(plateau(100, 7.2, noise=0.003), first=100, every=100)
    assert severity == "warning"
    assert 2000 <= step <= 6000


@pytest.mark.parametrize(
    ("first", "level"), [(0.74, 0.053), (32.0, 5.4), (11.0, 5.5), (3.0, 2.9)], ids=["labels", "CTC", "half", "bytes"]
)
def test_any_other_flat_loss_gets_an_info(first: float, level: float) -> None:
    alerts = alerts_of(Flat(), make_series({"loss": plateau(1500, level, first)}))
    assert {alert.severity for alert in alerts} == {"info"}
    assert 1000 <= alerts[0].step <= 1100
    assert "base rate" in alerts[0].action


def test_a_loss_that_began_above_any_even_guess_is_a_warning_to_cut_the_learning_rate() -> None:
    """As recorded: about 18.7 nats, until the rate is cut; 12.9 nats could be a vocabulary of 400,000."""
    alerts = alerts_of(Flat(), make_series({"loss": plateau(1500, 18.7, 17.7)}))
    assert [alert.severity for alert in alerts] == ["warning"]
    assert "Cut the learning rate" in alerts[0].action
    (alert,) = alerts_of(Flat(), make_series({"loss": plateau(1500, 12.5, 12.9)}))
    assert alert.severity == "warning"
    assert "longer warm-up; unless such a plateau is known to end" in alert.action
    assert [severity for _, severity in known(plateau(1500, 18.7, 17.7), 7.2, 1.5)] == ["critical"]


@pytest.mark.parametrize("level", [6.1, 7.2, 11.0, 12.5])
def test_a_loss_alone_is_never_critical_since_a_plateau_that_ends_looks_the_same(level: float) -> None:
    first = min(level * 1.5, 12.9)
    assert {severity for _, severity in said(plateau(4000, level, first))} == {"warning"}
    assert {severity for _, severity in known(plateau(4000, level, first), level, 1.5)} == {"critical"}


def test_a_log_that_begins_in_the_middle_is_an_info() -> None:
    assert {what for _, what in said(plateau(1500, 7.2), first=5000, every=100)} == {"info"}


def test_a_plateau_that_ends_is_told_to_have_ended() -> None:
    loss = plateau(4000, 7.2)
    loss[1500:] *= (np.arange(1500, 4000) / 1500) ** -0.5
    alerts = alerts_of(Flat(), make_series({"loss": loss}))
    assert [alert.severity for alert in alerts][:2] == ["warning", "info"]
    assert "left its plateau" in alerts[1].action
    assert alerts[-1].state == "cleared"


@pytest.mark.parametrize(
    ("slope", "words"), [(0.0, "does not fall"), (0.004, "does not fall"), (0.014, "falls as step^-0.01")]
)
def test_how_slowly_it_falls_is_told_and_that_it_does_not_where_it_is_less_than_a_hundredth(
    slope: float, words: str
) -> None:
    steps = np.arange(1, 6001, dtype=float)
    (alert, *_) = alerts_of(Flat(), make_series({"loss": 3.0 * steps**-slope}))
    assert alert.severity == "info"
    assert words in alert.action


@pytest.mark.parametrize("exponent", [0.05, 0.1, 0.5])
def test_a_power_law_is_not_flat(exponent: float) -> None:
    t = np.arange(1, 5001)
    assert said(11 * t**-exponent * np.exp(np.random.default_rng(0).normal(0, 0.02, 5000))) == []


def test_a_slow_run_at_a_low_learning_rate_gets_an_info_at_most() -> None:
    """Linear: 10 % in 20,000 steps."""
    t = np.arange(1, 20_001)
    noise = np.exp(np.random.default_rng(0).normal(0, 0.001, 20_000))
    assert {what for _, what in said((11 - 1.1 * t / 20_000) * noise)} <= {"info", "cleared"}


def test_a_rising_loss_is_not_flat() -> None:
    assert said(7 * np.arange(1, 3001) ** 0.15) == []


def test_its_memory_does_not_grow_with_the_run_and_its_verdict_stays() -> None:
    detector = Flat()
    snapshots = make_series({"loss": plateau(20_000, 7.2)})
    scores = [float(detector.score(snapshot)[0]) for snapshot in snapshots]
    assert len(detector._steps) <= 2048
    assert scores[-1] == 1
    assert detector.explain(0).severity == "warning"


@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_a_scale_that_keeps_the_start_within_6_to_20_nats_changes_nothing(scale: float) -> None:
    assert said(scale * plateau(1500, 7.2)) == said(plateau(1500, 7.2))


def known(loss: Floats, unigram: float, gap: float, pretrained: float = 0) -> list[tuple[int, str]]:
    """With what the frequencies alone would score, and what the left neighbour is worth."""
    ones = np.ones(len(loss))
    rows = {"loss": loss, "unigram_loss": unigram * ones, "bigram_loss": (unigram - gap) * ones}
    return told(alerts_of(Flat(), make_series({**rows, "pretrained": pretrained * ones})))


@pytest.mark.parametrize(
    ("first", "level", "unigram", "gap", "pretrained", "worst"),
    [
        (11.0, 7.2, 7.2, 1.5, 0, "critical"),
        (5.5, 3.1, 3.1, 0.7, 0, "warning"),
        (11.0, 7.2, 7.9, 1.5, 0, "info"),
        (11.0, 7.2, 7.2, 0.0, 0, "info"),
        (11.0, 7.2, 7.2, 1.5, 1, "info"),
        (2.5, 2.3, 2.3, np.nan, 0, "warning"),
    ],
    ids=["stuck", "stuck bytes", "below the unigram loss", "nothing to learn", "pretrained", "stuck classes"],
)
def test_the_unigram_loss_decides_where_it_is_known(
    first: float, level: float, unigram: float, gap: float, pretrained: float, worst: str
) -> None:
    ((step, severity), *_) = known(plateau(1500, level, first), unigram, gap, pretrained)
    assert severity == worst
    assert 1000 <= step <= 1200


def test_a_stuck_loss_says_that_it_has_not_converged_and_that_there_is_something_to_learn() -> None:
    ones = np.ones(1500)
    rows = {"loss": plateau(1500, 3.1, 5.5, noise=0.001), "unigram_loss": 3.15 * ones, "bigram_loss": 2.45 * ones}
    first, *_ = alerts_of(Flat(), make_series(rows))
    assert first.ruled_out == (
        "converged (the loss is 0.05 nats better than token frequencies)",
        "nothing to learn (the left neighbour is worth 0.70 nats)",
    )
