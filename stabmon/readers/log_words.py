"""How the lines of logs that nobody described name a step, an epoch and a loss. All take a line in small letters."""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

from stabmon.readers import names
from stabmon.readers.log import expression

_IS = r"['\"]?\s{0,4}[:=]?\s{0,6}['\"]?"
_STEP = re.compile(
    r"(?=[gtnsiub])\b(?:(?:global[_ ]?|train[_ ]?|num[_ ]?)?(?:step|iter|iteration|update|batch)s?"
    r"(?:\(train\)|\.{3} ?\()?|it(?=\s?[:=]))" + _IS + r"[#\[]?\s{0,6}(\d[\d,]{0,18})(?!\.?\d|\s?%|k\b)"
)
_BAR = re.compile(
    r"(?:\|| |(?<=\[))(\d{1,15})/ ?(\d{1,15}) (?:\[|batches|\(\s{0,3}\d{1,3}(?:\.\d{1,9})?%\)\]|[\d:]{4,9} •)"
)
_IN_EPOCH = (
    re.compile(
        r"\b(?:epoch|train)(?:\(train\))?\W{0,3}(\d{1,9})(?:/\d{1,9})?\]?[\s|,:-]{0,5}\[\s{0,9}(\d{1,15})/\s?\d{1,15}"
    ),
    re.compile(r"^\W{0,3}\[\s{0,3}(\d{1,9}),\s{0,9}(\d{1,15})\]"),
)
"""`Epoch: [0][  10/5005]`, and `[1,  2000]`."""
_OF_ALL = re.compile(r"\[\s{0,9}(\d{1,15})/\s?\d{1,15}\]")

_TRAINING = r"(?:train|training|tr|total|avg|lm)"
_EVALUATION = r"(?:val|valid|validation|eval|evaluation|test|dev)"


def _named(words: str) -> re.Pattern[str]:
    return expression(words + _IS + r"(?:(?:tensor|array|np\.float\d\d)\(\[?)?(NUMBER)")


_EVALUATED = _named(
    rf"(?=[vetdl])(?:\b{_EVALUATION}[_ /.-]?loss|(?<![a-z])loss[_ /.]?\(?{_EVALUATION}\b\)?|\bloss train NUMBER valid)"
)
_LOSS = _named(
    rf"(?=[talx])(?<![a-z])(?:{_TRAINING}[_ /.-]?)?(?:loss|xent)(?:[_ /.]?\(?{_TRAINING}(?![a-z])\)?){{0,2}}"
    r"(?:[_/]step)?(?: \(for[^)\n]{1,30}\))?(?: at (?:step|epoch|iteration) \d{1,15})?"
)
MORE = {
    "grad_norm": _named(r"(?=g)\b(?:grad(?:ient)?[_ ]?norm|gnorm)"),
    "learning_rate": _named(r"(?=l)\b(?:lr|learning[_ ]rate)"),
    "epoch": re.compile(r"\bepoch['\"]?\s{0,4}[:=]?\s{0,6}\[?(\d{1,9})"),
}
EPOCH = re.compile(r"(?<![a-z])epoch['\"]?\s{0,4}[:=#]?\s{0,6}\[?(\d{1,9})(?:\.0{1,9})?(?!\.?\d)(\s?/\s?\d)?")
"""Whole ones; the second group: of how many."""
HEADING = re.compile(
    r"[\W_]{0,80}(?:(?:start|begin|train)(?:n?ing)?\s(?:of\s)?)?epoch[\W_]{0,4}(\d{1,9})(?:\s?/\s?\d{1,9})?[\W_]{0,80}"
)
"""A line that names an epoch and nothing else."""
COUNTS = re.compile(r"\b(?:step|iter|iteration|update|batch|epoch)s?\W{0,4}\d")
"""Also of what is not read as a step, such as `step 10k` or `epoch 0.5`."""
OF_EVALUATION = re.compile(rf"\b{_EVALUATION}\b")
_BEFORE = re.compile(r"[\w/.-]*\Z")
_LONGEST_NAME = 40
_MOST = 50
"""Losses of a line."""


def has_loss(line: str) -> bool:
    """It may have one: nearly all that others read of a line costs more than this."""
    return "loss" in line or "xent" in line


class Place(NamedTuple):
    """Where in an epoch, or in all of it, a line is."""

    step: str
    epoch: str = ""


def step(line: str) -> str | None:
    """By its name."""
    found = _STEP.search(line)
    return found[1] if found else None


def place(line: str) -> Place | None:
    """By its shape, such as `[10/100]` or a progress bar."""
    for pattern in _IN_EPOCH if "[" in line else ():
        if found := pattern.search(line):
            return Place(found[2], found[1])
    if "/" not in line:
        return None
    found = _BAR.search(line)
    if not found and not EPOCH.search(line):  # beside an epoch it may be one of anything
        found = _OF_ALL.search(line)
    return Place(found[1]) if found else None


def evaluation(line: str) -> str | None:
    """The loss of one, as it is written."""
    found = _EVALUATED.search(line) if may_evaluate(line) else None
    return found[1] if found else None


def may_evaluate(line: str) -> bool:
    return "val" in line or "test" in line or "dev" in line


def training(line: str) -> str | None:
    """The likeliest loss of the training; `nll_loss` is one where nothing better is there, `best_loss` never."""
    others = [found.span() for found in islice(_EVALUATED.finditer(line), _MOST)] if may_evaluate(line) else []
    best, rank = None, float("inf")
    for found in islice(_LOSS.finditer(line), _MOST):
        if any(start < found.start() < end for start, end in others):
            continue
        before = _BEFORE.search(line, max(0, found.start() - _LONGEST_NAME), found.start())
        assert before is not None, "it may be empty"
        likely = names.loss(f"{before[0]}loss")
        if likely is not None and likely < rank:
            best, rank = found[1], likely
    return best
