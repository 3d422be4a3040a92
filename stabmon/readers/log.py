"""Logs whose lines a regular expression reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from stabmon.readers.format import Format, Head
from stabmon.readers.reading import Asked, ReadError, Reading, number, whole
from stabmon.readers.rows import when
from stabmon.readers.source import Source
from stabmon.readers.text import lines

NUMBER = r"[-+]?(?:(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,4})?|[nN][aA][nN]|[iI]nf(?:inity)?)"
"""Not finite ones too, and commas between thousands."""

LONGEST = 1 << 15
"""Characters of a line that an expression is tried on."""

_RANK = re.compile(r"\[(?:rank|default)(\d+)\]:?\s?")


def expression(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compiled, with a number for each `NUMBER`."""
    return re.compile(pattern.replace("NUMBER", NUMBER), flags)


def log(name: str, *patterns: str, alone: str = "") -> Format:
    """Lines that one of the patterns is found in; `NUMBER` stands for one, groups are named as Reading's fields.

    alone: read where no line has a loss by the others, as one that tells the training's beside the evaluation's.
    """
    found = [expression(pattern, re.MULTILINE) for pattern in patterns]
    groups = {group for pattern in found for group in pattern.groupindex}
    stepped = [pattern for pattern in found if "step" in pattern.groupindex]
    trained = [pattern for pattern in found if "loss" in pattern.groupindex]

    def fits(head: Head, asked: Asked) -> bool:
        return any(pattern.search(head.text) for pattern in stepped)

    def readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
        used = found
        if asked.loss is None and not source.follow and not _in_head(trained, source):
            if alone:
                source.notes.say("No line tells the loss of a step; that of the training at evaluations is read.")
                used = [expression(alone)]
            else:
                source.notes.say("It has evaluations only; their loss is read.")
                asked = replace(asked, loss="eval_loss")
        return as_asked(by_line(source, partial(_first, used), LONGEST), name, groups, asked)

    return Format(name, fits, readings)


def _first(patterns: list[re.Pattern[str]], line: str) -> Reading | None:
    for pattern in patterns:
        if match := pattern.search(line):
            return reading(match)
    return None


def _in_head(patterns: list[re.Pattern[str]], source: Source) -> bool:
    """Looks further until one is found, or there is no more to look at."""
    while True:
        text = Head(source.head, whole=True).text
        if any(pattern.search(text) for pattern in patterns):
            return True
        if not source.look():
            return False


def reading(match: re.Match[str]) -> Reading:
    """ValueError: a group is no number."""
    cells = match.groupdict()
    step, time = whole(cells.pop("step", None)), when(cells.pop("time", None))
    return Reading(step, time=time, **{name: number(cell) for name, cell in cells.items()})


def by_line(
    source: Source, parse: Callable[[str], Reading | None], longest: int | None = None
) -> Iterator[Reading | None]:
    """What `parse` makes of each line that is not longer; of several ranks in one log, the first that speaks."""
    kept: str | None = None
    spoiled = 0
    for line in lines(source.chunks(), source.notes, source.follow):
        if line is None:
            yield None
            continue
        if longest and len(line) > longest:
            continue
        rank = None
        if line[0] == "[" and (match := _RANK.match(line)):
            rank, line = match[1], line[match.end() :]
            if kept is not None and rank != kept:
                source.notes.say(f"Lines of several ranks; those of rank {kept} are read.")
                continue
        try:
            made = parse(line)
        except ValueError as error:
            spoiled += 1
            source.notes.say(f"A line was left out: {error}.") if spoiled == 1 else None
            continue
        if made is not None:
            kept = rank if kept is None else kept
            yield made
    if spoiled > 1:
        source.notes.say(f"{spoiled} lines in all were left out because they could not be read.")


def as_asked(readings: Iterator[Reading | None], name: str, groups: set[str], asked: Asked) -> Iterator[Reading | None]:
    """With the evaluation's loss as the loss where that was asked for. ReadError: the format has no such thing."""
    if asked.step is not None:
        raise ReadError(f"a {name} has no columns, so no {asked.step!r}; its lines tell the step, so leave --step out")
    if asked.run is not None:
        raise ReadError(f"a {name} is one run, so there is no {asked.run!r} in it; leave the run's name out")
    if asked.loss in (None, "loss"):
        return readings
    if asked.loss != "eval_loss" or "eval_loss" not in groups:
        has = " and ".join(sorted(groups & {"loss", "eval_loss"}))
        raise ReadError(f"a {name} has no {asked.loss!r}; it has {has}, so leave --loss out or name one of them")
    return (made and _evaluated(made) for made in readings)


def _evaluated(made: Reading) -> Reading:
    return Reading(made.step, loss=made.eval_loss, learning_rate=made.learning_rate, time=made.time)
