"""What was promised, and whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stabmon.bench.detection.figures import Figures, Graded, Share, figures, graded, named
from stabmon.bench.detection.operating import beside
from stabmon.bench.detection.outcomes import FAILURES, QUIET, Class
from stabmon.bench.detection.versus import OURS, Versus, versus


@dataclass(frozen=True, slots=True)
class Target:
    """`value` is a share, or steps."""

    what: str
    value: float
    wanted: float
    share: Share | None = None
    """Of runs, where it is one."""
    missed: Sequence[str] = ()

    @property
    def met(self) -> bool:
        return self.value >= self.wanted


def targets(runs: Sequence[Graded]) -> list[Target]:
    """Of the classes that some run has."""
    found = figures(runs)
    return [*_in_time(found), *_leads(found), _quiet(runs), _named(runs), *_beaten(runs)]


def _in_time(found: Mapping[Class, Figures]) -> list[Target]:
    wanted: tuple[tuple[Class, str, float, Callable[[Figures], Share]], ...] = (
        ("STALL", "stalls warned of within 30 steps of their onset", 0.99, lambda f: f.in_time),
        ("STALL", "stalls called critical within 80", 0.95, lambda f: f.critical_in_time),
        ("SPIKE", "spikes warned of at the first reading of their first bad step", 1.0, lambda f: f.in_time),
        ("DATA", "data faults warned of within 10 steps", 0.95, lambda f: f.in_time),
    )
    shares = [(what, share(found[c]), least) for c, what, least, share in wanted if c in found]
    return [Target(what, share.value, least, share) for what, share, least in shares]


def _leads(found: Mapping[Class, Figures]) -> list[Target]:
    wanted: tuple[tuple[Class, str, float], ...] = (
        ("BLOW-UP", "steps from the first warning of a blow-up to its onset, median", 100),
        ("ATTENTION", "the same of attention logits that blow up", 80),
    )
    leads = [(what, found[c].lead(0.5), least) for c, what, least in wanted if c in found]
    return [Target(what, float("-inf") if lead is None else lead, least) for what, lead, least in leads]


def _quiet(runs: Sequence[Graded]) -> Target:
    mine = [run for run in graded(runs) if run.outcome.label in QUIET]
    bad = [run.name for run in mine if run.alarms(critical=True)]
    share = Share(len(mine) - len(bad), len(mine))
    return Target(f"runs without a false critical: {', '.join(QUIET)}", share.value, 1.0, share, bad)


def _named(runs: Sequence[Graded]) -> Target:
    heard = [run for run in graded(runs) if run.outcome.label in FAILURES and run.alarms()]
    wrong = [run.name for run in heard if run.called() != run.outcome.label]
    share, _ = named(runs)
    return Target("failures whose first warning names the right class", share.value, 0.95, share, wrong)


def _beaten(runs: Sequence[Graded]) -> list[Target]:
    rows = versus(runs)
    ours = rows.pop(OURS[0])
    del rows[OURS[1]]
    beaten = [name for name, row in rows.items() if beats(ours, row)]
    missed = [name for name in rows if name not in beaten]
    what = "rules beaten by all warnings, on precision and median lead, at no lower recall"
    return [Target(what, len(beaten) / len(rows), 1.0, None, missed), *_beaten_by_some(runs)]


def _beaten_by_some(runs: Sequence[Graded]) -> list[Target]:
    rows = beside(runs)
    missed = [name for name, row in rows.items() if not row.beaten]
    what = "the same by the warnings of some strength or more"
    return [Target(what, 1 - len(missed) / len(rows), 1.0, None, missed)] if rows else []


def beats(ours: Versus, row: Versus) -> bool:
    """No lower recall and precision, and no later median lead; one of the latter two better."""
    lead, theirs = ours.lead(0.5), row.lead(0.5)
    apart = ours.precision.value - row.precision.value
    no_later = theirs is None or (lead is not None and lead >= theirs)
    better = not apart <= 0 or lead != theirs  # a precision of 1 can be equalled, and no more
    return ours.recall.value >= row.recall.value and not apart < 0 and no_later and better
