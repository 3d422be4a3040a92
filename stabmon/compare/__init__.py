"""Runs beside one another: what differs, what matters first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stabmon.compare.curves import Curves
from stabmon.compare.parting import Parting, parting
from stabmon.compare.ratios import Ratio, ratios
from stabmon.compare.settings import Setting, Value, differing, settings
from stabmon.readers import opened
from stabmon.records import SEVERITIES, Run
from stabmon.replays import Incident, Replay, Verdict

__all__ = ["Difference", "Parting", "Ratio", "Setting", "Shared", "Value", "compare"]


@dataclass(frozen=True, slots=True)
class Shared:
    """What a detector told of two runs; None: nothing."""

    detector: str
    a: Incident | None
    b: Incident | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A run beside the first one, both judged again."""

    a: Verdict
    b: Verdict
    settings: Sequence[Setting]
    losses: Parting | None
    """None: they have no step with a loss in common."""
    alerts: Sequence[Shared]
    """By detector, those that one run alone has first, worst first."""
    statistics: Sequence[Ratio]
    """Greatest ratio first."""


@dataclass(frozen=True, slots=True)
class _Judged:
    run: Run
    verdict: Verdict
    curves: Curves


def compare(paths: Sequence[Path], *, loss: str | None = None, step: str | None = None) -> list[Difference]:
    """Each of the others beside the first one. Files, arguments and errors: as of `stabmon.replay`."""
    first = _judged(paths[0], loss, step)
    return [_difference(first, _judged(path, loss, step)) for path in paths[1:]]


def _judged(path: Path, loss: str | None, step: str | None) -> _Judged:
    recording, curves = opened(path, loss=loss, step=step), Curves()
    verdict = Replay(recording, str(path), sinks=[curves]).run()
    return _Judged(recording.run, verdict, curves)


def _difference(a: _Judged, b: _Judged) -> Difference:
    losses = parting(*a.curves.losses(), *b.curves.losses())
    made_of = differing(settings(a.run, a.curves), settings(b.run, b.curves))
    return Difference(a.verdict, b.verdict, made_of, losses, _alerts(a.verdict, b.verdict), ratios(a.curves, b.curves))


def _alerts(a: Verdict, b: Verdict) -> list[Shared]:
    """The worst incident of each detector."""
    first, second = (_worst(verdict) for verdict in (a, b))
    found = [Shared(name, first.get(name), second.get(name)) for name in dict.fromkeys((*first, *second))]
    return sorted(found, key=lambda each: (each.a is not None and each.b is not None, -_rank(each.a or each.b)))


def _worst(verdict: Verdict) -> dict[str, Incident]:
    found: dict[str, Incident] = {}
    for each in verdict.incidents:
        held = found.get(each.alert.detector)
        if _rank(each) > _rank(held):
            found[each.alert.detector] = each
    return found


def _rank(incident: Incident | None) -> int:
    return -1 if incident is None else SEVERITIES.index(incident.alert.severity)
