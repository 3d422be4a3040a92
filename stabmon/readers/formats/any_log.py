"""Any log whose lines name a step and a loss, or an epoch and a loss where no step is named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import isnan, nan

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
_BAR = re.compile(r"(?:\|| |(?<=\[))(\d{1,15})/ ?(\d{1,15}) (?:\[|batches|\(\s{0,3}\d{1,3}(?:\.\d{1,9})?%\)\])")


def _named(words: str) -> re.Pattern[str]:
    return expression(words + _IS + "(NUMBER)", re.I)


_EVALUATED = _named(r"\b(?:val|valid|validation|eval|evaluation|test|dev)[_ /.-]?loss")
_LOSS = _named(r"(?<![a-z])(?:(?:train|training|tr|total|avg|lm)[_ /.-]?)?loss")
_MORE = {
    "grad_norm": _named(r"\b(?:grad(?:ient)?[_ ]?norm|gnorm)"),
    "learning_rate": _named(r"\b(?:lr|learning[_ ]rate)"),
    "epoch": re.compile(r"\bepoch['\"]?\s{0,4}[:=]?\s{0,6}\[?(\d{1,9})", re.I),
}
_EPOCH = re.compile(r"(?<![a-z])epoch['\"]?\s{0,4}[:=#]?\s{0,6}\[?(\d{1,9})(?:\.0{1,9})?(?!\.?\d)(\s?/\s?\d)?", re.I)
"""Whole ones; the second group: of how many."""
_OF_EVALUATION = re.compile(r"\b(?:val|valid|validation|eval|evaluation|test|dev)\b", re.I)
_NAME = "log"
_ENOUGH = 3


def _named_step(line: str) -> re.Match[str] | None:
    return _STEP.search(line) or _BAR.search(line)


def _parse(line: str) -> Reading | None:
    found = _named_step(line)
    return _read(line, found[1] if found else None)


def _read(line: str, step: str | None) -> Reading | None:
    evaluated, loss = _EVALUATED.search(line), _LOSS.search(line)
    if loss and evaluated and evaluated.start() < loss.start() < evaluated.end():
        loss = None
    if not (loss and step) and not evaluated:
        return None
    cells = {name: found[1] for name, pattern in _MORE.items() if (found := pattern.search(line))}
    cells |= {"loss": loss[1]} if loss else {}
    cells |= {"eval_loss": evaluated[1]} if evaluated else {}
    return Reading(whole(step), **{name: number(cell) for name, cell in cells.items()})


class _Epochs:
    """A line with a loss is of the epoch that it names, else of the heading above it, such as `Epoch 3/50`."""

    def __init__(self) -> None:
        self._heading: str | None = None

    def __call__(self, line: str) -> Reading | None:
        found = _EPOCH.search(line)
        made = _read(line, found[1] if found else self._heading)
        if found and found[2] and made is None:
            self._heading = found[1]
        return made and _told_apart(made, line)


def _told_apart(made: Reading, line: str) -> Reading:
    """`[valid] loss 3` is an evaluation: lines of an epoch are of its training or of that."""
    before = line.lower().partition("loss")[0]
    if isnan(made.eval_loss) and _OF_EVALUATION.search(before) and "train" not in before:
        return replace(made, loss=nan, eval_loss=made.loss)
    return made


def _fits(head: Head, asked: Asked) -> bool:
    return _tells(_parse, head.lines) or _by_epoch(head)


def _tells(parse: Callable[[str], Reading | None], lines: Sequence[str]) -> bool:
    found = 0
    for line in lines:
        if len(line) < LONGEST and (made := parse(line)) and made.step is not None:
            found += 1
            if found == _ENOUGH:
                return True
    return found > 0 and found >= len(lines) / 2


def _by_epoch(head: Head) -> bool:
    """No line names a step, except what is told once, such as the settings."""
    if "epoch" not in head.text.lower():
        return False
    short = [line for line in head.lines if len(line) < LONGEST]
    if sum(_named_step(line) is not None for line in short) >= _ENOUGH:
        return False
    if any((made := _parse(line)) and made.step is not None for line in short):
        return False
    epochs = _Epochs()
    return _tells(lambda line: made if (made := epochs(line)) and made.trained else None, short)


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    by_epoch = _by_epoch(head)
    source.notes.say("No format that is known; step, loss, learning rate and gradient norm were guessed from words.")
    if by_epoch:
        source.notes.say("There is no step; epochs stand for steps.")
    parse = _Epochs() if by_epoch else _parse
    return as_asked(by_line(source, parse, LONGEST), _NAME, {"loss", "eval_loss"}, asked)


ANY_LOG = Format(_NAME, _fits, _readings, sure=False)
