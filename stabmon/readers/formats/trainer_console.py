"""What Hugging Face's trainer prints: a dict a logging step, without the step; a progress bar may tell it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stabmon.readers.format import Format, Head
from stabmon.readers.log import LONGEST, as_asked, by_line, expression
from stabmon.readers.reading import Asked, Reading, number, whole
from stabmon.readers.source import Source

_LINE = expression(
    r"\{'(?:loss|eval_loss)': '?NUMBER'?[,}]"
    r"|^(?:.{0,300}\])?\s?\{'(?!.{0,4000}'step').{1,4000}'(?:loss|eval_loss)': '?NUMBER'?,.{0,4000} 'epoch': '?NUMBER'?"
    r"\}",
    re.MULTILINE,
)
"""The loss first, or, where a trainer puts its own metrics before it, the epoch last."""
_CELL = expression(r"'(loss|grad_norm|learning_rate|eval_loss|epoch)': '?(NUMBER)")
_BAR = re.compile(r"(?:\| *|'global_step/max_steps': ')(\d+)/(\d+)(?: \[|')")
"""ms-swift tells the step in the line."""
_NAME = "Hugging Face trainer log"


def _fits(head: Head, asked: Asked) -> bool:
    return bool(_LINE.search(head.text))


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    if not _BAR.search(head.text):
        source.notes.say("There is no step; rows with a loss are counted instead.")
    return as_asked(by_line(source, _Lines(), LONGEST), _NAME, {"loss", "eval_loss"}, asked)


class _Lines:
    """Remembers the training's progress bar; an evaluation's has fewer steps."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._total = 0

    def __call__(self, line: str) -> Reading | None:
        for done, total in _BAR.findall(line):
            if int(total[:18]) >= self._total:
                self._step, self._total = whole(done), int(total[:18])
        if not _LINE.search(line):
            return None
        return Reading(self._step, **{name: number(cell) for name, cell in _CELL.findall(line)})


TRAINER_CONSOLE = Format(_NAME, _fits, _readings)
