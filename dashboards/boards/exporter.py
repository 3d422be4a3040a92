"""stabmon / Exporter: stabmon itself. Is it scraped, what does it cost, what did it lose?"""

from __future__ import annotations

from dashboards.grafana import Json, dashboard, query, row
from dashboards.kinds import BAD, ODD, WHOLE, curves, stat
from dashboards.selecting import JOB, RATE, RUNS, notes, overhead, series, statistic

UID = "stabmon-exporter"
_TARGET = '{job=~"$job"}'


def board() -> Json:
    return dashboard(
        UID,
        "stabmon / Exporter",
        "stabmon itself: scrapes, cost, what was dropped, who was told.",
        [JOB, RUNS],
        notes(many=True),
        [*_now(), *_scrapes(), *_losses()],
    )


def _now() -> list[Json]:

    def total(name: str) -> str:
        return f"sum(increase({series(name, rank='', many=True)}[$__range]))"

    failed = series("notifications_total", 'outcome=~"failed|dropped"', rank="", many=True)
    return [
        stat("Targets up", "Endpoints that answer.", [query(f"sum(up{_TARGET})", instant=True)], size=(4, 4)),
        stat(
            "Targets down",
            "Endpoints that do not.",
            [query(f"count(up{_TARGET} == 0) or vector(0)", instant=True)],
            size=(4, 4),
            defaults=BAD,
        ),
        stat(
            "Parts failed",
            "They raised and were dropped.",
            [query(total("part_failures_total"), instant=True)],
            size=(4, 4),
            defaults=BAD,
        ),
        stat(
            "Steps lost",
            "On their way to the host.",
            [query(total("dropped_rows_total"), instant=True)],
            size=(4, 4),
            defaults=ODD,
        ),
        stat(
            "Series left out",
            "Beyond the cap max_series.",
            [query(f"sum({series('series_dropped', rank='', many=True)})", instant=True)],
            size=(4, 4),
            defaults=ODD,
        ),
        stat(
            "Notifications lost",
            "Failed or dropped.",
            [query(f"sum(increase({failed}[$__range])) or vector(0)", instant=True)],
            size=(4, 4),
            defaults=BAD,
        ),
    ]


def _scrapes() -> list[Json]:
    render = series("render_seconds", rank="", many=True)
    return [
        row("Scrapes and cost"),
        curves(
            "Up",
            "1: the endpoint answers.",
            [query(f"up{_TARGET}", "{{instance}}")],
            defaults={"min": 0, "max": 1, "decimals": 0},
        ),
        curves(
            "Scrape duration",
            "As Prometheus sees it.",
            [query(f"scrape_duration_seconds{_TARGET}", "{{instance}}")],
            unit="s",
            defaults={"min": 0},
        ),
        curves(
            "Samples per scrape",
            "After relabelling: none.",
            [query(f"scrape_samples_scraped{_TARGET}", "{{instance}}")],
            defaults={"min": 0},
        ),
        curves(
            "Time to render",
            "The text of one scrape.",
            [query(render, "{{run}} rank {{rank}}")],
            unit="s",
            defaults={"min": 0},
        ),
        curves(
            "What stabmon costs",
            "Share of the wall time in the training thread.",
            [query(overhead("run, rank", many=True), "{{run}} rank {{rank}}")],
            unit="percentunit",
            defaults={"min": 0},
        ),
        curves(
            "Last step's cost",
            "Time that stabmon took in it, in the training thread.",
            [query(statistic("monitor_seconds", rank="", many=True), "{{run}} rank {{rank}}")],
            unit="s",
            defaults={"min": 0},
        ),
        curves(
            "Steps per second",
            "By run.",
            [query(f"max by (run) (rate({series('steps_total', many=True)}{RATE}))", "{{run}}")],
            defaults={"min": 0},
        ),
    ]


def _losses() -> list[Json]:
    def increase(name: str, by: str) -> str:
        return f"sum by ({by}) (increase({series(name, rank='', many=True)}{RATE}))"

    failed = increase("part_failures_total", "part")
    return [
        row("What was told and what was lost"),
        curves(
            "Notifications",
            "By channel and outcome; absent without a channel (Slack, notify).",
            [query(increase("notifications_total", "channel, outcome"), "{{channel}} {{outcome}}")],
            defaults=WHOLE | {"noValue": "no channel"},
        ),
        curves(
            "Parts that failed",
            "Those that did, by part; else a line at 0.",
            [query(f'{failed} > 0 or label_replace(vector(0), "part", "none", "", "")', "{{part}}")],
            defaults=WHOLE,
        ),
        curves(
            "Steps lost on their way to the host",
            "By run.",
            [query(increase("dropped_rows_total", "run"), "{{run}}")],
            defaults=WHOLE,
        ),
    ]
