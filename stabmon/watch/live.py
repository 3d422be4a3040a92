"""The screen that is drawn anew each second, until q or Ctrl-C."""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from stabmon.server.verdict import duration
from stabmon.watch.keys import keys
from stabmon.watch.screen import draw
from stabmon.watch.source import NoAnswer, Source
from stabmon.watch.view import View, look
from stabmon.watch.words import plain

EVERY_SECONDS = 1.0


def live(source: Source, console: Console) -> None:
    """Goes on where the numbers cannot be had for a while, and says so. NoAnswer: they never could, and will not."""
    signal.signal(signal.SIGTERM, _leave)
    watched = _Watched(source)
    watched.refresh(first=True)
    with keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as screen:
        try:
            while True:
                screen.update(watched.drawn(console.width), refresh=True)
                if pressed(EVERY_SECONDS):
                    return
                watched.refresh()
        except KeyboardInterrupt:
            return


class _Watched:
    """The newest view, and why there is none newer."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._view: View | None = None
        self._seen = time.monotonic()
        self._trouble = ""

    def refresh(self, first: bool = False) -> None:
        try:
            self._view, self._trouble = look(self._source), ""
            self._seen = time.monotonic()
        except NoAnswer as error:
            if first and not error.passing:
                raise
            self._trouble = str(error)

    def drawn(self, width: int) -> RenderableType:
        if not self._trouble:
            assert self._view is not None
            return draw(self._view, width)
        notice = f"{self._trouble}. Trying again; q leaves."
        if self._view is None:
            return Text(plain(notice))
        ago = time.monotonic() - self._seen
        older = None if self._view.age is None else self._view.age + ago
        view = self._view.model_copy(update={"age": older})
        return draw(view, width, f"{notice} This is what was seen {duration(ago)} ago:")


def _leave(signum: int, frame: FrameType | None) -> None:
    """So that the terminal is put back also where a scheduler ends it."""
    sys.exit(128 + signum)
