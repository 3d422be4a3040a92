"""An alert in one line: what is wrong, since when, where, and what to do first."""

from __future__ import annotations

import re
from functools import cache

from stabmon.records import RUNBOOKS, Alert

_NAME = re.compile(r"_|\d|\w\.\w|[A-Z]|^\W*(lr|nats?)\b")
"""Words that are written as they are: names, numbers, units."""
_VERB = re.compile(r"^(is|has|does|will|uses) ")


def title_of(alert: Alert) -> str:
    """ "NOT LEARNING since step 9: every token gets the same answer, worst in block 3. Restart with lr <= 3e-4."

    Of what a detector says: "is not learning: every token gets the same answer since step 9. Restart with …; …".
    """
    what, _, rest = alert.action.partition(". ")
    head, _, detail = _without_since(what, alert.since).partition(": ")
    head = _VERB.sub(lambda verb: "" if verb[1] in ("is", "has") else verb[0], head)
    head = _loud(head) if alert.severity == "critical" else _capital(head)
    where = "" if alert.layer is None else f"worst in block {alert.layer}"
    about = ", ".join(part for part in (detail, where) if part)
    todo = rest.partition("; ")[0].rstrip(".")
    return f"{head} since step {alert.since:,}{f': {about}' if about else ''}.{f' {todo}.' if todo else ''}"


def cost_of(alert: Alert) -> str:
    """What waiting costs, as a sentence; "" where it is not told."""
    cost = alert.action.partition(". ")[2].partition("; ")[2]
    return sentence(cost) if cost else ""


def sentence(action: str) -> str:
    """ "is blowing up" -> "Is blowing up." """
    return f"{_capital(action).rstrip('.')}."


def called(baseline: str) -> str:
    """As people call it: "bigram_loss" -> "bigram"."""
    return baseline.removesuffix("_loss").replace("_", " ")


@cache
def meaning(detector: str) -> str:
    """What its alert means, by the first line of its runbook; "" where it has none."""
    path = RUNBOOKS / f"{detector}.md"
    if not path.is_file() or path.parent != RUNBOOKS:
        return ""
    with path.open(encoding="utf-8") as lines:
        return next(lines, "").partition(":")[2].strip()


def runbook(detector: str) -> str | None:
    """Its address, relative to the page; None where it has none."""
    return f"runbook/{detector}" if meaning(detector) else None


def _without_since(text: str, since: int) -> str:
    return re.sub(rf" since step {since}\b", "", text)


def _loud(text: str) -> str:
    """But for names of statistics, layers and optimizers, numbers and units."""
    return re.sub(r"\S+", lambda word: word[0] if _NAME.search(word[0]) else word[0].upper(), text)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
