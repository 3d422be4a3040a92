"""Lower layers without a gradient: which, where and from when, and what is no fault."""

import numpy as np
import pytest

from stabmon.detectors.arrays import Floats
from stabmon.detectors.dead_layers import DeadLayers
from stabmon.records import Snapshot
from tests.detectors.series import alerts_of, make_series, placed, told

NAN = float("nan")
LAYERS = 6


def a_run(
    ratios: Floats, *, placement: str = "post", epsilon: Floats | None = None, every: int = 1, **more: Floats
) -> list[Snapshot]:
    """ratios: each block's gradient over the last one's, [steps, 6]; it learns, and s is .3."""
    count = len(ratios)
    rows: dict[str, Floats] = {
        "grad_sq": (0.2 * ratios) ** 2,
        "norm_input_msq": np.ones((count, LAYERS)),
        "epsilon_share": np.zeros((count, LAYERS)) if epsilon is None else epsilon,
        "context_share": np.full(count, 0.3),
        "loss": np.linspace(5, 2, count),
        "unigram_loss": np.full(count, 3.1),
        "bigram_loss": np.full(count, 2.4),
    }
    return placed(make_series({**rows, **more}, every=every), placement)


def even(count: int = 300) -> Floats:
    return np.ones((count, LAYERS))


def fading(count: int = 300, at: int = 100, lowest: float = 1e-3) -> Floats:
    """From that step on the lowest block gets `lowest`, the second ten times as much; the others are even."""
    ratios = even(count)
    ratios[at - 1 :, 0] = lowest
    ratios[at - 1 :, 1] = 10 * lowest
    return ratios


def test_a_block_with_a_thousandth_of_the_last_ones_gradient_is_told_of_after_fifty_steps() -> None:
    (alert,) = alerts_of(DeadLayers(), a_run(fading()))
    assert (alert.step, alert.severity, alert.since) == (150, "warning", 100)
    assert (alert.site, alert.layer) == ("layers.0", 0)
    assert alert.headline.startswith(
        "run has layers that hardly learn: layer 0 with 1e-03 of the last layer's gradient"
    )
    assert alert.evidence["lower_upper_grad_ratio"] == pytest.approx(1e-3, rel=1e-5)


def test_all_blocks_under_the_line_are_named_and_the_worst_is_the_site() -> None:
    (alert,) = alerts_of(DeadLayers(), a_run(fading(lowest=1e-5)))
    assert "layers 0 to 1 with 1e-05" in alert.action
    assert alert.layer == 0


def test_a_ratio_of_1_1e_2_the_lowest_of_a_run_that_learnt_is_silent() -> None:
    assert alerts_of(DeadLayers(), a_run(fading(lowest=1.1e-2))) == []


def test_a_plateau_shorter_than_fifty_steps_is_silent_and_so_is_a_ratio_that_jumps_about() -> None:
    ratios = fading()
    ratios[148:] = 1
    assert alerts_of(DeadLayers(), a_run(ratios)) == []
    ratios = fading()
    ratios[::20] = 1
    assert alerts_of(DeadLayers(), a_run(ratios)) == []


@pytest.mark.parametrize("placement", ["pre", "sandwich", "res_post", ""])
def test_where_no_norm_comes_after_the_sum_the_ratio_must_also_have_fallen_tenfold_since_the_start(
    placement: str,
) -> None:
    small = fading(at=1, lowest=5e-3)
    assert alerts_of(DeadLayers(), a_run(small, placement=placement)) == []
    assert told(alerts_of(DeadLayers(), a_run(small))) == [(101, "warning")]
    assert told(alerts_of(DeadLayers(), a_run(fading(), placement=placement))) == [(150, "warning")]


def test_the_larger_gradients_of_pre_lns_lower_layers_are_silent() -> None:
    ratios = np.tile(np.logspace(1.5, 0, LAYERS), (300, 1))
    assert alerts_of(DeadLayers(), a_run(ratios, placement="pre")) == []


def test_a_block_that_is_cut_off_from_the_loss_has_a_gradient_of_0_and_is_told_of() -> None:
    ratios = even()
    ratios[100:, 2] = 0
    (alert,) = alerts_of(DeadLayers(), a_run(ratios, placement="pre"))
    assert (alert.layer, alert.since) == (2, 101)
    assert np.isfinite(alert.score)


def test_while_all_tokens_are_alike_it_leaves_the_word_to_the_stall() -> None:
    assert alerts_of(DeadLayers(), a_run(fading(), context_share=np.full(300, 1e-5))) == []


def test_where_there_is_nothing_to_learn_or_all_is_learnt_it_is_silent() -> None:
    full = np.ones((300, LAYERS))
    assert alerts_of(DeadLayers(), a_run(fading(), epsilon=full, bigram_loss=np.full(300, 3.1))) == []
    learnt = np.concatenate([np.linspace(5, 0.05, 99), np.full(201, 0.05)])
    assert alerts_of(DeadLayers(), a_run(fading(), epsilon=full, loss=learnt)) == []


def test_an_epsilon_that_sets_most_updates_of_a_block_is_told_of_also_in_a_stall() -> None:
    epsilon = np.zeros((300, LAYERS))
    epsilon[119:, :3] = [0.9, 0.8, 0.6]
    stalled = np.full(300, 1e-8)
    (alert,) = alerts_of(DeadLayers(), a_run(fading(), epsilon=epsilon, context_share=stalled))
    assert (alert.step, alert.since, alert.layer) == (170, 120, 0)
    assert "epsilon floor: in layers 0 to 2 epsilon, not the gradient, sets 90% of the updates" in alert.action
    assert alert.evidence["epsilon_share"] == pytest.approx(0.9)


def test_an_epsilon_share_of_half_is_silent() -> None:
    assert alerts_of(DeadLayers(), a_run(even(), epsilon=np.full((300, LAYERS), 0.5))) == []


def test_without_optimizer_readings_the_ratio_alone_is_judged() -> None:
    missing = np.full((300, LAYERS), NAN)
    assert told(alerts_of(DeadLayers(), a_run(fading(), epsilon=missing))) == [(150, "warning")]


def test_readings_every_tenth_step_are_enough() -> None:
    """Five of them and fifty steps are the start, and as much again is the hold."""
    ratios = fading(100, at=20)
    (alert,) = alerts_of(DeadLayers(), a_run(ratios, every=10))
    assert (alert.since, alert.step) == (191, 241)


def test_a_factor_on_all_gradients_and_on_the_losses_changes_nothing() -> None:
    plain = told(alerts_of(DeadLayers(), a_run(fading())))
    squares = (37 * fading()) ** 2
    assert told(alerts_of(DeadLayers(), a_run(fading(), grad_sq=squares, loss=9 * np.linspace(5, 2, 300)))) == plain


def test_what_was_ruled_out_is_what_was_read() -> None:
    (alert,) = alerts_of(DeadLayers(), a_run(fading()))
    assert alert.ruled_out == (
        "nothing to learn: the left neighbour is worth 0.70 nats",
        "a stall: the context share is 0.3",
        "converged: the loss is at 70% of the first",
        "small gradients everywhere: epsilon sets 0% of the last layer's updates",
        "how this model starts: the ratio was 1 in the first steps",
    )
    nothing = np.full(300, NAN)
    missing = np.full((300, LAYERS), NAN)
    run = a_run(fading(), epsilon=missing, loss=nothing, unigram_loss=nothing, context_share=nothing)
    (alert,) = alerts_of(DeadLayers(), run)
    assert alert.ruled_out == ("how this model starts: the ratio was 1 in the first steps",)


def test_it_clears_once_the_gradient_has_been_back_for_ten_steps() -> None:
    ratios = fading()
    ratios[199:] = 1
    assert told(alerts_of(DeadLayers(), a_run(ratios))) == [(150, "warning"), (209, "cleared")]


def test_infinite_and_missing_gradients_are_left_out() -> None:
    ratios = fading()
    ratios[[120, 130], 0] = [np.inf, NAN]
    ratios[[125, 135]] = [[np.inf] * LAYERS, [NAN] * LAYERS]
    assert told(alerts_of(DeadLayers(), a_run(ratios))) == [(150, "warning")]


def test_a_model_of_one_block_or_none_is_silent() -> None:
    one = make_series({"grad_sq": np.ones((200, 1)), "epsilon_share": np.ones((200, 1))})
    assert alerts_of(DeadLayers(), one) == []
