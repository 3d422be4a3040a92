"""Inf at once, with its place; a loss scaler's search is no fault."""

import numpy as np
import pytest

from stabmon.detectors.nonfinite import NonFinite
from tests.detectors.series import alerts_of, make_series, told

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("value", [INF, -INF])
def test_an_infinite_loss_is_critical_at_its_step(value: float) -> None:
    alerts = alerts_of(NonFinite(), make_series({"loss": [3, 2, value, value]}))
    assert told(alerts) == [(3, "critical")]
    assert (alerts[0].site, alerts[0].layer, alerts[0].since) == ("", None, 3)


def test_the_first_statistic_in_the_order_of_a_step_and_its_lowest_layer_are_named() -> None:
    series = make_series(
        {
            "loss": [3, INF],
            "total_grad_sq": [1, INF],
            "grad_sq": [[1.0, 1, 1], [INF, INF, INF]],
            "norm_input_msq": [[1.0, 1, 1], [1, INF, INF]],
        }
    )
    (alert,) = alerts_of(NonFinite(), series)
    assert (alert.site, alert.layer) == ("layers.1.norm", 1)
    assert list(alert.evidence) == ["norm_input_msq", "loss", "grad_norm", "total_grad_norm"]
    assert "layers.1.norm, norm_input_msq" in alert.action
    assert "forward pass, or in the update before it" in alert.cause
    assert "go back to the weights that it began with;" in alert.action


def test_a_forward_pass_shows_what_the_update_of_the_step_before_did_to_a_checkpoint_of_that_step() -> None:
    """Live: a NaN in a gradient after the backward pass of step 81; the checkpoint of 81 held it."""
    forward, backward = (
        alerts_of(NonFinite(), make_series({"loss": [3.0, 3, 3, 3], name: [1.0, 1, 1, INF]}))[0]
        for name in ("final_norm_input_msq", "total_grad_sq")
    )
    assert forward.since == backward.since == 4
    assert "go back to a checkpoint before step 3;" in forward.action
    assert "go back to a checkpoint before step 4;" in backward.action  # its forward pass was well


def test_a_gradient_alone_is_called_as_page_and_metrics_call_it() -> None:
    (alert,) = alerts_of(NonFinite(), make_series({"loss": [3, 3, 3], "total_grad_sq": [1.0, 1.0, INF]}))
    assert "since step 3 (total_grad_norm). Stop" in alert.action
    assert alert.cause.startswith("total_grad_norm is the first to be Inf or NaN")


def test_a_loss_over_no_targets_is_a_warning_while_the_gradients_are_finite() -> None:
    series = {"loss": [3, INF, 3, 3], "total_grad_sq": [1.0, 0, 1, 1], "grad_sq": [[1.0], [0], [1], [1]]}
    (alert,) = alerts_of(NonFinite(), make_series(series))
    assert (alert.step, alert.severity, alert.since) == (2, "warning", 2)
    assert "the weights are sound" in alert.action


def test_it_is_critical_as_soon_as_a_gradient_is_not_finite() -> None:
    series = {"loss": [3, INF, INF], "total_grad_sq": [1.0, 0, INF], "grad_sq": [[1.0], [0], [INF]]}
    assert told(alerts_of(NonFinite(), make_series(series))) == [(2, "warning"), (3, "critical")]


def test_gradients_alone_point_at_the_backward_pass() -> None:
    (alert,) = alerts_of(NonFinite(), make_series({"loss": [3.0], "grad_sq": [[1, INF]]}))
    assert (alert.layer, alert.site) == (1, "layers.1")
    assert "backward pass" in alert.cause


def test_a_value_that_was_not_read_is_no_fault() -> None:
    assert alerts_of(NonFinite(), make_series({"loss": [3, 3, 3], "total_grad_sq": [1, NAN, 1]})) == []


def test_an_infinite_layer_stays_so_until_it_is_read_again() -> None:
    grads = [[INF], *[[NAN]] * 19, [1.0], *[[NAN]] * 9]
    alerts = alerts_of(NonFinite(), make_series({"loss": [3.0] * 30, "grad_sq": grads}))
    assert told(alerts) == [(1, "critical"), (30, "cleared")]


def test_skipped_steps_are_silent_up_to_twenty_in_a_row() -> None:
    skips = np.array([1.0] * 20 + [0] + [1] * 20)
    series = make_series({"loss": [3.0] * 41, "total_grad_sq": np.where(skips == 1, INF, 1), "skipped_steps": skips})
    assert alerts_of(NonFinite(), series) == []


def test_the_twenty_first_skipped_step_in_a_row_is_critical_since_the_first() -> None:
    skips = np.array([0.0] * 5 + [1] * 30)
    series = make_series({"loss": [3.0] * 35, "total_grad_sq": np.where(skips == 1, INF, 1), "skipped_steps": skips})
    (alert,) = alerts_of(NonFinite(), series)
    assert (alert.step, alert.severity, alert.since) == (26, "critical", 6)
    assert alert.evidence == {"skipped_steps": 21}


@pytest.mark.parametrize("gradient", [1.0, NAN], ids=["finite", "without a backward pass"])
def test_steps_that_the_loop_does_not_take_though_no_gradient_overflows_are_no_matter_of_a_loss_scaler(
    gradient: float,
) -> None:
    """Live: the optimizer was replaced, the loop skipped steps by a rule of its own, monitor.step came after each
    micro-batch."""
    skips = np.array([0.0] * 5 + [1] * 60)
    total = np.where(skips == 1, gradient, 1)
    series = {"loss": [3.0] * 65, "total_grad_sq": total, "grad_sq": total, "skipped_steps": skips}
    assert alerts_of(NonFinite(), make_series(series)) == []


def test_in_training_steps_skipped_for_their_gradients_are_critical_at_the_21st() -> None:
    skips = np.array([0.0] * 5 + [1] * 30)
    total = np.where(skips == 1, INF, 1)
    series = {"loss": [3.0] * 35, "total_grad_sq": total, "grad_sq": total, "skipped_steps": skips}
    (alert,) = alerts_of(NonFinite(), make_series(series))
    assert (alert.step, alert.severity, alert.since) == (26, "critical", 6)
    assert "the loss scaler, or the loop, skips every one" in alert.action


def test_batches_that_the_loop_leaves_out_for_their_loss_are_silent_up_to_twenty_in_a_row() -> None:
    def left_out(count: int, inputs: float) -> dict[str, list[float]]:
        skips = [0.0] * 5 + [1.0] * count + [0.0] * 5
        total = [NAN if skipped else 1.0 for skipped in skips]
        loss = [INF if skipped else 3.0 for skipped in skips]
        stream = [inputs if skipped else 1.0 for skipped in skips]
        gradients = {"total_grad_sq": total, "grad_sq": total}
        return {"loss": loss, **gradients, "final_norm_input_msq": stream, "skipped_steps": skips}

    assert alerts_of(NonFinite(), make_series(left_out(20, inputs=1.0))) == []
    (alert,) = alerts_of(NonFinite(), make_series(left_out(21, inputs=1.0)))
    assert (alert.step, alert.severity, alert.since) == (26, "critical", 6)
    broken = alerts_of(NonFinite(), make_series(left_out(1, inputs=INF)))
    assert told(broken)[0] == (6, "critical"), "the weights are what is not finite"


def test_a_log_that_tells_of_skipped_steps_means_those_of_a_loss_scaler() -> None:
    skips = np.array([0.0] * 5 + [1] * 30)
    series = {"loss": [3.0] * 35, "total_grad_sq": np.where(skips == 1, NAN, 1), "skipped_steps": skips}
    assert told(alerts_of(NonFinite(), make_series(series))) == [(26, "critical")]


def test_it_clears_after_ten_finite_steps() -> None:
    assert told(alerts_of(NonFinite(), make_series({"loss": [INF, *[3.0] * 12]}))) == [(1, "critical"), (11, "cleared")]


def test_two_zeros_at_once_after_ordinary_losses_hide_a_nan() -> None:
    """As a trainer shows it that leaves NaN out of the logged loss."""
    (alert,) = alerts_of(NonFinite(), make_series({"loss": [3, 2.5, 2.4, 0, 0, 0]}))
    assert (alert.step, alert.severity, alert.since) == (5, "critical", 4)
    assert "exactly 0 since step 4, which hides a NaN" in alert.action
    assert "go back to a checkpoint before step 3;" in alert.action


@pytest.mark.parametrize(
    "loss",
    [
        [3, 2.5, 2.4, 0, 2.3, 0, 2.2],
        [3, 0.5, 0.03, 0.004, 0.0004, 0, 0, 0],
        [0, 0, 0, 0.0001, 0.0002, 0.0001, 0, 0],
        [0, 0, 0, 0],
    ],
    ids=["one at a time", "learnt by heart", "rounded to 4 digits", "from the start"],
)
def test_other_zeros_are_silent(loss: list[float]) -> None:
    assert alerts_of(NonFinite(), make_series({"loss": loss})) == []


def test_zeros_with_a_finite_gradient_are_a_loss_of_zero() -> None:
    series = {"loss": [3, 2.5, 2.4, 0, 0, 0], "total_grad_sq": [1.0] * 6}
    assert alerts_of(NonFinite(), make_series(series)) == []


def test_a_policy_whose_rewards_are_all_alike_has_a_loss_and_a_gradient_of_zero() -> None:
    """Where gradients were read in training, a loss of NaN would show in them."""
    series = {"loss": [-0.3, 0.2, -0.1, 0, 0, 0], "total_grad_sq": [1, 1, 1, 0, 0, 0]}
    assert told(alerts_of(NonFinite(), make_series(series))) == [(5, "critical")]  # a log: who knows what 0 stands for
    assert alerts_of(NonFinite(), make_series({**series, "grad_sq": series["total_grad_sq"]})) == []


def test_zeros_from_the_start_with_a_gradient_that_is_not_finite_are_critical() -> None:
    (alert,) = alerts_of(NonFinite(), make_series({"loss": [0, 0, 0], "total_grad_sq": [INF] * 3}))
    assert (alert.step, alert.since) == (1, 1)


def test_a_loss_scaler_that_begins_is_silent_in_a_log_that_does_not_tell_of_skipped_steps() -> None:
    gradient = [INF] * 4 + [1.0] * 20
    assert alerts_of(NonFinite(), make_series({"loss": [3.0] * 24, "total_grad_sq": gradient})) == []
    late = [*gradient, INF]
    assert told(alerts_of(NonFinite(), make_series({"loss": [3.0] * 25, "total_grad_sq": late}))) == [(25, "critical")]


def test_a_gradient_that_was_never_finite_is_critical_at_the_21st_step() -> None:
    (alert,) = alerts_of(NonFinite(), make_series({"loss": [3.0] * 30, "total_grad_sq": [INF] * 30}))
    assert (alert.step, alert.since) == (21, 1)
