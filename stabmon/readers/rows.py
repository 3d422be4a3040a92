"""Rows with named cells, of JSON lines and tables alike: which name is what, and what a row tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf, isfinite, nan
from typing import Any

from stabmon.readers import names
from stabmon.readers.blanks import Blanks
from stabmon.readers.reading import Asked, Notes, ReadError, Reading, number, whole

Row = Mapping[str, object]

OPEN = 1024
"""So many runs of one file are read at a time; each takes up to 350 KB with its detectors."""
_EVALUATIONS = 5
"""So many without a training loss: there is none, and the evaluation's is read instead."""
_MORE = ("learning_rate", "grad_norm", "eval_loss", "epoch", "time")


def flat(row: Mapping[str, object]) -> dict[str, object]:
    """`{"train": {"loss": 1}}` as `train/loss`, one level deep."""
    made: dict[str, object] = {}
    for name, cell in row.items():
        if isinstance(cell, dict):
            made |= {f"{name}/{inner}": value for inner, value in cell.items()}
        else:
            made[name] = cell
    return made


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """Numbers seen of each name that any row has."""
    found: dict[str, int] = {}
    for row in rows:
        for name, cell in row.items():
            found[name] = found.get(name, 0) + _numeric(cell)
    return found


def _numeric(cell: object) -> bool:
    try:
        value = number(cell)
    except ValueError:
        return False
    return value == value


@dataclass(frozen=True)
class Roles:
    """The name that each is read from; "" where there is none."""

    loss: str
    step: str = ""
    learning_rate: str = ""
    grad_norm: str = ""
    eval_loss: str = ""
    epoch: str = ""
    time: str = ""
    run: str = ""
    """Name of the column that tells runs apart, where there are several."""
    read_run: str = ""
    every: bool = False
    """All of them are read."""
    others: tuple[str, ...] = ()
    """Other runs, those that the head has."""


def roles(rows: Sequence[Row], asked: Asked, notes: Notes, where: str) -> Roles | None:
    """Guessed from names and from how many numbers they have; said aloud. None: nothing looks like a loss.

    ReadError: what was asked for is not there.
    """
    seen = counts(rows)
    for option, name in (("loss", asked.loss), ("step", asked.step)):
        if name is not None and name not in seen:
            raise ReadError(f"{where} has no {name!r}; give one of these as --{option}: {listed(seen)}")
    losses, evaluations = names.best("loss", seen), names.best("eval_loss", seen)
    if not losses or (not seen[losses[0]] and evaluations and seen[evaluations[0]] >= _EVALUATIONS):
        losses = evaluations
    if not (asked.loss or losses):
        return None
    chosen: dict[str, Any] = {role: next(iter(names.best(role, seen)), "") for role in _MORE}
    loss = asked.loss or losses[0]
    if chosen["eval_loss"] == loss:
        chosen["eval_loss"] = ""
    step = asked.step or next(iter(names.best("step", seen)), "")
    if _parts(rows, loss, step):
        notes.say(f"{step!r} counts in parts of a step, so it is not read.")
        step = ""
    step = step or (chosen["epoch"] if _counts_epochs(rows, loss, chosen["epoch"]) else "")
    made = replace(Roles(loss, step, **chosen), **_runs(rows, seen, asked, where))
    if made.others:
        read = "" if made.every else f"; {made.read_run!r} is read"
        notes.say(f"Several runs, told apart by {made.run!r}{read}.")
    _say(made, [name for name in losses if name != loss and seen[name]], notes)
    return made


def _runs(rows: Sequence[Row], seen: dict[str, int], asked: Asked, where: str) -> dict[str, Any]:
    """Which of several runs is read: the first, or the one that was asked for, which may come after the head."""
    column = next(iter(names.best("run", seen)), "")
    found = list(dict.fromkeys(name for row in rows if column and (name := _name(row.get(column)))))
    if asked.run is not None and not found:
        raise ReadError(f"{where} has no column that tells runs apart, so leave the run's name out")
    if asked.every:
        return {"run": column, "every": True, "others": tuple(found[1:])} if found else {}
    if len(found) + (asked.run is not None) < 2:
        return {}
    read = asked.run or found[0]
    return {"run": column, "read_run": read, "others": tuple(name for name in found if name != read)}


def _counts_epochs(rows: Sequence[Row], loss: str, epoch: str) -> bool:
    """Each row with a loss has an epoch of its own."""
    found = [number(row.get(epoch)) for row in rows if epoch and _numeric(row.get(loss)) and _numeric(row.get(epoch))]
    return bool(found) and all(value.is_integer() for value in found) and len(set(found)) == len(found)


def _parts(rows: Sequence[Row], loss: str, step: str) -> bool:
    """Rows with a loss that steps keep apart would be one by their whole part, as 0.1 and 0.2 of an epoch."""
    found = {number(row.get(step)) for row in rows if step and _numeric(row.get(loss)) and _numeric(row.get(step))}
    return len({value // 1 for value in found}) < len(found)


def _say(made: Roles, others: Sequence[str], notes: Notes) -> None:
    read = {"learning rate": made.learning_rate, "gradient norm": made.grad_norm, "evaluation loss": made.eval_loss}
    more = "".join(f", {what} from {name!r}" for what, name in read.items() if name)
    steps = f"step from {made.step!r}" if made.step else "steps counted"
    notes.say(f"Loss read from {made.loss!r}, {steps}{more}.")
    if others:
        notes.say(f"Other columns that may be a loss: {listed(others)}; name one with --loss to read it instead.")
    if made.step and made.step == made.epoch:
        notes.say("There is no step; epochs stand for steps.")
    elif not made.step:
        notes.say("There is no step; rows with a loss are counted instead.")


def listed(found: Sequence[str] | Mapping[str, int]) -> str:
    """The first names, in words."""
    shown = [name[:60] for name in found][:12]
    return ", ".join(shown) + (f" and {len(found) - len(shown)} more" if len(found) > len(shown) else "")


def reader(roles: Roles) -> Callable[[Row], Reading | None]:
    """Reads a row; None where it tells nothing. ValueError: a cell is no number."""
    if not roles.run:
        return _Rows(roles).read
    if roles.every:
        return _Runs(roles).read
    rows = _Rows(roles)
    return lambda row: rows.read(row) if _name(row.get(roles.run)) == roles.read_run else None


def _name(cell: object) -> str:
    """Of a run, which may be the number 0; "": none."""
    return "" if cell is None else str(cell)


class _Runs:
    """Rows of several runs; what was learnt of one is forgotten once `OPEN` others have come after it."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles
        self._open: dict[str, _Rows] = {}
        self._last = ""

    def read(self, row: Row) -> Reading | None:
        name = _name(row.get(self._roles.run))
        if name != self._last:
            self._open[name] = self._open.pop(name) if name in self._open else _Rows(self._roles)
            self._last = name
            if len(self._open) > OPEN:
                del self._open[next(iter(self._open))]
        if name and (made := self._open[name].read(row)) is not None:
            made.run = name
            return made
        return None


class _Rows:
    """Of one run."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles
        self._blanks = Blanks(roles.step, {roles.loss, roles.grad_norm}, {roles.step, roles.epoch, roles.time})
        self._evaluation, self._known = roles.eval_loss, 0

    def read(self, row: Row) -> Reading | None:
        get, roles = row.get, self._roles
        loss, norm, rate = number(get(roles.loss)), _number(get, roles.grad_norm), _number(get, roles.learning_rate)
        if loss != loss and not self._evaluation and len(row) != self._known:
            self._look_for_evaluation(row)
        evaluated = number(get(self._evaluation)) if self._evaluation else nan
        bare = False
        if loss == loss:
            step = whole(get(roles.step))
            self._blanks.learn(row, step)
        else:
            if self._blanks.hides(row):
                loss, bare = inf, self._blanks.bare and rate != rate
            elif evaluated != evaluated and norm != norm and rate != rate:
                return None
            step = whole(get(roles.step))
        time = when(get(roles.time)) if roles.time else nan
        made = Reading(step, loss, norm, rate, evaluated, nan, _number(get, roles.epoch), time)
        made.bare = bare
        return made

    def _look_for_evaluation(self, row: Row) -> None:
        """The first one may come late."""
        found = next(iter(names.best("eval_loss", counts([row]))), "")
        self._known, self._evaluation = len(row), "" if found == self._roles.loss else found


def _number(get: Callable[[str], object], name: str) -> float:
    return number(get(name)) if name else nan


def when(cell: object) -> float:
    """Unix seconds, or seconds since the start; NaN where it is neither."""
    if cell is None or cell == "":
        return nan
    try:
        value = number(cell)
    except ValueError:
        return _of_date(str(cell))
    if not isfinite(value):
        return nan
    return value / 1000 if value > 1e11 else value


def _of_date(text: str) -> float:
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        return nan
