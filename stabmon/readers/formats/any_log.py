"""Any log whose lines name a step and a loss."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stabmon.readers.format import Format, Head
from stabmon.readers.log import LONGEST, NUMBER, as_asked, by_line
from stabmon.readers.reading import Asked, Reading, number, whole
from stabmon.readers.source import Source

_IS = r"['\"]?\s{0,4}[:=]?\s{0,6}['\"]?"
_STEP = re.compile(
    rf"\b(?:global[_ ]?|train[_ ]?)?(?:step|iter|iteration|update|batch)s?{_IS}\[?\s{{0,6}}(\d[\d,]{{0,18}})", re.I
)
_BAR = re.compile(r"(?:\|| )(\d{1,15})/ ?(\d{1,15}) (?:\[|batches)")
_EVALUATED = re.compile(rf"\b(?:val|valid|validation|eval|evaluation|test|dev)[_ /.-]?loss{_IS}({NUMBER})", re.I)
_LOSS = re.compile(rf"(?<![a-z])(?:(?:train|training|tr|total|avg|lm)[_ /.-]?)?loss{_IS}({NUMBER})", re.I)
_MORE = {
    "grad_norm": re.compile(rf"\b(?:grad(?:ient)?[_ ]?norm|gnorm){_IS}({NUMBER})", re.I),
    "learning_rate": re.compile(rf"\b(?:lr|learning[_ ]rate){_IS}({NUMBER})", re.I),
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
