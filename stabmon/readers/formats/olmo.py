"""OLMo and OLMo-core: a line with the step, then a line a metric."""

import re
from collections.abc import Iterator

from stabmon.readers.format import Format, Head
from stabmon.readers.log import LONGEST, as_asked, by_line, expression
from stabmon.readers.reading import Asked, Reading, number, whole
from stabmon.readers.source import Source

_STEP = re.compile(r"\[step=([\d,]+)/[\d,]+[^\]\n]{0,100}\]")
_METRIC = expression(r"^\s+(train|optim|eval)/([^=\n]{1,80})=(NUMBER)\s*$")
_FIELDS = {
    ("train", "crossentropyloss"): "loss",
    ("train", "ce loss"): "loss",
    ("optim", "total_grad_norm"): "grad_norm",
    ("optim", "total grad norm"): "grad_norm",
    ("optim", "learning_rate_group0"): "learning_rate",
    ("optim", "lr (group 0)"): "learning_rate",
}
_NAME = "OLMo log"


def _fits(head: Head, asked: Asked) -> bool:
    return "\n    train/" in head.text and bool(_STEP.search(head.text))


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    return as_asked(by_line(source, _Lines(), LONGEST), _NAME, {"loss", "eval_loss"}, asked)


class _Lines:
    """Readings of one step are united later, so that each metric is one of its own."""

    def __init__(self) -> None:
        self._step: int | None = None

    def __call__(self, line: str) -> Reading | None:
        if match := _STEP.search(line):
            self._step = whole(match[1])
            return None
        if self._step is None or not (match := _METRIC.match(line)):
            return None
        part, name = match[1], match[2].lower()
        if part == "eval":
            is_loss = "loss" in name or "crossentropy" in name
            return Reading(self._step, eval_loss=number(match[3])) if is_loss else None
        field = _FIELDS.get((part, name))
        return Reading(self._step, **{field: number(match[3])}) if field else None


OLMO = Format(_NAME, _fits, _readings)
