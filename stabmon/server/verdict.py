"""How a run is doing, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from stabmon.records import Alert
from stabmon.server.standing import Standing

Level = Literal["healthy", "info", "warning", "critical", "silent", "ended"]

SILENT_SECONDS = 30.0
"""A run that says nothing for longer, and for longer than ten of its steps, is called silent."""
YOUNG_STEPS = 50
"""Before this many steps the absence of alerts means little."""
_BASELINES = ("bigram", "unigram", "uniform")
"""The hardest to beat first."""
_SAME = 0.05
"""Nats: closer than this is called the same."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`title` in a word or two, `text` as a sentence or two."""

    level: Level
    title: str
    text: str


def verdict(run: Standing, now: float) -> Verdict:
    """From state, age of the newest step, open alerts and loss, in that order of weight."""
    if not run.steps:
        return Verdict("silent", "No step yet", "The run has begun, but completed no step.")
    alerts = run.open_alerts()
    standing = f"Step {run.step:,}{_loss(run)}."
    told = " ".join([*(_sentence(alert.action) for alert in alerts), standing])
    worst = alerts[0].severity if alerts else None
    if run.state != "running":
        title = f"{run.state.capitalize()}{_with(alerts)}"
        return Verdict("critical" if run.state == "failed" else worst or "ended", title, told)
    if (age := now - run.time) > silent_after(run):
        why = "The training hangs, does something else (an evaluation, a checkpoint), or has died without a word."
        return Verdict(
            worst if worst in ("warning", "critical") else "silent",
            f"No data for {duration(age)}",
            f"{why} What was last seen: {told}",
        )
    if alerts:
        titles = {"info": "Note", "warning": "Warning", "critical": "Critical"}
        return Verdict(alerts[0].severity, f"{titles[alerts[0].severity]} since step {alerts[0].since:,}", told)
    if run.steps < YOUNG_STEPS:
        return Verdict("healthy", "No alert so far", f"{standing} Too early to call it healthy.")
    return Verdict("healthy", "Healthy", standing)


def silent_after(run: Standing) -> float:
    """Seconds without a step after which the numbers are no longer news."""
    known = _known(run.recent["step_seconds"])
    return max(SILENT_SECONDS, 10 * median(known)) if known else SILENT_SECONDS


def duration(seconds: float) -> str:
    """40 s, 12 min, 3 h, 5 d."""
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def _loss(run: Standing) -> str:
    """ ", loss 2.31, 0.40 nats below the bigram baseline"; means of the newest steps, since single ones are noisy."""
    if not run.recent["loss"]:
        return ""
    if math.isinf(newest := run.recent["loss"][-1]):
        return ", loss not finite"
    losses = _known(run.recent["loss"])
    if not losses:
        return ""
    loss = fmean(losses)
    return f", loss {newest if math.isfinite(newest) else loss:.3g}{_beside_baselines(run, loss)}"


def _beside_baselines(run: Standing, loss: float) -> str:
    known = {name: _known(run.recent[f"{name}_loss"]) for name in _BASELINES}
    gaps = [(name, fmean(values) - loss) for name, values in known.items() if values]
    for name, gap in gaps:
        if abs(gap) < _SAME:
            return f", what the {name} baseline scores"
        if gap > 0 and name != "uniform":
            return f", {gap:.2g} nats below the {name} baseline"
    above = next(((name, -gap) for name, gap in reversed(gaps) if gap < 0), None)
    return f", {above[1]:.2g} nats above the {above[0]} baseline" if above else ""


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _with(alerts: list[Alert]) -> str:
    return "" if not alerts else ", with an open alert" if len(alerts) == 1 else f", with {len(alerts)} open alerts"


def _sentence(action: str) -> str:
    return f"{action[:1].upper()}{action[1:].rstrip('.')}."
