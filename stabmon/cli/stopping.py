"""How a command that follows a file ends: it sums up, whoever ends it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

_ENDS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_gently(follow: bool, code: int) -> Iterator[None]:
    """What is followed is summed up also where a scheduler or a closed terminal ends it: their signal is a Ctrl-C. What
    nohup asked for holds. Before there is a verdict, it is a line and that exit code.
    """
    ends = _ENDS if follow else ()
    before = {each: signal.getsignal(each) for each in ends}
    for each in ends:
        if before[each] is not signal.SIG_IGN:
            signal.signal(each, _stop)
    try:
        yield
    except KeyboardInterrupt:
        if not follow:
            raise
        typer.echo("stabmon: stopped before there was a verdict", err=True)
        raise typer.Exit(code) from None
    finally:
        for each in ends:
            signal.signal(each, before[each])


def undisturbed(follow: bool) -> None:
    """From here on it sums up: schedulers send their signal to a group, and then once more. A Ctrl-C still ends it."""
    for each in _ENDS if follow else ():
        signal.signal(each, signal.SIG_IGN)


def _stop(number: int, frame: FrameType | None) -> None:
    undisturbed(follow=True)
    raise KeyboardInterrupt
