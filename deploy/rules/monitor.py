"""Alerts on stabmon itself. Nobody is woken for these."""

from __future__ import annotations

from deploy.rules.rule import Rule, Timing

OVERHEAD = 0.05
"""Of the training's time. Chosen: ten times what the defaults are held to."""


def rules(timing: Timing) -> list[Rule]:
    window = timing.scrapes(40)

    def grew(metric: str, by: str = "job, run") -> str:
        return f"sum by ({by}) (increase({metric}[{window}])) > 0"

    return [
        Rule(
            "StabmonOverheadHigh",
            "info",
            f"max by (job, run) (rate(stabmon_monitor_seconds_total[{window}])) > {OVERHEAD}",
            "{{ $labels.run }}: stabmon takes {{ $value | humanizePercentage }} of the time",
            "What to do first: a larger `every`, or level `light`.",
            hold=window,
            dashboard="stabmon-exporter",
        ),
        Rule(
            "StabmonNotificationsFailing",
            "info",
            grew('stabmon_notifications_total{outcome=~"failed|dropped"}', "job, run, channel"),
            "{{ $labels.run }}: alerts do not get through to {{ $labels.channel }}",
            "What to do first: look at the run's log for what it answered.",
            dashboard="stabmon-exporter",
        ),
        Rule(
            "StabmonPartFailures",
            "info",
            grew("stabmon_part_failures_total", "job, run, part"),
            "{{ $labels.run }}: stabmon's {{ $labels.part }} raised, and was dropped",
            "The training is not touched by it; what that part read or sent is missing from now on.\nWhat to do first: "
            "its traceback is in the run's log; please report it.",
            dashboard="stabmon-exporter",
        ),
        Rule(
            "StabmonSeriesDropped",
            "info",
            "max by (job, run) (stabmon_series_dropped) > 0",
            "{{ $labels.run }}: {{ $value }} series are not served",
            "The run has more series than its limit; layers are left out.\nWhat to do first: watch fewer layers "
            "(`include`), or raise the limit.",
            hold=window,
            dashboard="stabmon-exporter",
        ),
    ]
