"""Any log whose lines name a step and a loss; where no step is named, an epoch and a loss; where neither is, a loss."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import isnan, nan

from stabmon.readers.format import Format, Head
from stabmon.readers.log import LONGEST, as_asked, by_line
from stabmon.readers.log_words import (
    COUNTS,
    EPOCH,
    HEADING,
    MORE,
    OF_EVALUATION,
    evaluation,
    has_loss,
    may_evaluate,
    place,
    step,
    training,
)
from stabmon.readers.reading import Asked, Reading, number, whole
from stabmon.readers.source import Source

_NAME = "log"
_ENOUGH = 3


def _read(line: str, at: str | None, epoch: str | None = None) -> Reading | None:
    """`at`: its step; "": it is counted; None: a loss of the training is none. `epoch`: where no word of it tells."""
    if not has_loss(line):
        return None
    evaluated = evaluation(line)
    loss = None if at is None else training(line)
    if loss is None and evaluated is None:
        return None
    cells = {name: found[1] for name, pattern in MORE.items() if (found := pattern.search(line))}
    cells |= {"epoch": epoch} if epoch else {}
    cells |= {"loss": loss} if loss else {}
    cells |= {"eval_loss": evaluated} if evaluated else {}
    return Reading(whole(at), **{name: number(cell) for name, cell in cells.items()})


def _of_evaluation(line: str) -> bool:
    """`[valid] loss 3`: a line is of the training or of that."""
    before = line.partition("loss")[0] if may_evaluate(line) else ""
    return bool(OF_EVALUATION.search(before)) and "train" not in before


class _Steps:
    """A line that names a step, and the epoch that it or the heading above it names."""

    def __init__(self, apart: bool = False) -> None:
        """apart: lines of evaluations are among those of the training."""
        self._apart = apart
        self._heading: str | None = None

    def __call__(self, line: str) -> Reading | None:
        line = line.lower()
        if "epoch" in line and (found := HEADING.fullmatch(line)):
            self._heading = found[1]
        if not has_loss(line):
            return None
        named, within = step(line), None
        if named is None:
            within = place(line)
        epoch = within.epoch if within and within.epoch else self._heading
        made = _read(line, within.step if within else named, epoch)
        if made is None or not (self._apart and isnan(made.eval_loss) and _of_evaluation(line)):
            return made
        # What counts the batches of an evaluation is a part of it.
        return None if within else replace(made, loss=nan, eval_loss=made.loss)


class _Epochs:
    """A line with a loss is of the epoch that it names, else of the heading above it, such as `Epoch 3/50`."""

    def __init__(self) -> None:
        self._heading: str | None = None

    def __call__(self, line: str) -> Reading | None:
        line = line.lower()
        found = EPOCH.search(line)
        made = _read(line, found[1] if found else self._heading)
        if found and found[2] and made is None:
            self._heading = found[1]
        if made is not None and isnan(made.eval_loss) and _of_evaluation(line):
            return replace(made, loss=nan, eval_loss=made.loss)
        return made


def _counted(line: str) -> Reading | None:
    """A line that has a loss and nothing to place it by."""
    line = line.lower()
    made = _read(line, "")
    if made is not None and isnan(made.eval_loss) and _of_evaluation(line):
        return replace(made, loss=nan, eval_loss=made.loss)
    return made


def _fits(head: Head, asked: Asked) -> bool:
    if _is_document(head):
        return False
    return _tells(_Steps(), head.lines) or _by_epoch(head) or _by_count(head)


def _is_document(head: Head) -> bool:
    """One JSON document in one line: what a line of it says is not what a log says."""
    if len(head.lines) != 1 or head.lines[0].lstrip()[:1] not in "{[":
        return False
    try:
        json.loads(head.lines[0])
    except (ValueError, RecursionError):
        return False
    return True


def _tells(parse: Callable[[str], Reading | None], lines: Sequence[str]) -> bool:
    found = 0
    for line in lines:
        if len(line) < LONGEST and (made := parse(line)) and made.step is not None:
            found += 1
            if found == _ENOUGH:
                return True
    return found > 0 and found >= len(lines) / 2


def _lines(head: Head) -> list[str]:
    """In small letters."""
    return [line.lower() for line in head.lines if len(line) < LONGEST]


def _by_epoch(head: Head) -> bool:
    """No line names a step, except what is told once, such as the settings."""
    short = _lines(head)
    if not any("epoch" in line for line in short):
        return False
    if sum(step(line) is not None or place(line) is not None for line in short) >= _ENOUGH:
        return False
    if any((made := _Steps()(line)) and made.step is not None for line in short):
        return False
    epochs = _Epochs()
    return _tells(lambda line: made if (made := epochs(line)) and made.trained else None, short)


def _by_count(head: Head) -> bool:
    """Most lines have a loss, and none names a step or an epoch."""
    short = _lines(head)
    if any(COUNTS.search(line) or place(line) is not None for line in short):
        return False
    found = sum((made := _counted(line)) is not None and made.trained for line in short)
    return found >= max(_ENOUGH, len(short) / 2)


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    source.notes.say("No format that is known; step, loss, learning rate and gradient norm were guessed from words.")
    parse: Callable[[str], Reading | None] = _Steps(apart=_has_training(head))
    if _by_epoch(head):
        source.notes.say("There is no step; epochs stand for steps.")
        parse = _Epochs()
    elif not _tells(_Steps(), head.lines):
        source.notes.say("There is no step; lines with a loss are counted instead.")
        parse = _counted
    return as_asked(by_line(source, parse, LONGEST), _NAME, {"loss", "eval_loss"}, asked)


def _has_training(head: Head) -> bool:
    """Some line with a loss does not speak of an evaluation, as a folder's name in all of them may."""
    parse = _Steps()
    return any((made := parse(line)) and made.trained and not _of_evaluation(line) for line in _lines(head))


ANY_LOG = Format(_NAME, _fits, _readings, sure=False)
