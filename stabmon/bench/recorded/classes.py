"""What a label asks of the detectors, and how often they did it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stabmon.bench.recorded.adjudication import Adjudication
from stabmon.bench.recorded.judging import Call, Judged
from stabmon.records import Severity

QUIET = "quiet"
BROKEN = ("diverged", "exploded", "nonfinite")
"""Detectors that say that a run is."""
LOUD: Sequence[Severity] = ("warning", "critical")
"""Severities that say that something is wrong. A log alone does not tell a stall from a plateau that ends: a warning is
right of it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is right to say of a run: one of `of`; that is what its class is called as."""

    called: str
    of: tuple[str, ...] = ()


ASKED: Mapping[str, Asked] = {
    "nan": Asked("nonfinite", ("nonfinite",)),
    "diverged": Asked("diverged", BROKEN),
    "ended_before_2nd_eval": Asked("diverged", BROKEN),
    "stalled_from_start": Asked("flat", ("flat",)),
    "never_learned": Asked("flat", ("flat",)),
    "spike_recovered": Asked("spike", ("spike", "diverged")),
    **{label: Asked(QUIET) for label in ("healthy", "converged", "overfit", "plateau_then_drop", "ok")},
}
"""By label; runs with any other are counted and not graded."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one label."""

    runs: int
    right: int
    precision: float
    """Of the graded runs that were called as this label's are, the share of which it was right. NaN: none were."""
    leads: Sequence[int]
    """Points from the first right call to the marked onset; negative: after it."""

    @property
    def recall(self) -> float:
        return self.right / self.runs if self.runs else float("nan")

    def lead(self, share: float) -> float | None:
        """That quantile; None where no onset is marked."""
        return float(np.quantile(self.leads, share)) if self.leads else None


def called_as(judged: Judged, adjudication: Adjudication) -> str:
    """The gravest thing that was said; on runs that should be quiet, of what was not found to be true."""
    asked = ASKED.get(judged.recording.label)
    calls = [
        c for c in judged.calls if not (asked and asked.called == QUIET and adjudication.true(judged.recording.id, c))
    ]
    critical = {c.detector for c in calls if c.severity == "critical"}
    loud = {c.detector for c in calls if c.severity in LOUD}
    if "nonfinite" in critical:
        return "nonfinite"
    if critical & {"diverged", "exploded"}:
        return "diverged"
    if "flat" in loud:
        return "flat"
    return "spike" if loud & {"spike", "diverged"} else QUIET


def right_calls(judged: Judged) -> list[Call]:
    asked = ASKED[judged.recording.label]
    return [c for c in judged.calls if c.detector in asked.of and c.severity in LOUD]


def is_right(judged: Judged, adjudication: Adjudication) -> bool:
    """Said what it should; of a quiet run: nothing critical that was not found to be true."""
    if _asks_for_quiet(judged):
        critical = (call for call in judged.calls if call.severity == "critical")
        return all(adjudication.true(judged.recording.id, call) for call in critical)
    return bool(right_calls(judged))


def _asks_for_quiet(judged: Judged) -> bool:
    return ASKED[judged.recording.label].called == QUIET


def figures(runs: Sequence[Judged], adjudication: Adjudication) -> dict[str, Figures]:
    """By label, in the order of ASKED; those that no run has are left out."""
    graded = [run for run in runs if run.recording.label in ASKED]
    right, called = Counter[str](), Counter[str]()
    for run in graded:
        kind = _quiet_enough(run, called_as(run, adjudication))
        called[kind] += 1
        right[kind] += is_right(run, adjudication) and (kind == QUIET or not _asks_for_quiet(run))
    found = {}
    for label, asked in ASKED.items():
        mine = [run for run in graded if run.recording.label == label]
        if mine:
            hits = sum(is_right(run, adjudication) for run in mine)
            precision = right[asked.called] / called[asked.called] if called[asked.called] else float("nan")
            found[label] = Figures(len(mine), hits, precision, [lead for run in mine for lead in _lead(run)])
    return found


def confusion(runs: Iterable[Judged], adjudication: Adjudication) -> dict[str, Counter[str]]:
    """How often each label was called what."""
    found: dict[str, Counter[str]] = {}
    for run in runs:
        found.setdefault(run.recording.label, Counter())[called_as(run, adjudication)] += 1
    return found


def _quiet_enough(run: Judged, kind: str) -> str:
    """A warning of a spike on a run that should be quiet is no false class: spikes are counted as alarms."""
    return QUIET if kind == "spike" and _asks_for_quiet(run) else kind


def _lead(run: Judged) -> list[int]:
    onset, calls = run.recording.onset, right_calls(run)
    if onset is None or not calls:
        return []
    began = int(np.searchsorted(run.steps, onset))
    return [began - min(call.point for call in calls)]
