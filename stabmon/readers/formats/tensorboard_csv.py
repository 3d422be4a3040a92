"""The CSV that TensorBoard's page downloads of one scalar: what it is of stands in the file's name alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from stabmon.readers import names, table
from stabmon.readers.format import Format, Head
from stabmon.readers.reading import Asked, ReadError, Reading
from stabmon.readers.source import Source

_COLUMNS = ["Wall time", "Step", "Value"]
VALUE = "Value"
TAKEN = f"Nothing in the file, nor its name, says what {VALUE!r} is; it was taken for the loss."
_TAG = re.compile(r"-tag-(.+)")
_COPY = re.compile(r" ?\(\d+\)$")
_NO_LOSS = {"acc", "accuracy", "lr", "rate", "norm", "grad", "f1", "precision", "recall", "auc", "bleu", "rouge", "ppl"}
_NO_LOSS |= {"perplexity", "reward", "score", "time", "speed", "memory", "epoch", "momentum", "tokens", "samples"}


def _fits(head: Head, asked: Asked) -> bool:
    return table.header(head)[0] == _COLUMNS


def tag_of(name: str) -> str:
    """Of `run-train-tag-loss (1).csv`: loss. "": the file is not named as TensorBoard names it."""
    found = _TAG.search(_stem(name))
    return found[1] if found else ""


def _stem(name: str) -> str:
    bare = Path(name).name.removesuffix(".gz")
    return _COPY.sub("", bare.rpartition(".")[0] or bare)


def is_loss(name: str) -> bool | None:
    """What the file's name says its values are; None: it does not say."""
    told = tag_of(name) or _stem(name)
    if names.loss(told) is not None or names.eval_loss(told) is not None:
        return True
    return False if tag_of(name) or _NO_LOSS & set(names.words(told)) else None


def is_of_another(head: Head, name: str) -> bool:
    """It is such a file, of something else than a loss."""
    return _fits(head, Asked()) and is_loss(name) is False


def refusal(name: str) -> ReadError:
    told = tag_of(name) or _stem(name)
    return ReadError(
        f"{name} holds values of one thing, and the file's name, {told!r}, does not say that it is a loss; give the "
        f"file of the loss, or, if this is one, --loss {VALUE}"
    )


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    says = True if asked.loss else is_loss(source.name)
    if says is False:
        raise refusal(source.name)
    if says is None:
        source.notes.say(TAKEN)
    return table.readings(source, head, replace(asked, loss=asked.loss or VALUE))


TENSORBOARD_CSV = Format("TensorBoard CSV of a scalar", _fits, _readings)
