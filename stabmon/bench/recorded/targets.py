"""What was promised of the loss alone, run by run, from the losses themselves and not from labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, log

from stabmon.bench.intervals import binomial
from stabmon.bench.recorded.classes import ASKED, BROKEN, LOUD, QUIET, right_calls
from stabmon.bench.recorded.judging import Judged
from stabmon.detectors.window import Window
from stabmon.records import Severity

LOST_SHARE, LOST_POINTS, CALLED_POINTS = 0.4, 12, 20
LEAST_RISE = 0.05
FIRST_STEP = 200
GAINED = 0.1
"""ln: with less of it nothing was gained that could be lost, and rises of a tenth of a percent would count."""
_NEVER = ("stalled_from_start", "never_learned")


@dataclass(frozen=True, slots=True)
class Target:
    """How many of how many."""

    what: str
    hits: int
    of: int
    missed: Sequence[str]
    """Run ids, with the point where there is one."""

    @property
    def interval(self) -> tuple[float, float]:
        return binomial(self.hits, self.of)


def targets(runs: Sequence[Judged]) -> list[Target]:
    """Before any adjudication."""
    return [_not_finite(runs), *_lost(runs), _stuck(runs), *_plateaus(runs)]


@dataclass(frozen=True, slots=True)
class Lost:
    """A level that is lost: 12 points in a row above best + 40 % of ln(first / best), a rise of 5 % at least."""

    point: int
    """The first of them."""
    gained: float
    """ln(first / best), best being the lowest median of 12 before them."""


def losses(values: Sequence[float]) -> list[Lost]:
    """A naive count, independent of the detectors."""
    logs = [log(v) if 0 < v < inf else inf for v in values]
    found, window, best, above = [], Window(LOST_POINTS), inf, 0
    for point, z in enumerate(logs):
        above = above + 1 if z > best + max(LOST_SHARE * (logs[0] - best), LEAST_RISE) else 0
        if above == LOST_POINTS:
            found.append(Lost(point - LOST_POINTS + 1, logs[0] - best))
        if isfinite(z):
            window.push(z)
        if window.full and not above:
            best = min(best, window.median)
    return found


def _not_finite(runs: Sequence[Judged]) -> Target:
    bad = [run for run in runs if not run.finite or _zeros(run.losses)]
    missed = [run.recording.id for run in bad if not any(c.detector == "nonfinite" for c in run.calls)]
    return Target(
        "runs with a value that is not finite, or zeros that hide one: critical",
        len(bad) - len(missed),
        len(bad),
        missed,
    )


def _zeros(values: Sequence[float]) -> bool:
    """Two losses of exactly 0 in a row after an ordinary one."""
    return any(a > 0.01 and b == c == 0 for a, b, c in zip(values, values[1:], values[2:], strict=False))


def _lost(runs: Sequence[Judged]) -> list[Target]:
    """All of them, and those in which something had been gained: where nothing was, a warning is right."""
    events = [(run, lost) for run in runs for lost in losses(run.losses) if run.steps[lost.point] >= FIRST_STEP]
    real = [(run, lost) for run, lost in events if lost.gained >= GAINED]
    what = "losses of 40 % of the log-progress over 12 points, after step 200: called within 20 points"
    return [
        _share(what, events, LOUD),
        _share("those of them with a tenth or more to lose: critical within 20 points", real, ("critical",)),
    ]


def _share(what: str, events: Sequence[tuple[Judged, Lost]], severities: Sequence[Severity]) -> Target:
    missed = [f"{run.recording.id}@{lost.point}" for run, lost in events if not _called(run, lost.point, severities)]
    return Target(what, len(events) - len(missed), len(events), missed)


def _called(run: Judged, point: int, severities: Sequence[Severity]) -> bool:
    """One that says that the run is broken is open at some point within twenty of the beginning."""
    told = (c for c in run.calls if c.severity in severities and c.detector in BROKEN)
    return any(c.point <= point + CALLED_POINTS and c.until > point for c in told)


def _stuck(runs: Sequence[Judged]) -> Target:
    once = [run for run in runs if run.recording.label in _NEVER and not run.recording.other_label]
    flat = [run for run in once if _starts_high(run)]
    missed = [run.recording.id for run in flat if not right_calls(run)]
    what = "runs that never learned, from 6 to 20 nats, above .55 of it after 20 points and 1,000 steps: called"
    return Target(what, len(flat) - len(missed), len(flat), missed)


def _starts_high(run: Judged) -> bool:
    first = run.losses[0]
    later = [v for step, v in list(zip(run.steps, run.losses, strict=True))[20:] if step >= 1000]
    return 6 <= first < 20 and bool(later) and later[0] > 0.55 * first


def _plateaus(runs: Sequence[Judged]) -> list[Target]:
    """All of them; and those that the other list does not call failed."""
    known = [run for run in runs if run.recording.label == "plateau_then_drop"]
    undisputed = [run for run in known if ASKED.get(run.recording.other_label, ASKED["ok"]).called == QUIET]
    what = "labelled plateau_then_drop: nothing critical"
    return [_uncritical(what, known), _uncritical("those of them that the other list has not as failed", undisputed)]


def _uncritical(what: str, runs: Sequence[Judged]) -> Target:
    missed = [run.recording.id for run in runs if any(c.severity == "critical" for c in run.calls)]
    return Target(what, len(runs) - len(missed), len(runs), missed)
