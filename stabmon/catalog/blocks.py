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
    Statistic("update_sq", "block", "1", "Sum of squares of a block's update.", "sum", exported=False),
    Statistic("grad_norm", "block", "1", "Norm of a block's gradients before clipping.", of=("grad_sq",), formula=root),
    Statistic(
        "weight_norm", "block", "1", "Norm of a block's parameters before the update.", of=("weight_sq",), formula=root
    ),
    Statistic("update_norm", "block", "1", "Norm of a block's update.", of=("update_sq",), formula=root),
    Statistic(
        "update_ratio",
        "block",
        "1",
        "Norm of a block's update / norm of its parameters.",
        of=("update_sq", "weight_sq"),
        formula=ratio,
    ),
)
