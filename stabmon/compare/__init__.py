"""Runs beside one another: what differs, what matters first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stabmon.compare.curves import Curves
from stabmon.compare.parting import Parting, parting
from stabmon.compare.ratios import Ratio, ratios
from stabmon.compare.settings import Setting, Value, differing, settings
from stabmon.readers import ReadError, every_run
from stabmon.readers.text import printable
from stabmon.records import SEVERITIES, Run
from stabmon.replays import Incident, Replay, Verdict

__all__ = ["MOST", "Difference", "Parting", "Ratio", "Setting", "Shared", "Value", "compare"]

MOST = 10
"""Runs of one file that are compared without being named: of more nobody reads what differs."""


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


def compare(
    paths: Sequence[Path], *, loss: str | None = None, step: str | None = None, runs: Sequence[str] = ()
) -> list[Difference]:
    """Each of the others beside the first one. `runs`: those alone of a file that holds several, in that order; none of
    them: all, if they are `MOST` at most. Other arguments, files and errors: as of `stabmon.replay`.
    """
    found = (each for path in paths for each in _judged(path, loss, step, runs))
    first = next(found)
    return [_difference(first, each) for each in found]


def _judged(path: Path, loss: str | None, step: str | None, runs: Sequence[str]) -> Iterator[_Judged]:
    begun: dict[int, tuple[Replay, Curves]] = {}
    made: list[_Judged] = []
    for recording, fed in every_run(path, loss=loss, step=step, runs=runs):
        if id(recording) not in begun:
            if len(begun) == MOST and not runs:
                raise ReadError(_too_many(path, [replay.recording.run.name for replay, _ in begun.values()]))
            curves = Curves()
            begun[id(recording)] = Replay(recording, str(path), sinks=[curves]), curves
        replay, curves = begun[id(recording)]
        if fed is not None:
            replay.feed(*fed)
            continue
        replay.end()
        made.append(_Judged(recording.run, replay.verdict(), curves))
    order = {printable(name): place for place, name in reversed([*enumerate(runs)])}
    yield from sorted(made, key=lambda each: order.get(each.run.name, 0))


def _too_many(path: Path, names: Sequence[str]) -> str:
    return (
        f"{path} holds more than {MOST} runs: {', '.join(names[:5])}, …; name those to compare, the first one first: "
        f"--run {names[0]} --run {names[1]}"
    )


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
