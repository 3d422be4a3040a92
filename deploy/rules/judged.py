"""Alerts on what the detectors inside the training say: counters, so that a scrape misses nothing."""

from __future__ import annotations

from deploy.rules.remedies import choice
from deploy.rules.rule import LOSS, RUNNING, STEP, Rule, Timing, chosen_layers, indented, latest

_SINCE = latest("stabmon_alert_since_step", ", since step ", ",detector=%q", " $labels.detector")
_STEP_OF_RUN = latest("stabmon_step", "Step ")
_DESCRIPTION = f"{choice()}\n{_STEP_OF_RUN}{_SINCE}.{LOSS}\nWhat to do first: {{{{ $remedy }}}}{chosen_layers()}"


def rules(timing: Timing) -> list[Rule]:
    return [
        Rule(
            "StabmonCriticalAlert",
            "critical",
            _told(timing, "critical"),
            f"{{{{ $labels.run }}}}: {{{{ $labels.detector }}}} is critical{STEP}",
            _DESCRIPTION,
            page="{{ $labels.detector }}",
            keep=timing.scrapes(20),
        ),
        Rule(
            "StabmonWarningAlerts",
            "warning",
            _told(timing, "warning"),
            f"{{{{ $labels.run }}}}: {{{{ $labels.detector }}}} warns{STEP}",
            _DESCRIPTION,
            page="{{ $labels.detector }}",
            keep=timing.scrapes(20),
        ),
    ]


def _told(timing: Timing, severity: str) -> str:
    """Raised between two scrapes, or open when the first scrape came."""
    grew = f'increase(stabmon_alerts_total{{severity="{severity}"}}[{timing.scrapes(8)}])'
    still = (
        f'max by (job, run, detector) (stabmon_alert_active{{severity="{severity}"}}) == 1\nand on (job, run) {RUNNING}'
    )
    return f"sum by (job, run, detector) ({grew}) > 0\nor (\n{indented(still)}\n)"
