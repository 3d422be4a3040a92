"""Keys that are pressed while the screen is up."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from select import select

Pressed = Callable[[float], bool]
"""Waits so many seconds at most; whether q was pressed meanwhile."""


@contextmanager
def keys() -> Iterator[Pressed]:
    """Each key at once and unseen; afterwards the terminal is as it was. Without a keyboard nothing is ever pressed."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield _wait
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _pressed(seconds: float) -> bool:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select([sys.stdin], [], [], left)[0]:
            key = sys.stdin.read(1)
            if key in ("q", "Q", ""):  # "": the terminal is gone
                return True
    return False
