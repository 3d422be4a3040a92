"""MosaicML Composer, LLM Foundry: a line with the batch, then a line a metric."""

import re
from collections.abc import Iterator
from math import nan

from stabmon.readers.format import Format, Head
from stabmon.readers.log import LONGEST, as_asked, by_line, expression
from stabmon.readers.reading import Asked, Reading, number, whole
from stabmon.readers.source import Source

_STEP = re.compile(r"\[(?:epoch=(\d+)(?:/\d+)?\]\[)?batch=(\d+)/\d+\]:")
_METRIC = expression(r"^\s+(Train|Eval) ([^:\n]{1,80}): (NUMBER)\s*$")
_NAME = "Composer log"


def _fits(head: Head, asked: Asked) -> bool:
    return "Train loss/train" in head.text and bool(_STEP.search(head.text))


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    return as_asked(by_line(source, _Lines(), LONGEST), _NAME, {"loss", "eval_loss"}, asked)


class _Lines:
    """Readings of one step are united later."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._epoch = nan

    def __call__(self, line: str) -> Reading | None:
        if match := _STEP.search(line):
            self._epoch, self._step = number(match[1]), whole(match[2])
            return None
        if self._step is None or not (match := _METRIC.match(line)):
            return None
        field = _field(match[1], match[2].lower())
        return Reading(self._step, epoch=self._epoch, **{field: number(match[3])}) if field else None


def _field(part: str, name: str) -> str:
    """Of Reading; "" where it is none of them."""
    if part == "Eval":
        return "eval_loss" if name.endswith("languagecrossentropy") or name.startswith("loss/eval") else ""
    if name.startswith("lr-"):
        return "learning_rate"
    return {"loss/train/total": "loss", "loss/train": "loss", "l2_norm/grad/global": "grad_norm"}.get(name, "")


COMPOSER = Format(_NAME, _fits, _readings)
