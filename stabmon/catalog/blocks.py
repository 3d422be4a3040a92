"""Gradients, weights and updates of each block."""

from stabmon.catalog.statistic import Statistic, ratio, root

TABLE = (
    Statistic("total_grad_sq", "model", "1", "Sum of squares of all gradients before clipping.", "sum", exported=False),
    Statistic(
        "total_grad_norm", "model", "1", "Norm of all gradients before clipping.", of=("total_grad_sq",), formula=root
    ),
    Statistic("grad_sq", "block", "1", "Sum of squares of a block's gradients before clipping.", "sum", exported=False),
    Statistic(
        "weight_sq", "block", "1", "Sum of squares of a block's parameters before the update.", "sum", exported=False
    ),
    Statistic("update_sq", "block", "1", "Sum of squares of what a block's weights moved by.", "sum", exported=False),
    Statistic(
        "intended_update_sq",
        "block",
        "1",
        "Sum of squares of the update as the optimizer computed it, where weights are bfloat16 or float16.",
        "sum",
        exported=False,
    ),
    Statistic(
        "lost_update_sq",
        "block",
        "1",
        "Sum of squares of the difference between what was computed and what the weights moved by.",
        "sum",
        exported=False,
    ),
    Statistic("grad_norm", "block", "1", "Norm of a block's gradients before clipping.", of=("grad_sq",), formula=root),
    Statistic(
        "weight_norm", "block", "1", "Norm of a block's parameters before the update.", of=("weight_sq",), formula=root
    ),
    Statistic("update_norm", "block", "1", "Norm of what a block's weights moved by.", of=("update_sq",), formula=root),
    Statistic(
        "intended_update_norm",
        "block",
        "1",
        "Norm of a block's update before it was rounded to bfloat16 or float16 weights; update_norm for other weights.",
        of=("intended_update_sq",),
        formula=root,
    ),
    Statistic(
        "update_ratio",
        "block",
        "1",
        "Norm of a block's intended update / norm of its parameters.",
        of=("intended_update_sq", "weight_sq"),
        formula=ratio,
    ),
    Statistic(
        "lost_update_ratio",
        "block",
        "1",
        "What rounding to bfloat16 or float16 weights did to the update / the intended update (norms).",
        of=("lost_update_sq", "intended_update_sq"),
        formula=ratio,
    ),
)
