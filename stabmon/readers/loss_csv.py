"""A table with a loss column: one row a logged value, as recorded runs are published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite, nan

import numpy as np

from stabmon.records import RESUME, Event, Layout, Site, Snapshot

LAYOUT = Layout(
    tuple((name, "") for name in ("loss", "total_grad_sq", "learning_rate", "eval_loss")),
    (Site(""),),
)
_LARGEST = float(np.finfo(np.float32).max)


def feeds(rows: Iterable[Mapping[str, str]], loss: str = "loss") -> Iterator[tuple[Snapshot, list[Event]]]:
    """What the pipeline is fed, in the rows' order. Columns: step, `loss`, and where there are such grad_norm, lr,
    eval_loss. A blank is not read, `nan` and `inf` are read and not finite. An evaluation's row goes with the next
    loss. A step that goes back is a restart, told as a resume. Times are row numbers.

    ValueError: a cell that is no number; the row is named.
    """
    evaluation, before = nan, -1
    for number, row in enumerate(rows, 1):
        try:
            step = int(float(row["step"]))
            value, grad_norm, rate = (_number(row.get(name)) for name in (loss, "grad_norm", "lr"))
            evaluation = _number(row.get("eval_loss")) if row.get("eval_loss") else evaluation
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"row {number}: {error}; give numbers in the columns step, {loss}, grad_norm, lr"
            ) from None
        if np.isnan(value) and np.isnan(grad_norm):
            continue
        values = np.array(
            [value, min(grad_norm * grad_norm, _LARGEST) if isfinite(grad_norm) else grad_norm, rate, evaluation],
            np.float32,
        )
        events = [Event(step, float(number), RESUME, {"at": step})] if step < before else []
        yield Snapshot(step, float(number), values, LAYOUT), events
        evaluation, before = nan, step


def _number(cell: str | None) -> float:
    """NaN: not read. Inf: not finite."""
    if not cell:
        return nan
    value = float(cell)
    return max(min(value, _LARGEST), -_LARGEST) if isfinite(value) else np.inf
