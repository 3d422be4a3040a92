"""One alert, how long things last, and the texts that most alerts share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["info", "warning", "critical"]
Dashboard = Literal["stabmon-run", "stabmon-runs", "stabmon-ranks", "stabmon-exporter"]

RUNNING = 'max by (job, run) (stabmon_run_state{state="running"}) == 1'
"""Runs that ended stay in what `stabmon serve` shows, with their last values; alerts are for those that train."""
OPERATIONS = "alerts"
"""The runbook of alerts that are no detector's."""
_PLACE = "layer, norm, block, sublayer"
_SAME = "job=%q,run=%q"
_GIVEN = "$labels.job $labels.run"


@dataclass(frozen=True, slots=True)
class Timing:
    """Windows follow from the scrape interval: `increase` needs two samples in a window, and one may be lost."""

    scrape_seconds: int = 15
    hang_seconds: int = 300
    """A step that takes longer is a hang. Longer than the longest evaluation, checkpoint or compilation."""

    def scrapes(self, count: int) -> str:
        """So many scrape intervals, as a duration of Prometheus."""
        return duration(count * self.scrape_seconds)


@dataclass(frozen=True, slots=True)
class Rule:
    """An alert for each run (never for each layer). The texts are Go templates, as Prometheus reads them."""

    name: str
    severity: Severity
    expr: str
    summary: str
    description: str
    page: str = OPERATIONS
    """Of the runbook: a detector's name, or OPERATIONS."""
    hold: str = "0s"
    """How long it must hold before it is told (`for`)."""
    keep: str = "0s"
    """For how long it is told on (`keep_firing_for`)."""
    dashboard: Dashboard = "stabmon-run"


def duration(seconds: int) -> str:
    """`90` -> `90s`, `120` -> `2m`."""
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def while_running(expr: str) -> str:
    """Only for runs that train."""
    return f"(\n{indented(expr)}\n)\nand on (job, run) {RUNNING}"


def indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def latest(metric: str, before: str = "", labels: str = "", given: str = "", form: str = "%.0f") -> str:
    """`before` and the run's value of a metric, also shortly after it vanished; nothing where it has none."""
    query = f"max(last_over_time({metric}{{{_SAME}{labels}}}[15m]))"
    value = f'{{{{ . | first | value | printf "{form}" }}}}'
    return f'{{{{ with printf "{query}" {_GIVEN}{given} | query }}}}{before}{value}{{{{ end }}}}'


STEP = latest("stabmon_step", " at step ")
LOSS = latest("stabmon_loss", " Loss ", form="%.4g.")


def worst_layers(metric: str) -> str:
    """A line with the five layers that have most of it; no line where it is not read."""
    return _line_of_layers(f"topk(5, max by ({_PLACE}) ({metric}{{{_SAME}}}))", _GIVEN, metric)


def chosen_layers() -> str:
    """The same of the metric that `$worst` names ("": none), the `$order` of it: topk or bottomk."""
    line = _line_of_layers(f"%s(5, max by ({_PLACE}) (%s{{{_SAME}}}))", f"$order $worst {_GIVEN}", "{{ $worst }}")
    return f"{{{{ if $worst }}}}{line}{{{{ end }}}}"


def _line_of_layers(query: str, given: str, name: str) -> str:
    place = '{{ or .Labels.layer "-" }} {{ .Labels.norm }}{{ .Labels.block }}{{ .Labels.sublayer }}'
    layers = (
        f'{{{{ range $i, $_ := . }}}}{{{{ if $i }}}}, {{{{ end }}}}{place} {{{{ printf "%.3g" .Value }}}}{{{{ end }}}}'
    )
    return f'{{{{ with printf "{query}" {given} | query }}}}\nWorst layers by {name}: {layers}.{{{{ end }}}}'
