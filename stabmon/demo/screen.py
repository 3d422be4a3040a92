"""What the demo shows: the progress with its baselines, alerts as they come, and how it ended."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from threading import Event

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from stabmon.demo.training import PATIENCE, last_mean, patience
from stabmon.records import Alert


class Screen:
    """`unigram` and `bigram` are what a model scores that sees none, or one, of the bytes before (nats)."""

    def __init__(self, console: Console, unigram: float, bigram: float, steps: int) -> None:
        self.console, self.unigram, self.bigram, self.steps = console, unigram, bigram, steps

    @contextmanager
    def showing_the_log(self) -> Iterator[None]:
        """Where the metrics are, alerts and whatever else stabmon logs. Afterwards, logging is as it was."""
        handler, logger = _Panels(self.console), logging.getLogger("stabmon")
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)

    def start(self, length: int) -> None:
        """What is going on."""
        self._say(f"Training a small transformer on {length:,} bytes of Python source.")

    def progress(self, losses: Iterable[float]) -> Iterator[float]:
        """The losses as they come, with a bar."""
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=self.console) as bar:
            task = bar.add_task("", total=self.steps)
            for loss in losses:
                baselines = f"no context {self.unigram:.2f}, one byte {self.bigram:.2f}"
                bar.update(task, advance=1, description=f"loss {loss:.2f} ({baselines})")
                yield loss

    def hold(self, page_url: str) -> None:
        """Wait for Ctrl-C."""
        self._say(f"Serving until Ctrl-C: {page_url}")
        try:
            Event().wait()
        except KeyboardInterrupt:
            self._say("")

    def sum_up(self, losses: Sequence[float], alerts: Sequence[Alert], run_log: Path | None) -> None:
        """When stabmon warned, when a rule of patience did, what to do, and where the record lies."""
        alerts = [alert for alert in alerts if alert.severity != "info"]
        taken = "1 step" if len(losses) == 1 else f"{len(losses)} steps"
        spoke = ", ".join(f"{alert.severity} at step {alert.step}" for alert in alerts) or "no alert"
        waited = patience(losses)
        waiting = f"never within {taken}" if waited is None else f"at step {waited}"
        self._say(
            f"\nLoss {last_mean(losses):.2f} after {taken}; without any context {self.unigram:.2f}, "
            f"with one byte of it {self.bigram:.2f}."
        )
        self._say(f"stabmon: {spoke}.")
        self._say(f"Patience of {PATIENCE} steps without a better loss: {waiting}.")
        if alerts:
            self._say("What to do:")
            for number, remedy in enumerate(alerts[-1].remedies, 1):
                self._say(f"  {number}. {remedy}")
        if run_log:
            self._say(f"Run log: {run_log}")
            program = "stabmon" if which("stabmon") else sys.argv[0]
            self._say(f"Judge it again: {shlex.join([program, 'replay', str(run_log)])}")

    def _say(self, line: str) -> None:
        self.console.print(Text(line), soft_wrap=True)


class _Panels(logging.Handler):
    """One panel a record of level warning or above; the rest as plain lines."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        line = Text(self.format(record))
        if record.levelno < logging.WARNING:
            self._console.print(line, soft_wrap=True)  # an address that is broken in two cannot be clicked
        else:
            self._console.print(Panel(line, border_style="red" if record.levelno >= logging.ERROR else "yellow"))
