"""How a run is doing, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Literal

from stabmon.records import SEVERITIES, Alert
from stabmon.server.progress import left
from stabmon.server.standing import BASELINES, YOUNG_STEPS, Standing
from stabmon.server.titles import called, cost_of, sentence, title_of

Level = Literal["healthy", "info", "warning", "critical", "silent", "ended"]

SILENT_SECONDS = 30.0
"""A run that says nothing for longer, and for longer than ten of its steps, is called silent."""
_NAMED = 3
"""Troubles that are over, as many are named."""
_SAME = 0.05
"""Nats: closer than this is called the same."""
RECORDED = "recorded"
"""What a run is called of which nobody knows how it ended."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`title` in a line, `text` as a sentence or two, `basis`: what it is based on."""

    level: Level
    title: str
    text: str
    basis: str = field(default="", compare=False)


def verdict(run: Standing, now: float) -> Verdict:
    """From state, age of the newest step, open alerts and loss, in that order of weight."""
    level, title, text = _judged(run, now)
    return Verdict(level, title, text, _basis(run))


def _judged(run: Standing, now: float) -> tuple[Level, str, str]:
    if not run.steps and run.state == "running":
        return "silent", "No step yet", _waiting(run, now)
    ended = (run.state or RECORDED).capitalize()
    if not run.steps:
        level: Level = "critical" if run.state == "failed" else "ended"
        return level, f"{ended} before its first step", "No step was completed."
    alerts = run.troubles()
    standing = f"Step {run.step:,}{_of_planned(run)}{_loss(run)}."
    aside = _set_aside(run, alerts)
    standing = " ".join([standing, *_ahead(run, now), *_way_back(run, alerts)])
    told = " ".join([*(sentence(alert.action) for alert in alerts), standing, *aside])
    # What the title says is not said again.
    rest = " ".join([*(cost_of(a) for a in alerts[:1]), *(sentence(a.action) for a in alerts[1:]), standing, *aside])
    worst = alerts[0].severity if alerts else None
    if run.state != "running":
        title = f"{ended}. {_trouble(alerts)}" if alerts else ended
        level = "critical" if run.state == "failed" else worst or "ended"
        return level, title, f"{rest.lstrip()}{_over(run)}"
    if is_silent(run, now):
        why = (
            "The training hangs, does something else (an evaluation, a checkpoint), has died without a word, or cannot "
            "write its run log any more (a full disk)."
        )
        level = worst if worst in ("warning", "critical") else "silent"
        title = f"No data for {duration(run.age(now) or 0)}"
        if level != "silent":
            return level, f"{title}. {_trouble(alerts)}", f"{why} What was last seen: {rest}"
        return level, title, f"{why} What was last seen: {told}"
    if worst:
        return worst, _trouble(alerts), rest.lstrip()
    if run.recent["loss"] and math.isinf(run.recent["loss"][-1]) and not aside:
        return "warning", "The loss is not finite", f"{told} No alert was raised for it."
    if run.steps < YOUNG_STEPS:
        return "healthy", "No alert so far", f"{told} Too early to call it healthy."
    return "healthy", "Healthy", told


def _trouble(alerts: Sequence[Alert]) -> str:
    """The worst one, and how many more there are."""
    more = len(alerts) - 1
    return f"{title_of(alerts[0])}{f' (and {more} more)' if more else ''}"


def _over(run: Standing) -> str:
    """Of an ended run what went wrong and was over, a detector each, worst first."""
    still = {alert.detector for alert in run.open_alerts()}
    raised = [a for a in run.alerts if a.state == "raised" and a.severity != "info" and a.detector not in still]
    worst: dict[str, Alert] = {}
    for alert in sorted(raised, key=lambda alert: (-SEVERITIES.index(alert.severity), alert.step)):
        worst.setdefault(alert.detector, alert)
    told = [f"{called(name)} ({alert.severity}, since step {alert.since:,})" for name, alert in worst.items()]
    if not told:
        return "" if still else " No alert was open."
    return f" Over by then: {', '.join(told[:_NAMED])}{f' and {len(told) - _NAMED} more' if told[_NAMED:] else ''}."


def _waiting(run: Standing, now: float) -> str:
    """Of a run without a step: for how long, and why if that is known."""
    since = f" {duration(now - run.run.started)} ago" if run.run and now > run.run.started else ""
    why = [str(event.detail[part]) for event in run.unseen[-1:] for part in ("why", "todo") if event.detail.get(part)]
    return " ".join([f"The run has begun{since}, but completed no step.", *why])


def _of_planned(run: Standing) -> str:
    planned = run.progress.planned
    return f" of {planned:,}" if planned and planned >= run.step else ""


def _ahead(run: Standing, now: float) -> list[str]:
    """How long it still takes, while it does."""
    seconds = None if is_silent(run, now) else run.seconds_left()
    return [] if seconds is None else [sentence(left(seconds))]


def _way_back(run: Standing, alerts: Sequence[Alert]) -> list[str]:
    """The checkpoint to go back to, where something is wrong and the run writes any."""
    if not run.progress.saves or not alerts or alerts[0].severity == "info":
        return []
    found = run.progress.checkpoint(alerts[0].since)
    name = f" ({found.name})" if found and found.name else ""
    return [
        f"Last checkpoint before it: step {found.step:,}{name}." if found else "There is no checkpoint from before it."
    ]


def _set_aside(run: Standing, told: Sequence[Alert]) -> list[str]:
    """What people said of open alerts that are not told."""
    found = []
    for alert in run.open_alerts():
        if alert not in told and (mark := run.mark(alert)):
            said = f"is muted until step {mark.until:,}" if mark.kind == "muted" else "is called a false alarm"
            found.append(f"An alert of {alert.detector} {said}.")
    return found


def _basis(run: Standing) -> str:
    """Who judged, and on what."""
    if not run.steps:
        return "Nothing was measured yet."
    able = [name for name, needs in run.needs.items() if needs and run.sites(needs[0])]
    of = "" if len(able) == len(run.needs) else f" of {len(run.needs)}"
    count = f"{run.steps:,} step{'' if run.steps == 1 else 's'}"
    who = f"{len(able)}{of} detectors, which judged {count}" if run.needs else f"the alerts of {count}"
    loss = "; the loss is compared as the mean of the newest steps" if _known(run.recent["loss"]) else ""
    return f"Based on {who}{loss}."


def is_silent(run: Standing, now: float) -> bool:
    """Whether it should have said something by now."""
    return run.state == "running" and (run.age(now) or 0.0) > silent_after(run)


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
    """ ", loss 2.31, 0.4 nats below the bigram baseline". What is compared is the mean of the newest steps, as one is
    noisy; where that is another number, it is told.
    """
    if not run.recent["loss"]:
        return ""
    if math.isinf(run.recent["loss"][-1]):
        return ", loss not finite"
    losses = _known(run.recent["loss"])
    if not losses:
        return ""
    last, mean = losses[-1], fmean(losses)
    beside = _beside_baselines(run, mean)
    other = abs(mean - last) >= _SAME and f"{mean:.3g}" != f"{last:.3g}"
    return f", loss {last:.3g}{f', recent mean {mean:.3g}' if beside and other else ''}{beside}"


def _beside_baselines(run: Standing, loss: float) -> str:
    known = {called(name): _known(run.recent[name]) for name in BASELINES}
    gaps = [(name, fmean(values) - loss) for name, values in known.items() if values]
    for name, gap in gaps:
        if abs(gap) < _SAME:
            return f", what the {name} baseline scores"
        if gap > 0 and name != "uniform":
            return f", {_nats(gap)} nats below the {name} baseline"
    above = next(((name, -gap) for name, gap in reversed(gaps) if gap < 0), None)
    return f", {_nats(above[1])} nats above the {above[0]} baseline" if above else ""


def _nats(gap: float) -> str:
    return f"{gap:.2g}" if gap < 99.5 else f"{gap:,.0f}"


def mean_of(values: Iterable[float]) -> float:
    """Of those that were read and are finite; NaN: none."""
    known = _known(values)
    return fmean(known) if known else math.nan


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]
