"""What an alert looks like in Slack: Block Kit, within its limits, with what to do in the first line."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urljoin

from stabmon.records import RUNBOOKS, Alert, Run, figure
from stabmon.sinks.delivery import Why

_HEADER = 150
"""Slack's limit, in characters."""
_SECTION, _NOTE = 2000, 500
"""Slack allows 3000, but refuses messages of about 13,000 characters in all; there are at most six sections."""
_LINES = 20
_LINE = 110
_LINKS = 3
_LATE_SECONDS = 60.0
_SIGNS = {"info": ":large_blue_circle:", "warning": ":large_orange_circle:", "critical": ":red_circle:"}

Block = dict[str, Any]


def compose(alerts: Sequence[Alert], run: Run | None, link: str | None, why: Why) -> dict[str, Any]:
    """The webhook's JSON: one alert whole, several as a digest. `run`: whose alerts they are, where that is known."""
    first = f"{_sign(alerts[0])} {alerts[0].headline}" if len(alerts) == 1 else _digest_title(alerts, why)
    body = _single(alerts[0]) if len(alerts) == 1 else _digest(alerts)
    linked = [_links(alerts, link)] if link and len(link) < _NOTE else []
    notes = [_context(note) for note in (_lateness(alerts, why), _source(run)) if note]
    header = {"type": "header", "text": {"type": "plain_text", "text": _cut(first, _HEADER), "emoji": True}}
    return {"text": _escape(_cut(first, _HEADER)), "blocks": [header, *body, *linked, *notes]}


def _single(alert: Alert) -> list[Block]:
    where = "" if alert.layer is None else f" · layer {alert.layer}"
    site = f" (`{_escape(alert.site)}`)" if alert.site else ""
    state = "resolved" if alert.state == "cleared" else alert.severity
    facts = f"*{state}* · `{_escape(alert.detector)}` · run *{_escape(alert.run)}* · step {alert.step}"
    parts = [f"{facts}, since step {alert.since}{where}{site}"]
    if len(alert.headline) + len(_sign(alert)) + 1 > _HEADER:
        parts.insert(0, f"*{_escape(alert.headline)}*")
    if alert.evidence:
        rows = [f"• `{_escape(name)}` {figure(value)}" for name, value in alert.evidence.items()]
        parts.append("\n".join(["*Evidence*", *rows]))
    if alert.cause:
        parts.append(f"*Cause*\n{_escape(alert.cause)}")
    if alert.ruled_out:
        parts.append(f"*Ruled out*\n{_escape('; '.join(alert.ruled_out))}")
    if alert.remedies:
        rows = [f"{number}. {_escape(remedy)}" for number, remedy in enumerate(alert.remedies, 1)]
        parts.append("\n".join(["*What to do*", *rows]))
    return [_section(part) for part in parts]


def _links(alerts: Sequence[Alert], link: str) -> Block:
    """To the run's page, and beside it to the runbook of each alert that has one."""
    detectors = dict.fromkeys(alert.detector for alert in alerts if (RUNBOOKS / f"{alert.detector}.md").is_file())
    pages = {f"Runbook: {name}": urljoin(link, f"runbook/{name}") for name in [*detectors][:_LINKS]}
    return _section(
        " · ".join(f"<{_escape(url)}|{title}>" for title, url in {"Open the live page": link, **pages}.items())
    )


def _digest_title(alerts: Sequence[Alert], why: Why) -> str:
    raised = sum(alert.state == "raised" for alert in alerts)
    more = " more" if why == "held" else ""
    return f"{alerts[-1].run}: {raised}{more} {'alert' if raised == 1 else 'alerts'} since step {alerts[0].step}"


def _digest(alerts: Sequence[Alert]) -> list[Block]:
    """One line each, the newest, since Slack shows no more than a screen before it folds."""
    lines = [f"• step {a.step} {_sign(a)} `{_escape(a.detector)}` {_escape(_cut(a.action, _LINE))}" for a in alerts]
    older = len(lines) - _LINES
    half = _LINES // 2
    shown = [f"{older} older ones are left out", *lines[-_LINES:]] if older > 0 else lines
    return [_section("\n".join(shown[i : i + half])) for i in range(0, len(shown), half)]


def _lateness(alerts: Sequence[Alert], why: Why) -> str:
    happened = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(alerts[0].time))
    if why == "left_over":
        return f":hourglass: Sent late. It happened at {happened}; the process ended before Slack had this message."
    if why == "held":
        return f"Held back, since one of its kind was told of shortly before. It began at {happened}."
    if time.time() - alerts[0].time > _LATE_SECONDS:
        return f":hourglass: Sent late. It happened at {happened}; Slack could not be reached before."
    return ""


def _source(run: Run | None) -> str:
    if run is None:
        return "stabmon"
    ranks = f" · {run.world_size} ranks" if run.world_size > 1 else ""
    return " · ".join(_escape(part) for part in (f"stabmon {run.version}", run.model, run.framework) if part) + ranks


def _sign(alert: Alert) -> str:
    return ":white_check_mark:" if alert.state == "cleared" else _SIGNS[alert.severity]


def _section(text: str) -> Block:
    return {"type": "section", "text": {"type": "mrkdwn", "text": _cut(text, _SECTION)}}


def _context(text: str) -> Block:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": _cut(text, _NOTE)}]}


def _escape(text: str) -> str:
    """Slack's three control characters; what a run's name holds must neither link nor notify."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str, limit: int) -> str:
    """At most `limit` characters, never within an escaped one."""
    return text if len(text) <= limit else re.sub(r"&[a-z]*$", "", text[: limit - 1]) + "…"
