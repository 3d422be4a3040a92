"""The figures as tables, for the screen and for Markdown alike. Each fits 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stabmon.bench.detection.figures import NOTHING, FalseAlarms, Graded, Share, confusion, false_alarms, figures, named
from stabmon.bench.detection.operating import beside
from stabmon.bench.detection.outcomes import FAILURES, HARMLESS, QUIET
from stabmon.bench.detection.targets import Target, targets
from stabmon.bench.detection.versus import Against, versus
from stabmon.bench.intervals import Rate


@dataclass(frozen=True, slots=True)
class Grid:
    """One table, with what it says and how to read it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def grids(runs: Sequence[Graded]) -> list[Grid]:
    """All of them, in the order of their weight."""
    return [_targets(runs), _failures(runs), _quiet(runs), _versus(runs), _beside(runs), _leads(runs), _confusion(runs)]


def summary(runs: Sequence[Graded]) -> str:
    """False alarms in words, and how many runs were not graded."""
    false, out = false_alarms(runs), sum(run.outcome.label is None for run in runs)
    critical, warning = (
        f"{rate.events} {name} ({told(rate)} per 100,000 checks; {number(FalseAlarms.per_day(rate))} a run-day)"
        for name, rate in (("criticals", false.critical), ("warnings", false.warning))
    )
    right, true = named(runs)
    return (
        f"{len(runs)} runs, of which {out} are neither one thing nor another and not graded. False alarms in "
        f"{false.critical.points} checks: {critical}; {warning}. A check is one judged step of one run on which "
        f"nothing is wrong; a run-day is one of a step a second. {false.runs.hits} of {false.runs.of} runs "
        f"without a failure got a critical "
        f"({_range(false.runs.interval)}). The first warning of a failure named its class in {_share(right)} of the "
        f"runs that had one, and was true of what the loss did in {_share(true)}. Intervals are exact, of 95 %."
    )


def ungraded(runs: Sequence[Graded]) -> Grid:
    """With the reason."""
    rows = [(run.name, run.outcome.why) for run in runs if run.outcome.label is None]
    return Grid("Not graded", ("run", "why"), rows)


def told(rate: Rate) -> str:
    """Per 100,000, with its interval."""
    low, high = rate.interval
    return f"{number(rate.per_1e5)}, {number(low)} to {number(high)}"


def number(value: float) -> str:
    """Three digits, or whole from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _targets(runs: Sequence[Graded]) -> Grid:
    rows = [(t.what, _value(t), f">= {_short(t.wanted)}", "yes" if t.met else _missed(t)) for t in targets(runs)]
    return Grid("Targets", ("what", "measured", "wanted", "met"), rows)


def _value(target: Target) -> str:
    share = target.share
    return f"{share.hits} of {share.of}, {_share(share)}" if share else _short(target.value)


def _missed(target: Target) -> str:
    shown = ", ".join(target.missed[:4])
    more = f" and {len(target.missed) - 4} more" if len(target.missed) > 4 else ""
    return f"no: {shown}{more}" if shown else "no"


def _failures(runs: Sequence[Graded]) -> Grid:
    found = figures(runs)
    rows = [
        (
            name,
            str(row.runs),
            _share(row.recall),
            _share(row.precision),
            _lead(row.lead(0.5)),
            _lead(row.lead(0.1)),
            _short(row.in_time.value),
            f"{_short(row.critical.value)}/{_short(row.critical_precision.value)}",
        )
        for name in FAILURES
        if (row := found.get(name))
    ]
    note = (
        "Recall: runs with a warning or worse that names their class. Lead: steps from it to the onset; negative is "
        "after it. In time: within 30 steps of a stall's onset, before the loss of a blow-up rises, within 10 steps of "
        "a spike or a data fault, within 100 of a mistake in the code. Critical: recall and precision of criticals."
    )
    columns = ("failure", "runs", "recall", "precision", "lead", "p10", "in time", "critical")
    return Grid("Failures", columns, rows, note)


def _quiet(runs: Sequence[Graded]) -> Grid:
    rows = []
    for name in (*QUIET, HARMLESS):
        mine = [run for run in runs if run.outcome.label == name]
        if mine:
            false = false_alarms(mine)
            warned = sum(bool(run.alarms()) for run in mine)
            counts = (false.critical.points, false.runs.hits, false.critical.events, warned, false.warning.events)
            rows.append((name, str(len(mine)), *(str(count) for count in counts)))
    note = (
        "Every alarm on these is false, but for warnings after a fault that did no harm (not counted). A "
        "warning of a plateau that is left later is counted as false."
    )
    columns = ("nothing is wrong", "runs", "checks", "with critical", "criticals", "with warning", "warnings")
    return Grid("Runs on which nothing is wrong", columns, rows, note)


def _versus(runs: Sequence[Graded]) -> Grid:
    rows = [
        (
            name,
            _share(row.recall),
            _share(row.precision),
            _lead(row.lead(0.5)),
            _lead(row.lead(0.1)),
            number(row.false.per_1e5) if row.false.points else "",
        )
        for name, row in versus(runs).items()
    ]
    note = (
        "All failures together: does it speak, of whatever, from the fault on? Precision: of the runs it spoke on "
        "where it might, those that failed. False: incidents per 100,000 checks; less than 10 steps apart they are one."
    )
    return Grid("Beside rules in use", ("rule", "recall", "precision", "lead", "p10", "false"), rows, note)


def _beside(runs: Sequence[Graded]) -> Grid:
    rows = [
        (
            name,
            _short(row.recall.value),
            _short(row.ours_recall.value),
            _share(row.precision),
            _share(row.ours_precision),
            "" if row.median != row.median else f"{row.median:+.0f}",
            "yes" if row.beaten else "no",
        )
        for name, row in beside(runs).items()
    ]
    note = (
        "Of stabmon's warnings and criticals only those of some strength (severity, then score) or more are taken: the "
        "soonest that speak of no fewer failures than the rule and are no less precise. Sooner: median steps by which "
        "they come before the rule, on the failed runs of which both speak. Beaten: no lower recall and precision and "
        "not later, and one of the latter two better."
    )
    columns = ("rule", "recall", "ours", "precision", "ours", "sooner", "beaten")
    return Grid("At no lower recall and precision", columns, rows, note)


def _leads(runs: Sequence[Graded]) -> Grid:
    rows_of = versus(runs)
    present = [name for name in FAILURES if any(name in row.by_class for row in rows_of.values())]
    rows = []
    for rule, row in rows_of.items():
        rows.append((rule, *(_against(row.by_class.get(name)) for name in present)))
    columns = ("recall/median lead", *(name.capitalize()[:9] for name in present))
    return Grid("The same by class", columns, rows, "Whatever it said; our classes count in the table of failures.")


def _against(row: Against | None) -> str:
    if row is None:
        return ""
    return f"{_short(row.recall.value)}/{_lead(row.lead(0.5))}" if row.leads else "0"


def _confusion(runs: Sequence[Graded]) -> Grid:
    found = confusion(runs)
    order = [name for name in (*FAILURES, *QUIET, HARMLESS) if name in found]
    called = [*(name for name in FAILURES if any(row[name] for row in found.values())), NOTHING]
    rows = [(name, *(str(found[name][kind] or "") for kind in called)) for name in order]
    note = (
        "By the first warning, or worse, from the fault on. An alert of an update that went too far is right of a "
        "spike and of a blow-up: only the next hundred steps tell one from the other."
    )
    return Grid("Called as", ("class", *(name.lower()[:9] for name in called)), rows, note)


def _share(share: Share) -> str:
    return f"{_short(share.value)} ({_range(share.interval)})" if share.of else ""


def _range(interval: tuple[float, float]) -> str:
    return f"{_short(interval[0])}-{_short(interval[1])}"


def _short(value: float) -> str:
    """Shares of two digits without their zero, steps as they are."""
    if value != value:
        return ""
    return f"{value:.2f}".removeprefix("0") if abs(value) <= 1 else f"{value:g}"


def _lead(lead: float | None) -> str:
    return "" if lead is None else str(round(lead))
