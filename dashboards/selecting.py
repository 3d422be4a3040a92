"""PromQL by the catalog's names: what is spelled wrong fails here, not in Grafana."""

from __future__ import annotations

from dashboards.grafana import Json, annotation, marks, variable
from stabmon.catalog import STATISTICS

RULES = 'alertname=~"Stabmon.+"'
"""What the alerts of the shipped rules have in common."""
RATE = "[$__rate_interval]"

JOB = variable("job", "Job", "Scrape job of Prometheus.", "label_values(stabmon_run_info, job)", multi=True)
_RUNS = 'label_values(stabmon_run_info{job=~"$job"}, run)'
RUN = variable("run", "Run", "The newest name first, where names begin with a date.", _RUNS, sort=2)
RUNS = variable("run", "Run", "Several to be compared.", _RUNS, multi=True, sort=2)


def series(name: str, labels: str = "", *, rank: str = 'rank="0"', many: bool = False) -> str:
    """A stabmon series of the chosen run, or of `many`; rank 0 alone has those of the layers."""
    run = 'run=~"$run"' if many else 'run="$run"'
    chosen = ", ".join(part for part in ('job=~"$job"', run, rank, labels) if part)
    return f"stabmon_{name}{{{chosen}}}"


def statistic(name: str, labels: str = "", *, suffix: str = "", rank: str = 'rank="0"', many: bool = False) -> str:
    """The same of a row of the catalog that is exported."""
    row = STATISTICS[name]
    assert row.exported, f"{name} is not exported"
    return series(row.name + suffix, labels, rank=rank, many=many)


def of_layer(name: str, how: str = "max", labels: str = "", *, many: bool = False) -> str:
    """One series a layer, with the worst of what lies in it; without what lies outside the layers."""
    by = "run, layer" if many else "layer"
    inside = statistic(name, ", ".join(filter(None, ('layer!=""', labels))), many=many)
    return f"{how} by ({by}) ({inside})"


def overhead(by: str, *, many: bool = False) -> str:
    """Share of the wall time of steps that stabmon takes; both are counted at the same step, so no scrape is between
    them."""

    def growth(name: str) -> str:
        return f"sum by ({by}) (rate({series(name, rank='', many=many)}{RATE}))"

    return f"{growth('monitor_seconds_total')} / {growth('step_duration_seconds_sum')}"


def log10(expr: str) -> str:
    """For colours: they are linear in Grafana, and layers differ by powers of ten."""
    return f"log10(clamp({expr}, 1e-12, 1e12))"


def notes(*, many: bool = False) -> list[Json]:
    """What is drawn into every curve: open alerts, firing rules, restarts."""
    run = 'run=~"$run"' if many else 'run="$run"'
    active = series("alert_active", 'severity=~"warning|critical"', rank="", many=many)
    started = series("run_start_time_seconds", rank="", many=many)
    return [
        annotation(
            "Alerts", f"max by (run, detector, severity) ({active}) == 1", "{{detector}}", "{{severity}}", "orange"
        ),
        annotation(
            "Firing rules",
            f'max by (run, alertname) (ALERTS{{{RULES}, alertstate="firing", {run}}})',
            "{{alertname}}",
            "{{run}}",
            "red",
        ),
        annotation("Restarts", f"max by (run) (changes({started}{RATE})) > 0", "restart", "{{run}}", "blue"),
        marks(["stabmon"] if many else ["stabmon", "run:$run"]),
    ]


def while_running(expr: str, by: str = "", *, many: bool = False) -> str:
    """Nothing of runs that have ended."""
    goes_on = series("run_state", 'state="running"', rank="", many=many)
    return f"{expr} and on ({by}) (max by ({by}) ({goes_on}) == 1)"


def standing(*, many: bool = False) -> str:
    """1 info, 2 warning, 3 critical for each detector that had an open alert within the time range."""
    by = "run, detector" if many else "detector"

    def of(severity: str, value: int) -> str:
        active = series("alert_active", f'severity="{severity}"', rank="", many=many)
        return f"max by ({by}) ({active} * {value})"

    now = f"{of('critical', 3)} > 0 or {of('warning', 2)} > 0 or {of('info', 1)}"
    ever = f"max by ({by}) (max_over_time({series('alert_active', rank='', many=many)}[$__range] @ end())) > 0"
    return f"(({now}) and on ({by}) ({ever})) or {_none('detector', ever)}"


def firing(*, many: bool = False) -> str:
    """The same for each rule that fires."""
    run = 'run=~"$run"' if many else 'run="$run"'
    by = "run, alertname" if many else "alertname"

    def of(severity: str) -> str:
        return f'ALERTS{{{RULES}, alertstate="firing", {run}, severity="{severity}"}}'

    fires = f"max by ({by}) ({of('critical')} * 3 or {of('warning')} * 2 or {of('info')})"
    ever = f'max_over_time(ALERTS{{{RULES}, alertstate="firing", {run}}}[$__range] @ end())'
    return f"{fires} or {_none('alertname', ever)}"


def _none(label: str, ever: str) -> str:
    """A row that says so where there is nothing to show in the whole time range."""
    return f'(label_replace(vector(0), "{label}", "none", "", "") unless on () count({ever}))'
