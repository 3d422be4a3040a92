"""Any log whose lines name a step and a loss."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stabmon.readers.format import Format, Head
from stabmon.readers.log import LONGEST, as_asked, by_line, expression
from stabmon.readers.reading import Asked, Reading, number, whole
from stabmon.readers.source import Source

_IS = r"['\"]?\s{0,4}[:=]?\s{0,6}['\"]?"
_STEP = re.compile(
    r"\b(?:global[_ ]?|train[_ ]?|num[_ ]?)?(?:step|iter|iteration|update|batch)s?"
    + _IS
    + r"\[?\s{0,6}(\d[\d,]{0,18})(?!\.?\d)",
    re.I,
)
_BAR = re.compile(r"(?:\|| )(\d{1,15})/ ?(\d{1,15}) (?:\[|batches)")


def _named(words: str) -> re.Pattern[str]:
    return expression(words + _IS + "(NUMBER)", re.I)


_EVALUATED = _named(r"\b(?:val|valid|validation|eval|evaluation|test|dev)[_ /.-]?loss")
_LOSS = _named(r"(?<![a-z])(?:(?:train|training|tr|total|avg|lm)[_ /.-]?)?loss")
_MORE = {
    "grad_norm": _named(r"\b(?:grad(?:ient)?[_ ]?norm|gnorm)"),
    "learning_rate": _named(r"\b(?:lr|learning[_ ]rate)"),
    "epoch": re.compile(r"\bepoch['\"]?\s{0,4}[:=]?\s{0,6}\[?(\d{1,9})", re.I),
}
_NAME = "log"
_ENOUGH = 3


def _parse(line: str) -> Reading | None:
    evaluated, step = _EVALUATED.search(line), _STEP.search(line) or _BAR.search(line)
    loss = _LOSS.search(line)
    if loss and evaluated and evaluated.start() < loss.start() < evaluated.end():
        loss = None
    if not (loss and step) and not evaluated:
        return None
    cells = {name: found[1] for name, pattern in _MORE.items() if (found := pattern.search(line))}
    cells |= {"loss": loss[1]} if loss else {}
    cells |= {"eval_loss": evaluated[1]} if evaluated else {}
    return Reading(whole(step[1]) if step else None, **{name: number(cell) for name, cell in cells.items()})


def _fits(head: Head, asked: Asked) -> bool:
    found = 0
    for line in head.lines:
        if len(line) < LONGEST and (made := _parse(line)) and made.step is not None:
            found += 1
            if found == _ENOUGH:
                return True
    return found > 0 and found >= len(head.lines) / 2


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    source.notes.say("No format that is known; step, loss, learning rate and gradient norm were guessed from words.")
    return as_asked(by_line(source, _parse, LONGEST), _NAME, {"loss", "eval_loss"}, asked)


ANY_LOG = Format(_NAME, _fits, _readings, sure=False)
