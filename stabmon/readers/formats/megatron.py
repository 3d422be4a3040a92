"""Megatron-LM and its descendants. Its loss is left out where the loss scaler skipped every iteration of the line."""

import re
from collections.abc import Iterator
from math import inf

from stabmon.readers.format import Format, Head
from stabmon.readers.log import LONGEST, as_asked, by_line, expression
from stabmon.readers.reading import Asked, Reading, number, whole
from stabmon.readers.source import Source

_LINE = re.compile(r"\biteration\s+(\d+)/\s*\d+ \|")
_EVALUATED = expression(r"validation loss at iteration (\d+)[^|]{0,80}\|.{0,200}?\blm loss value: (NUMBER)")
_CELL = expression(r"([a-z][\w \-]{0,60}?)\s*(?:\(ms\))?:\s*(NUMBER) *\|")
_NAME = "Megatron-LM log"


def _fits(head: Head, asked: Asked) -> bool:
    return bool(_LINE.search(head.text))


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    return as_asked(by_line(source, _Lines(), LONGEST), _NAME, {"loss", "eval_loss"}, asked)


class _Lines:
    """Remembers the iteration before, which tells how many a line stands for."""

    def __init__(self) -> None:
        self._before = 0
        self._had = False

    def __call__(self, line: str) -> Reading | None:
        if match := _LINE.search(line):
            made = self._trained(whole(match[1]) or 0, dict(_CELL.findall(line, match.end())))
            return made if made.trained else None
        if match := _EVALUATED.search(line):
            return Reading(whole(match[1]), eval_loss=number(match[2]))
        return None

    def _trained(self, step: int, cells: dict[str, str]) -> Reading:
        loss = next(
            (number(cell) for name, cell in cells.items() if name in ("lm loss", "loss", "lm_loss")), number("")
        )
        skipped, spoiled = (
            number(cells.get("number of skipped iterations")),
            number(cells.get("number of nan iterations")),
        )
        if loss != loss and (spoiled > 0 or (self._had and skipped == 0)):
            loss = inf  # some versions leave a loss out that was NaN, and count neither
        self._had = self._had or loss == loss
        stands_for, self._before = max(step - self._before, 1), step
        return Reading(
            step,
            loss,
            number(cells.get("grad norm")),
            number(cells.get("learning rate")),
            skipped=float(skipped >= stands_for) if skipped == skipped else skipped,
        )


MEGATRON = Format(_NAME, _fits, _readings)
