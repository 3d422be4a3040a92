"""Updates that move the output too far are told of in their own step; noisy trust ratios are not believed."""

import numpy as np
import pytest

from stabmon.detectors.arrays import Floats
from stabmon.detectors.gradient_spike import GradientSpike
from stabmon.detectors.spike import Spike
from stabmon.detectors.update_shock import UpdateShock
from stabmon.records import Alert, Snapshot
from tests.detectors.series import alerts_of, make_series, placed, told

EVERY = 10
COUNT = 60
"""Readings, at steps 10, 20, ..., 600."""
SHOCK = 400


def at(step: int) -> int:
    return step // EVERY - 1


class Run:
    """Ordinary readings of a run with KL about .006, whose trust ratios are all over the place."""

    def __init__(self, kl: float = 6e-3, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.kl = np.asarray(kl * np.exp(rng.normal(0, 0.5, COUNT)))
        self.predicted = rng.normal(-0.008, 0.006, COUNT)
        self.actual = self.predicted + self.kl
        self.rate = np.full(COUNT, 1e-3)
        self.more: dict[str, Floats] = {}

    def update(self, step: int, kl: float, predicted: float, actual: float) -> None:
        self.kl[at(step)], self.predicted[at(step)], self.actual[at(step)] = kl, predicted, actual

    def snapshots(self) -> list[Snapshot]:
        rows = {
            "output_change_msq": self.kl / 2,
            "output_msq": np.ones(COUNT),
            "output_change_kl": self.kl,
            "actual_loss_change": self.actual,
            "predicted_loss_change": self.predicted,
            "learning_rate": self.rate,
        }
        return make_series(rows | self.more, first=EVERY, every=EVERY)

    def alerts(self) -> list[Alert]:
        return alerts_of(UpdateShock(), self.snapshots())

    def said(self) -> list[tuple[int, str]]:
        return told(self.alerts())


def test_a_step_that_raises_the_loss_by_over_a_nat_is_critical_in_its_own_step() -> None:
    """Measured, learning rate x30: KL 1.2, trust ratio -2.5."""
    run = Run()
    run.update(SHOCK, kl=1.2, predicted=-0.42, actual=1.05)
    run.rate[at(SHOCK)] = 3e-2
    first, end = run.alerts()
    assert (first.step, first.severity, first.since) == (SHOCK, "critical", SHOCK)
    assert first.evidence["trust_ratio"] == pytest.approx(-2.5)
    assert first.evidence["usual output_change_kl"] == pytest.approx(6e-3, rel=0.5)
    assert first.cause == "The learning rate went from 1e-3 to 3e-2."
    assert end.state == "cleared"


def test_the_same_size_is_a_warning_where_the_loss_did_not_rise_or_no_fall_was_promised() -> None:
    run = Run()
    run.update(SHOCK, kl=1.8, predicted=-1.0, actual=-0.2)
    assert run.said()[0] == (SHOCK, "warning")
    run.update(SHOCK, kl=1.8, predicted=0.1, actual=0.5)
    assert run.said()[0] == (SHOCK, "warning")
    run.update(SHOCK, kl=1.8, predicted=np.nan, actual=np.nan)
    (first, _) = run.alerts()
    assert (first.step, first.severity) == (SHOCK, "warning")
    assert first.ruled_out[0] == "a jump of the learning rate: it was 1e-3 at the reading before"
    assert first.ruled_out[1].startswith("a slow drift: the median of the eight readings before it is 0.00")


def of_adam_alone(alert: Alert) -> list[str]:
    """Sentences that take the optimizer for Adam, which a run at level light does not tell."""
    said = (part for text in (alert.cause, *alert.remedies) for part in text.split(". "))
    words = ("beta2", "second moment", "Adam")
    return [part for part in said if any(word in part for word in words) and "ith Adam" not in part]


def test_where_the_optimizer_is_not_known_what_holds_of_adam_alone_is_said_to() -> None:
    run = Run()
    run.update(SHOCK, kl=1.8, predicted=-1.0, actual=-0.2)
    shock, first = run.alerts()[0], first_updates(1.25, "post")[0]
    rising = np.ones(400)
    rising[300:] = 5
    spikes = alerts_of(GradientSpike(), make_series({"total_grad_sq": rising}))
    losses = alerts_of(Spike(), make_series({"loss": rising * np.exp(np.random.default_rng(0).normal(0, 0.02, 400))}))
    told_of = [shock, first, spikes[0], losses[0]]
    assert [alert.detector for alert in told_of] == ["update_shock", "update_shock", "gradient_spike", "spike"]
    assert [of_adam_alone(alert) for alert in told_of] == [[], [], [], []]
    assert "with Adam, a second moment that lags behind" in shock.cause


def after(shock: Floats, losses: Floats, unigram: Floats | float = np.nan) -> list[tuple[int, str]]:
    """What is said of 60 readings with KL .006 in 600 steps, of which that of step 400 (KL, promised, actual) is not
    ordinary; losses of all steps.
    """
    read = np.arange(1, 601) % EVERY == 0
    kl, predicted, actual = np.full((3, 600), [[6e-3], [-8e-3], [-2e-3]])
    kl[SHOCK - 1], predicted[SHOCK - 1], actual[SHOCK - 1] = shock
    rows = {
        "output_change_msq": np.where(read, kl / 2, np.nan),
        "output_msq": np.where(read, 1, np.nan),
        "output_change_kl": np.where(read, kl, np.nan),
        "actual_loss_change": np.where(read, actual, np.nan),
        "predicted_loss_change": np.where(read, predicted, np.nan),
        "loss": losses,
        "unigram_loss": np.broadcast_to(unigram, 600),
    }
    return told(alerts_of(UpdateShock(), make_series(rows)))


FAST = np.array([0.346, -0.0443, 0.1905])
"""Measured: a healthy vision transformer, 20 steps after its plateau, whose losses were .86 to 1.31 in the eight steps
before and .88 to 1.34 in the five after.
"""


def test_a_smaller_rise_is_critical_once_every_loss_since_is_over_all_eight_before() -> None:
    losses = np.tile([1.06, 1.31, 0.86, 1.14], 150)
    losses[SHOCK:] = 1.33  # from the step after it on
    assert after(FAST, losses)[:2] == [(SHOCK, "warning"), (SHOCK + EVERY, "critical")]
    losses[SHOCK + EVERY - 3] = 1.3  # one of the last five before the next reading
    assert after(FAST, losses) == [(SHOCK, "warning"), (SHOCK + 10 * EVERY, "cleared")]


def test_a_large_update_while_the_loss_falls_fast_is_told_only_if_losses_rise_over_those_before() -> None:
    """By 20 % in twelve steps, up to the update; 11 % are ordinary."""
    batches, t = np.tile([1.06, 1.31, 0.86, 1.14], 150), np.minimum(np.arange(600) - SHOCK, 0)
    fast, slow = batches * 0.80 ** (t / 12), batches * 0.89 ** (t / 12)
    assert after(FAST, fast) == []
    assert after(FAST, slow)[0] == (SHOCK, "warning")
    assert after(FAST * [3, 1, 6], fast)[0] == (SHOCK, "critical")  # by 1.1 nats
    fast[SHOCK:] = 3
    assert after(FAST, fast)[0] == (SHOCK + EVERY, "critical")


def test_a_loss_that_is_back_by_the_next_reading_or_a_run_of_hard_batches_leaves_it_a_warning() -> None:
    losses = np.tile([1.06, 1.31, 0.86, 1.14], 150)
    losses[SHOCK : SHOCK + 4] = 1.6
    assert after(FAST, losses) == [(SHOCK, "warning"), (SHOCK + 10 * EVERY, "cleared")]
    harder = np.where(np.arange(600) < SHOCK, 0.0, 0.5)
    losses = np.tile([1.06, 1.31, 0.86, 1.14], 150) + harder
    assert after(FAST, losses)[1] == (SHOCK + EVERY, "critical")
    assert after(FAST, losses, unigram=2.3 + harder)[1] == (SHOCK + 10 * EVERY, "cleared")
    assert after(FAST, np.full(600, np.nan))[1] == (SHOCK + 10 * EVERY, "cleared")


@pytest.mark.parametrize("worse", [np.inf, 3.0])
def test_losses_that_are_no_numbers_any_more_count_as_higher(worse: float) -> None:
    losses = np.full(600, 1.0)
    losses[SHOCK:] = worse
    assert (SHOCK + EVERY, "critical") in after(FAST, losses)


@pytest.mark.parametrize(
    ("usual", "kl", "expected"),
    [
        (6e-3, 0.15, 0),
        (6e-3, 0.25, 1),
        (1e-4, 0.09, 0),
        (1e-4, 0.11, 1),
        (4e-3, 0.10, 0),
        (4e-3, 0.15, 1),
        (0.08, 0.3, 0),
        (0.08, 0.6, 1),
    ],
)
def test_the_limit_is_a_fifth_of_a_nat_or_thirty_times_the_usual_or_five_times_in_hot_runs(
    usual: float, kl: float, expected: int
) -> None:
    run = Run(usual)
    run.kl[:] = usual
    run.predicted = -np.abs(run.predicted)
    run.actual = 0.9 * run.predicted
    run.update(SHOCK, kl=kl, predicted=-0.1, actual=-0.09)
    assert len([alert for alert in run.alerts() if alert.state == "raised"]) == expected


@pytest.mark.parametrize("seed", range(5))
def test_healthy_runs_are_silent_though_a_third_of_their_trust_ratios_are_under_three_tenths(seed: int) -> None:
    run = Run(seed=seed)
    assert (run.actual / run.predicted < 0.3).mean() > 0.3
    assert run.said() == []


def test_one_low_trust_ratio_is_no_alarm_and_two_of_three_large_updates_with_one_are() -> None:
    run = Run()
    run.update(400, kl=0.06, predicted=-0.07, actual=-0.01)
    assert run.said() == []
    run.update(420, kl=0.06, predicted=-0.07, actual=-0.01)
    assert run.said()[0] == (420, "warning")
    run.update(420, kl=0.06, predicted=-0.07, actual=-0.05)
    assert run.said() == []


def test_large_updates_that_keep_too_little_for_long_are_the_edge() -> None:
    """KL of .06 where .006 was usual, of which .6 is kept: the third of five readings tells."""
    run = Run()
    for step in range(400, 500, EVERY):
        run.update(step, kl=0.06, predicted=-0.15, actual=-0.09)
    assert run.said()[0] == (420, "info")
    for step in range(400, 500, EVERY):
        run.update(step, kl=0.06, predicted=-0.15, actual=-0.14)
    assert run.said() == []


def test_the_first_thirty_steps_are_neither_judged_nor_learnt_from() -> None:
    run = Run()
    for step in (10, 20, 30):
        run.update(step, kl=0.7, predicted=-1.0, actual=0.5)
    assert run.said() == []
    run.update(SHOCK, kl=0.25, predicted=-0.1, actual=0.1)
    assert run.said()[0] == (SHOCK, "warning")


def test_a_shock_does_not_raise_the_bar_for_the_next() -> None:
    run = Run()
    for step in range(200, 400, 20):
        run.update(step, kl=0.5, predicted=-0.1, actual=0.1)
    run.update(SHOCK, kl=0.25, predicted=-0.1, actual=0.1)
    detector = UpdateShock()
    assert [detector.score(s)[0] >= 1 for s in run.snapshots()][at(SHOCK)]


def test_on_a_plateau_a_large_update_is_told_of_only_if_it_overshot() -> None:
    run = Run()
    run.more = {"context_share": np.full(COUNT, 1e-3)}
    run.update(SHOCK, kl=1.0, predicted=0.02, actual=1.0)
    assert run.said() == []
    run.update(SHOCK, kl=1.0, predicted=-0.02, actual=0.9)
    assert run.said()[0] == (SHOCK, "warning")
    run.update(SHOCK, kl=1.0, predicted=-0.02, actual=1.1)
    assert run.said()[0] == (SHOCK, "critical")


def test_updates_that_grow_as_a_plateau_ends_are_held_against_those_that_follow() -> None:
    """Measured, handwritten digits: KL .003 on the plateau and .03 to .13 after it, keeping too little twice."""
    run = Run(kl=3e-3)
    run.more = {"context_share": np.where(np.arange(COUNT) < at(SHOCK), 0.02, 0.5)}
    for step, kl in ((400, 0.04), (410, 0.06), (420, 0.13), (430, 0.09)):
        run.update(step, kl=kl, predicted=-0.06, actual=0.0)
    assert run.said() == []
    run.more = {}
    assert run.said()[0] == (410, "warning")


def test_before_eight_readings_a_nat_is_a_shock() -> None:
    run = Run()
    run.more = {"context_share": np.where(np.arange(COUNT) < at(SHOCK) - 3, 0.02, 0.5)}
    run.update(SHOCK, kl=0.9, predicted=-0.5, actual=0.5)
    assert run.said() == []
    run.update(SHOCK, kl=2.2, predicted=-0.8, actual=1.9)
    (first, _) = run.alerts()
    assert (first.step, first.severity) == (SHOCK, "critical")
    assert "usual output_change_kl" not in first.evidence
    run.update(SHOCK, kl=2.2, predicted=-0.8, actual=-0.1)
    assert "moved its predictions by 2.2 nats. Keep" in run.alerts()[0].action


def test_where_no_classes_are_predicted_the_square_of_the_output_change_stands_for_kl() -> None:
    run = Run()
    run.update(SHOCK, kl=1.8, predicted=-1.0, actual=0.38)
    snapshots = run.snapshots()
    slot = snapshots[0].layout.slots("output_change_kl")[0]
    for snapshot in snapshots:
        snapshot.values[slot] = np.nan
    first, *_ = alerts_of(UpdateShock(), snapshots)
    assert (first.step, first.severity) == (SHOCK, "warning")
    assert "output_change_kl" not in first.evidence
    assert first.evidence["total_output_change_ratio"] == pytest.approx(np.sqrt(0.9))


def test_an_infinite_divergence_is_a_shock() -> None:
    run = Run()
    run.update(SHOCK, kl=np.inf, predicted=-1.0, actual=np.inf)
    assert run.said()[0] == (SHOCK, "critical")


def first_updates(change: float, placement: str, **more: float) -> list[Alert]:
    """Fifty steps whose first changes the output by that, in a model whose norms sit there."""
    steps = np.arange(1, 51)
    rows = {
        "norm_input_msq": np.ones((50, 2)),
        "output_change_msq": np.where(steps == 1, change**2, 1e-4),
        "output_msq": np.ones(50),
        "output_change_kl": np.full(50, 1e-3),
        "learning_rate": np.full(50, 1e-3),
    }
    snapshots = make_series(rows | {name: np.full(50, value) for name, value in more.items()})
    return alerts_of(UpdateShock(), placed(snapshots, placement))


def test_a_first_update_of_a_post_ln_model_by_more_than_half_the_output_is_an_info() -> None:
    post, *_ = first_updates(1.25, "post")
    assert (post.step, post.severity) == (1, "info")
    assert "Restart with a warm-up" in post.action


@pytest.mark.parametrize(
    ("change", "placement", "more"),
    [(0.8, "pre", {}), (0.14, "post", {}), (0.009, "post", {}), (1.25, "", {}), (1.25, "post", {"pretrained": 1.0})],
    ids=["Pre-LN", "DeepNorm", "with warm-up", "placement unknown", "pretrained"],
)
def test_other_first_updates_are_silent(change: float, placement: str, more: dict[str, float]) -> None:
    assert first_updates(change, placement, **more) == []


def test_a_run_that_is_stopped_and_shown_its_last_2000_steps_says_the_same() -> None:
    """Read every 50 steps: 40 readings, of which it needs 32."""
    rng = np.random.default_rng(3)
    kl = 6e-3 * np.exp(rng.normal(0, 0.5, 120))
    kl[[60, 100]] = [1.8, 0.3]
    rows = {
        "output_change_msq": kl / 2,
        "output_msq": np.ones(120),
        "output_change_kl": kl,
        "actual_loss_change": np.full(120, 1.2),
        "predicted_loss_change": np.full(120, -0.1),
    }
    snapshots = make_series(rows, first=50, every=50)
    whole = alerts_of(UpdateShock(), snapshots)
    resumed = alerts_of(UpdateShock(), snapshots[60:])  # stopped after reading 100
    assert [step for step, what in told(whole) if what == "critical"] == [3050, 5050]
    assert [alert for alert in resumed if alert.step > 5000] == [alert for alert in whole if alert.step > 5000]
