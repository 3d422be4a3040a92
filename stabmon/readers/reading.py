"""What a format reads off one row or line, before it is known what comes beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import inf, isfinite, nan

import numpy as np

LARGEST = float(np.finfo(np.float32).max)
LARGEST_STEP = 2**53
_OF_ALL = re.compile(r"(\d{1,15})/\d{1,15}")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")


class ReadError(ValueError):
    """A file that cannot be read: its name, what was found, what can be read, what to do. One line, for people."""


class NoRun(ReadError):
    """It is about runs, and no run itself."""


class Notes(list[str]):
    """Sentences for people, each told once."""

    def say(self, text: str) -> None:
        if text not in self:
            self.append(text)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user named; None: it is guessed."""

    loss: str | None = None
    step: str | None = None
    run: str | None = None
    every: bool = False
    """All runs of the file, each reading with the name of its own."""


@dataclass(slots=True)
class Reading:
    """NaN: not read. Inf: read and not finite."""

    step: int | None = None
    """None: the file does not tell."""
    loss: float = nan
    grad_norm: float = nan
    learning_rate: float = nan
    eval_loss: float = nan
    skipped: float = nan
    """1 where the optimizer skipped the step, 0 where it did not."""
    epoch: float = nan
    time: float = nan
    """Unix seconds, or seconds since the start."""
    bare: bool = field(default=False, init=False)
    """Not finite because nothing is in its row, unless it is the last one."""

    run: str = field(default="", init=False)
    """Where every run is read."""

    @property
    def trained(self) -> bool:
        """It tells of a training step, not of an evaluation or of nothing."""
        return self.loss == self.loss or self.grad_norm == self.grad_norm or self.skipped == 1


def number(cell: object) -> float:
    """A cell as a float32 can hold it: NaN where it is blank, Inf where it is not finite. ValueError: no number."""
    if type(cell) is float and -LARGEST <= cell <= LARGEST:  # nearly all of them
        return cell
    if isinstance(cell, str):
        value = _of_text(cell) if cell else nan
        if value != value and not cell.strip():
            return nan
    elif cell is None:
        return nan
    elif isinstance(cell, int | float) and not isinstance(cell, bool):
        value = float(cell) if isinstance(cell, float) or abs(cell) < LARGEST_STEP else _of_integer(cell)
    else:
        raise ValueError(f"{str(cell)[:40]!r} is no number")
    if -LARGEST <= value <= LARGEST:
        return value
    return max(min(value, LARGEST), -LARGEST) if isfinite(value) else inf


def _of_integer(cell: int) -> float:
    return float(max(min(cell, int(LARGEST)), -int(LARGEST)))


def _of_text(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        cell = cell.strip().rstrip(",")
        if cell.count(",") == 1 and not _THOUSANDS.fullmatch(cell):
            return float(cell.replace(",", "."))  # 2,5 as much of Europe writes it
        if "," in cell and not _THOUSANDS.fullmatch(cell):
            raise
        return float(cell.replace(",", "")) if cell else nan


def whole(cell: object) -> int | None:
    """A step, also one such as `5/100`; None where it is blank. ValueError: no number of steps."""
    if type(cell) is int and 0 <= cell < LARGEST_STEP:
        return cell
    if isinstance(cell, str) and (found := _OF_ALL.fullmatch(cell)):
        cell = found[1]
    value = number(cell)
    if value != value:
        return None
    if not 0 <= value < LARGEST_STEP:
        raise ValueError(f"{str(cell)[:40]!r} is no step")
    return int(value)
