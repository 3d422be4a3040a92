"""What replay says of a recorded run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isnan

from stabmon.records import SEVERITIES, Alert, RunState, Severity, figure


@dataclass(frozen=True, slots=True)
class Incident:
    """One thing that went wrong, from its first alert to its end."""

    alert: Alert
    """The first one of its highest severity."""
    told: int
    """Step at which it was first told of."""
    until: int | None
    """Step at which it was over; None: it stands."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A recorded run, judged. True in a condition where nothing is at warning or critical."""

    file: str
    """As it was given; `-` is standard input."""
    run: str
    format: str
    """What wrote it, such as "Hugging Face trainer_state.json"."""
    state: RunState | None
    """As the run log has it; None where the file does not say how the run ended."""
    steps: int
    """How many were read; other tools log each tenth, say."""
    first_step: int
    last_step: int
    first_loss: float
    """NaN where there is no loss."""
    last_loss: float
    alerts: tuple[Alert, ...]
    """As they were raised and cleared, in order."""
    could_run: tuple[str, ...]
    """Detectors that had what they need."""
    could_not_run: Mapping[str, tuple[str, ...]]
    """The others, each with the statistics that the file lacks."""
    notes: tuple[str, ...]
    """What the reader took for what, and what it left out."""

    @property
    def severity(self) -> Severity | None:
        """The worst that was raised; None: nothing was."""
        return worst(self.alerts)

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """What went wrong, in order."""
        return incidents(self.alerts)

    def __bool__(self) -> bool:
        return self.severity in (None, "info")

    def __str__(self) -> str:
        told = [f"{shown.alert.severity} {spoken(shown)}" for shown in self.incidents]
        return "\n".join([f"{self.title}: {self.severity or 'no alert'}", *told])

    @property
    def title(self) -> str:
        """Run, format and steps in a line."""
        how = f", {self.state}" if self.state else ""
        loss = "" if isnan(self.first_loss) else f", loss {figure(self.first_loss)} to {figure(self.last_loss)}"
        return f"{self.run} ({self.format}{how}, steps {self.first_step:,} to {self.last_step:,}{loss})"

    def _repr_html_(self) -> str:
        """For notebooks: a short table."""
        rows = "".join(_row("td", cells(shown)) for shown in self.incidents)
        table = f"<table>{_row('th', HEADINGS)}{rows}</table>" if rows else ""
        blind = f"<p>{escape(self.unseen)}</p>" if self.could_not_run else ""
        return f"<p><b>{escape(self.title)}: {self.severity or 'no alert'}</b></p>{table}{blind}"

    @property
    def unseen(self) -> str:
        """What this file cannot show, in a sentence; "" where all detectors had what they need."""
        if not self.could_not_run:
            return ""
        ran = f"Judged by {', '.join(self.could_run)}" if self.could_run else "Judged by no detector"
        return f"{ran}. What the others need is not in it: {', '.join(self.could_not_run)}."


HEADINGS = ("what", "when", "how sure", "what to do first")


def cells(shown: Incident) -> tuple[str, str, str, str]:
    """A row of the table that HEADINGS head."""
    alert = shown.alert
    when = f"since step {alert.since:,}, told at {shown.told:,}"
    end = "stands" if shown.until is None else f"over at {shown.until:,}"
    sure = f"{alert.severity}, {alert.score:.3g} x its alert line"
    return f"{alert.detector}: the run {alert.action}", f"{when}, {end}", sure, next(iter(alert.remedies), "")


def _row(tag: str, texts: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag} align=left>{escape(text)}</{tag}>' for text in texts)}</tr>"


def spoken(shown: Incident) -> str:
    """An incident in a line: since when, which detector, what."""
    end = "" if shown.until is None else f", over at step {shown.until:,}"
    return f"since step {shown.alert.since:,}{end}: {shown.alert.detector}: the run {shown.alert.action}"


def worst(alerts: Sequence[Alert]) -> Severity | None:
    """The highest severity that was raised."""
    raised = [SEVERITIES.index(alert.severity) for alert in alerts if alert.state == "raised"]
    return SEVERITIES[max(raised)] if raised else None


def from_step(alerts: Sequence[Alert], step: int) -> tuple[Alert, ...]:
    """Without those of incidents that were over before that step: one that stood then is told with its beginning."""
    ends: dict[str, int] = {}
    kept: list[Alert] = []
    for alert in reversed(alerts):
        if alert.state == "cleared":
            ends[alert.detector] = alert.step
        if ends.get(alert.detector, step) >= step:
            kept.append(alert)
    return tuple(reversed(kept))


def incidents(alerts: Sequence[Alert]) -> tuple[Incident, ...]:
    """Alerts put together: all of a detector until it is cleared are one."""
    found: list[Incident] = []
    open_at: dict[str, int] = {}
    for alert in alerts:
        place = open_at.get(alert.detector)
        if alert.state == "cleared":
            if place is not None:
                found[open_at.pop(alert.detector)] = Incident(found[place].alert, found[place].told, alert.step)
        elif place is None:
            open_at[alert.detector] = len(found)
            found.append(Incident(alert, alert.step, None))
        elif SEVERITIES.index(alert.severity) > SEVERITIES.index(found[place].alert.severity):
            found[place] = Incident(alert, found[place].told, None)
    return tuple(found)
