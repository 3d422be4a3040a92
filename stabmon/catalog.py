"""Every statistic, spelled once: name, meaning, unit, how readings combine, how it is shown.

Taps write the *stored* ones (additive: sums, mean squares, counts). The *derived* ones are the human
forms (norm, rms, ratio), computed from stored ones when a snapshot is asked for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

FLOOR_SQ = 1e-36
"""A sum of squares under this is "below floor": float32 squares vanish there. A ratio uses the floor instead of 0."""

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Scope = Literal["model", "norm", "block"]
Combine = Literal["mean", "sum", "max"]


@dataclass(frozen=True, slots=True)
class Statistic:
    """One row of the catalog. `scope` tells what kind of site it is taken at, `unit` is for people."""

    name: str
    scope: Scope
    unit: str
    help: str
    combine: Combine = "mean"
    of: tuple[str, ...] = ()
    """Derived only: the statistics it is computed from, in the order `formula` takes them."""
    formula: Callable[..., Array] | None = None
    exported: bool = True
    """Whether Prometheus and the page show it; additive forms that have a human form are not shown."""

    @property
    def metric(self) -> str:
        """The Prometheus name."""
        return f"stabmon_{self.name}"


def _root(square: Array) -> Array:
    return np.sqrt(square)


def _ratio(square: Array, of_square: Array) -> Array:
    """sqrt(a/b) with both held at the floor, so that an underflow is never a ratio of 0 or a division by 0."""
    top, bottom = (np.maximum(x.astype(np.float64), FLOOR_SQ) for x in (square, of_square))
    with np.errstate(invalid="ignore"):  # Inf / Inf is not known
        return np.sqrt(top / bottom).astype(np.float32)


def _quotient(top: Array, bottom: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(bottom == 0, np.float32(np.nan), top / bottom)


_TABLE = (
    # ------------------------------------------------------------------ whole model, every step
    Statistic("loss", "model", "nats", "Training loss of the step, as the loop reports it."),
    Statistic("eval_loss", "model", "nats", "Loss of the evaluation that ended just before the step."),
    Statistic("learning_rate", "model", "1", "Learning rate of the first parameter group at the step."),
    Statistic("total_grad_sq", "model", "1", "Sum of squares of all gradients before clipping.", "sum", exported=False),
    Statistic(
        "total_grad_norm", "model", "1", "Norm of all gradients before clipping.", of=("total_grad_sq",), formula=_root
    ),
    Statistic("final_norm_input_msq", "model", "1", "Mean square of the last norm's input, over tokens and features."),
    Statistic(
        "context_share",
        "model",
        "1",
        "Share of the last norm's output variance that depends on the position (training forward).",
    ),
    Statistic("uniform_loss", "model", "nats", "Baseline: loss of a uniform guess over the vocabulary."),
    Statistic("unigram_loss", "model", "nats", "Baseline: loss of an online unigram predictor on the step's targets."),
    Statistic("bigram_loss", "model", "nats", "Baseline: loss of an online bigram predictor on the step's targets."),
    Statistic("step_seconds", "model", "s", "Wall time since the previous step."),
    Statistic("monitor_seconds", "model", "s", "Host time that stabmon itself took in this step.", "sum"),
    Statistic(
        "skipped_steps",
        "model",
        "1",
        "1 when the optimizer skipped the step (loss scaler found an overflow), else 0.",
        "max",
    ),
    # ------------------------------------------------------------------ whole model, from the fixed probe
    Statistic(
        "probe_context_share",
        "model",
        "1",
        "Share of the output variance that depends on the position, on the probe, eval mode.",
    ),
    Statistic("probe_loss", "model", "nats", "Loss on the probe before the update, eval mode."),
    Statistic("output_msq", "model", "1", "Mean square of the centred output on the probe.", exported=False),
    Statistic(
        "output_change_msq",
        "model",
        "1",
        "Mean square of the output's change by one update, on the probe.",
        exported=False,
    ),
    Statistic(
        "output_change_context_msq",
        "model",
        "1",
        "The part of output_change_msq that differs between positions.",
        exported=False,
    ),
    Statistic(
        "total_output_change_ratio",
        "model",
        "1",
        "RMS change of the output by one update / RMS of the output.",
        of=("output_change_msq", "output_msq"),
        formula=_ratio,
    ),
    Statistic(
        "output_change_context_ratio",
        "model",
        "1",
        "Position-dependent part of the output change / the whole change (RMS).",
        of=("output_change_context_msq", "output_change_msq"),
        formula=_ratio,
    ),
    Statistic(
        "output_change_kl",
        "model",
        "nats",
        "KL divergence per token between the predictions before and after one update.",
    ),
    Statistic("actual_loss_change", "model", "nats", "Change of the probe's loss by one update.", exported=False),
    Statistic(
        "predicted_loss_change", "model", "nats", "Gradient of the probe's loss times the update.", exported=False
    ),
    Statistic(
        "trust_ratio",
        "model",
        "1",
        "Actual / predicted change of the probe's loss; 1 = the step did what the gradient promised.",
        of=("actual_loss_change", "predicted_loss_change"),
        formula=_quotient,
    ),
    # ------------------------------------------------------------------ per norm layer
    Statistic(
        "norm_input_msq", "norm", "1", "Mean square of a norm layer's input, over tokens and features (||x||^2/d)."
    ),
    Statistic(
        "norm_input_var",
        "norm",
        "1",
        "Mean square of what the norm divides by: centred for LayerNorm, raw for RMSNorm.",
    ),
    Statistic(
        "norm_gain", "norm", "1", "Factor a norm multiplies by, forward and backward: mean of rms(gamma)/sqrt(var+eps)."
    ),
    Statistic(
        "token_similarity", "norm", "1", "Mean pairwise cosine between tokens at a norm's input; 1 = all tokens alike."
    ),
    # ------------------------------------------------------------------ per block
    Statistic("grad_sq", "block", "1", "Sum of squares of a block's gradients before clipping.", "sum", exported=False),
    Statistic(
        "weight_sq", "block", "1", "Sum of squares of a block's parameters before the update.", "sum", exported=False
    ),
    Statistic("update_sq", "block", "1", "Sum of squares of a block's update.", "sum", exported=False),
    Statistic(
        "block_output_change_msq",
        "block",
        "1",
        "Mean square output change on the probe when this block alone takes its update.",
        exported=False,
    ),
    Statistic(
        "block_output_msq",
        "block",
        "1",
        "Mean square of the centred output on the probe, repeated per block.",
        exported=False,
    ),
    Statistic(
        "grad_norm", "block", "1", "Norm of a block's gradients before clipping.", of=("grad_sq",), formula=_root
    ),
    Statistic(
        "weight_norm", "block", "1", "Norm of a block's parameters before the update.", of=("weight_sq",), formula=_root
    ),
    Statistic("update_norm", "block", "1", "Norm of a block's update.", of=("update_sq",), formula=_root),
    Statistic(
        "update_ratio",
        "block",
        "1",
        "Norm of a block's update / norm of its parameters.",
        of=("update_sq", "weight_sq"),
        formula=_ratio,
    ),
    Statistic(
        "output_change_ratio",
        "block",
        "1",
        "RMS output change when this block alone takes its update / RMS of the output.",
        of=("block_output_change_msq", "block_output_msq"),
        formula=_ratio,
    ),
)

STATISTICS: dict[str, Statistic] = {s.name: s for s in _TABLE}
