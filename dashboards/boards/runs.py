"""stabmon / Runs: all runs at a glance, to choose one."""

from __future__ import annotations

from dashboards.grafana import RED, Json, dashboard, mapped, override, query, row, steps, transformation
from dashboards.kinds import BAD, ODD, STATES, curves, stat, table, timeline
from dashboards.selecting import JOB, RATE, RULES, RUNS, firing, notes, series, standing, statistic, while_running

UID = "stabmon-runs"
_TO_RUN = {
    "title": "Open ${__value.text}",
    "url": "/d/stabmon-run?var-run=${__value.text:percentencode}"
    "&${datasource:queryparam}&${job:queryparam}&${__url_time_range}",
}


def board() -> Json:
    return dashboard(
        UID,
        "stabmon / Runs",
        "All training runs that are scraped: state, progress, alerts. A run's name leads to its dashboard.",
        [JOB, RUNS],
        notes(many=True),
        [*_tiles(), *_table(), *_alerts(), *_speed()],
    )


def _tiles() -> list[Json]:
    states = series("run_state", rank="", many=True)

    def count(state: str) -> str:
        one = series("run_state", f'state="{state}"', many=True)
        return f"count(count by (run) ({one} == 1)) or vector(0)"

    return [
        stat("Running", "Runs that go on.", [query(count("running"), instant=True)], size=(4, 4)),
        stat(
            "Failed",
            "Runs that ended with an error and are still served.",
            [query(count("failed"), instant=True)],
            size=(4, 4),
            defaults=BAD,
        ),
        stat(
            "Runs served",
            "In whatever state.",
            [query(f"count(count by (run) ({states})) or vector(0)", instant=True)],
            size=(4, 4),
        ),
        stat(
            "Targets down",
            "Endpoints that Prometheus cannot scrape.",
            [query('count(up{job=~"$job"} == 0) or vector(0)', instant=True)],
            size=(4, 4),
            defaults=BAD,
        ),
        stat(
            "Critical alerts",
            "Open ones.",
            [query(_open("critical"), instant=True)],
            size=(4, 4),
            defaults=BAD,
        ),
        stat(
            "Warnings",
            "Open ones.",
            [query(_open("warning"), instant=True)],
            size=(4, 4),
            defaults=ODD,
        ),
    ]


def _open(severity: str) -> str:
    active = series("alert_active", f'severity="{severity}"', rank="", many=True)
    return f"sum({active}) or vector(0)"


def _table() -> list[Json]:
    def now(expr: str) -> Json:
        return query(expr, instant=True, table=True)

    columns = ("state", "Step", "Loss", "Steps/s", "Since last step", "Open alerts")
    active = series("alert_active", 'severity=~"warning|critical"', rank="", many=True)
    last = series("last_step_timestamp_seconds", rank="", many=True)
    queries = [
        now(f"max by (run, state) ({series('run_state', many=True)} == 1)"),
        now(f"max by (run) ({series('step', rank='', many=True)})"),
        now(f"max by (run) ({statistic('loss', many=True)})"),
        now(f"max by (run) (rate({series('steps_total', many=True)}{RATE}))"),
        now(while_running(f"time() - max by (run) ({last})", "run", many=True)),
        now(f"sum by (run) ({active})"),
    ]
    renamed = {f"Value #{chr(ord('A') + i)}": name for i, name in enumerate(columns) if i}
    colored = {"custom_cellOptions": {"type": "color-background", "mode": "basic"}}
    return [
        row("Runs"),
        table(
            "Runs",
            "What is served now, or was at the end of the time range.",
            queries,
            size=(24, 9),
            transformations=[
                transformation("merge"),
                transformation(
                    "organize",
                    excludeByName={"Time": True, "Value #A": True},
                    renameByName={**renamed, "run": "Run", "state": "State"},
                    indexByName={name: i for i, name in enumerate(("run", "state", *list(renamed)))},
                ),
            ],
            overrides=[
                override("Run", links=[_TO_RUN], custom_width=320),
                override("State", mappings=_states(), **colored),
                override("Step", decimals=0),
                override("Loss", decimals=3),
                override("Steps/s", decimals=2),
                override("Since last step", unit="s"),
                override("Open alerts", decimals=0, thresholds=steps((None, "transparent"), (1, RED)), **colored),
            ],
        ),
    ]


def _states() -> list[Json]:
    return mapped(**{state: (state, color) for state, color in STATES.items()})


def _alerts() -> list[Json]:
    raised = f"sum by (run, detector) (increase({series('alerts_total', rank='', many=True)}[$__range])) > 0"
    return [
        row("Alerts"),
        timeline(
            "Detectors",
            "What stabmon has open, by run and detector.",
            [query(standing(many=True), "{{run}} {{detector}}")],
        ),
        timeline("Rules that fire", "Prometheus' alert rules.", [query(firing(many=True), "{{run}} {{alertname}}")]),
        table(
            "Alerts raised in this time range",
            "By run and detector.",
            [query(raised, instant=True, table=True)],
            transformations=[
                transformation(
                    "organize", excludeByName={"Time": True}, renameByName={"Value": "alerts"}, indexByName={}
                )
            ],
            overrides=[override("run", links=[_TO_RUN]), override("alerts", decimals=0)],
        ),
        table(
            "Rules that fire now",
            "All alerts of stabmon's rules.",
            [query(f"ALERTS{{{RULES}}}", instant=True, table=True)],
            transformations=[
                transformation(
                    "organize",
                    excludeByName={"Time": True, "Value": True, "__name__": True, "component": True},
                    renameByName={},
                    indexByName={},
                )
            ],
            defaults={"noValue": "none"},
        ),
    ]


def _speed() -> list[Json]:
    rate = f"max by (run) (rate({series('steps_total', many=True)}{RATE}))"
    return [
        row("Speed"),
        curves("Steps per second", "By run.", [query(rate, "{{run}}")], size=(12, 8)),
        curves("Loss", "By run.", [query(f"max by (run) ({statistic('loss', many=True)})", "{{run}}")], size=(12, 8)),
    ]
