"""What two runs were made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stabmon.compare.curves import Curves
from stabmon.records import Run

Value = str | float | None


@dataclass(frozen=True, slots=True)
class Setting:
    """One in which two runs differ; None: that run does not say."""

    name: str
    a: Value
    b: Value


def settings(run: Run, curves: Curves) -> Mapping[str, Value]:
    """What is known of how a run was made: of itself, and seen in its readings."""
    known: dict[str, Value] = {
        "framework": run.framework,
        "model": run.model,
        "stabmon": run.version,
        "world size": run.world_size,
        **{name.replace("_", " "): value for name, value in run.architecture.items()},
        **{f"label {name}": value for name, value in run.labels.items()},
        "tokens or samples a step": curves.batch_size,
        "layers watched": _layers(curves),
        **_rates(curves),
    }
    return {name: value for name, value in known.items() if value not in (None, "")}


def differing(a: Mapping[str, Value], b: Mapping[str, Value]) -> list[Setting]:
    """Those that are not the same, in the first one's order; what one run does not say comes last."""
    names = list(dict.fromkeys((*a, *b)))
    found = [Setting(name, a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)]
    return sorted(found, key=lambda each: each.a is None or each.b is None)


def _layers(curves: Curves) -> int | None:
    layouts = [snapshot.layout for snapshot in curves.rows.values()]
    return len({site.layer for site in layouts[-1].sites} - {None}) or None if layouts else None


def _rates(curves: Curves) -> dict[str, Value]:
    """The highest learning rate, and when it was there first; as readings are kept, within a thousandth of the run."""
    rates = np.array([snapshot.scalar("learning_rate") for snapshot in curves.rows.values()])
    steps = [snapshot.step for snapshot in curves.rows.values()]
    if not np.isfinite(rates).any():
        return {}
    highest = int(np.nanargmax(rates))
    return {
        "highest learning rate": _told(rates[highest]),
        "its step": steps[highest],
        "last learning rate": _told(rates[-1]),
    }


def _told(rate: float) -> float | None:
    """To the digits that a float32 has."""
    return float(f"{rate:.6g}") if np.isfinite(rate) else None
