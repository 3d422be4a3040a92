"""What Keras prints while it trains, of any version: a line an epoch, then a bar that is drawn again and again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isnan

from stabmon.readers import names
from stabmon.readers.format import Format, Head
from stabmon.readers.log import LONGEST, as_asked, by_line, expression
from stabmon.readers.reading import Asked, Notes, Reading, number, whole
from stabmon.readers.source import Source

_EPOCH = re.compile(r"^[\x08\s]*Epoch:? (\d{1,9})/(\d{1,9})\s*$", re.MULTILINE)
_BAR = re.compile(r"[\x08\s]*(?:(\d{1,15})/(\d{1,15}) (?:\[[=>.]*\] - |━+ |- )|- )(?=ETA|\d)")
_CELL = expression(r" - ([\w/.]{1,80}): (NUMBER)(?![\w.])")
_NAME = "Keras log"


def _fits(head: Head, asked: Asked) -> bool:
    if not _EPOCH.search(head.text):
        return False
    return any(_loss(_cells(line)) for line in head.lines if len(line) < LONGEST and _BAR.match(line))


def _cells(line: str) -> dict[str, str]:
    return dict(_CELL.findall(line))


def _loss(cells: dict[str, str]) -> str:
    """The name of the training's; "" where there is none."""
    return next(iter(names.best("loss", dict.fromkeys(cells, 1))), "")


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    bars = _Bars(source.notes)
    return as_asked(_held(by_line(source, bars, LONGEST), bars), _NAME, {"loss", "eval_loss"}, asked)


def _held(readings: Iterator[Reading | None], bars: _Bars) -> Iterator[Reading | None]:
    """With what the bars hold back once nothing more comes."""
    for made in readings:
        if made is None and bars.settled:
            yield bars.take()
        yield made
    if (made := bars.take()) is not None:
        yield made


class _Bars:
    """Holds an epoch's last bar back: it is drawn once more, with the validation, when that is done."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._epoch, self._steps = 0, ""
        self._open = self._samples = False
        self._validated = True
        self._last: Reading | None = None

    def __call__(self, line: str) -> Reading | None:
        if match := _EPOCH.match(line):
            made = self.take()
            once = match[2] == "1"  # a loop around fits of one epoch each
            self._epoch, self._open = self._epoch + 1 if once else int(match[1]), True
            return made
        if line.startswith("Train on "):
            self._samples = True
        if self._open and (match := _BAR.match(line)):
            self._drawn(match[1] or "", match[2] or "", _cells(line), "/sample" in line)
        return None

    @property
    def settled(self) -> bool:
        """What is held back is an epoch's last."""
        return self._last is not None and (not self._validated or not isnan(self._last.eval_loss))

    def take(self) -> Reading | None:
        """What is held back; the epoch is over."""
        made, self._last, self._open, self._steps = self._last, None, False, ""
        if made is not None:
            self._validated = not isnan(made.eval_loss)
        return made

    def _drawn(self, done: str, steps: str, cells: dict[str, str], samples: bool) -> None:
        loss = _loss(cells)
        if not loss or (self._steps and steps != self._steps):  # of a prediction or an evaluation in between
            return
        self._steps = steps
        if done != steps:
            self._open = self._last is None  # begun again: an evaluation of as many steps
            return
        more = Reading(None, number(cells[loss]), epoch=self._epoch)
        more.eval_loss = number(cells.get(f"val_{loss}"))
        more.learning_rate = number(cells.get("learning_rate", cells.get("lr")))
        if self._last is not None and isnan(more.eval_loss) and not isnan(self._last.eval_loss):
            return
        told = bool(steps) and not samples and not self._samples
        more.step = whole(self._epoch * int(steps) if told else self._epoch)
        self._notes.say("A step is the epoch times its steps." if told else "There is no step; epochs stand for steps.")
        self._last = more


KERAS_CONSOLE = Format(_NAME, _fits, _readings)
