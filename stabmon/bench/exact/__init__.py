"""`stabmon bench exact`: every statistic against a second computation that shares no code with the taps."""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console

from stabmon.bench.clock import one_thread
from stabmon.bench.exact.cases import chosen, missing
from stabmon.bench.exact.compare import Cell, broken, cells, pooled
from stabmon.bench.exact.estimates import Pool
from stabmon.bench.exact.families import families
from stabmon.bench.exact.screen import markdown, show, write
from stabmon.bench.exact.twin import train
from stabmon.bench.exact.watched import watch
from stabmon.bench.isolation import own_settings


def exact(quick: bool = False, only: str = "", as_json: bool = False, page: Path | None = None) -> bool:
    """Compare and show; with `as_json` the last line of stdout is the result, and the rest goes to stderr. `page`: a
    Markdown file to write the summary into, between its marks. Returns whether every cell agrees.

    ValueError: no training fits `only`, or the page has no marks.
    """
    console = Console(stderr=as_json)
    started = time.monotonic()
    with console.status("") as status:
        found = []
        for cell, name in compared(quick, only):
            status.update(name)
            found.append(cell)
    if not found:
        raise ValueError(f"only={only!r} fits no training; give a part of 'model / loop / precision', such as 'GPT-2'")
    show(console, found, time.monotonic() - started)
    for line in left_out():
        console.print(line, highlight=False, markup=False)
    if page is not None:
        write(page, markdown(found))
    if as_json:
        sys.stdout.write(json.dumps({"cells": [asdict(cell) for cell in found]}) + "\n")
    return all(cell.agrees for cell in found)


def compared(quick: bool, only: str) -> Iterator[tuple[Cell, str]]:
    """Every cell, with the name of its training."""
    with one_thread(torch.device("cpu")), own_settings(), _quiet():
        pool = Pool()
        for plan, loop in chosen(families()[0], only, quick):
            name = f"{plan.family.name} / {plan.loop.name} / {plan.precision}"
            try:
                found = list(cells(plan, train(plan), watch(plan, loop), pool))
            except Exception as error:  # the other trainings have something to say
                found = [broken(plan, error)]
            yield from ((cell, name) for cell in found)
        yield from ((cell, "all") for cell in pooled(pool))


def left_out() -> Sequence[str]:
    """What is not compared because a package is not there, in words."""
    models = families()[1]
    return [*([models] if models else []), *missing()]


@contextmanager
def _quiet() -> Iterator[None]:
    """What stabmon, transformers and Lightning have to say of such trainings is not news; failures are in the cells."""
    logs = [logging.getLogger(name) for name in ("stabmon", "transformers", "lightning.pytorch")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    for log, level in zip(logs, levels, strict=True):
        log.setLevel(level)
