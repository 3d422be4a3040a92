"""The live screen in a terminal of its own, and what it does when the numbers stop coming."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pyte
import pytest
from rich.console import Console

from stabmon.watch.live import _Watched
from stabmon.watch.source import Local, NoAnswer
from tests.server.recorded import Writing

ROWS, COLUMNS = 30, 100
PATIENCE_SECONDS = 60.0


class Terminal:
    """`stabmon watch` in a terminal of 100 x 30, and what is on its screen."""

    def __init__(self, *arguments: str) -> None:
        self._here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.modes = termios.tcgetattr(there)
        self._there = there
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""}
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from stabmon.cli import main; main()", "watch", *arguments],
            stdin=there, stdout=there, stderr=there, env=environment, start_new_session=True,
        )  # fmt: skip
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""

    def shows(self, wanted: Callable[[str], bool]) -> str:
        """The text of the screen once it is as wanted."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            text = "\n".join(line.rstrip() for line in self._screen.display)
            if wanted(text):
                return text
            if select.select([self._here], [], [], 0.2)[0]:
                self._take()
        raise AssertionError(f"not within {PATIENCE_SECONDS} s; it shows:\n{text}")

    def press(self, key: bytes) -> None:
        os.write(self._here, key)

    def ended(self) -> int:
        """The exit code; the terminal must be as it was."""
        end = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self._here], [], [], 0.1)[0]:  # a full terminal would hold it up
                self._take()
        assert self.process.poll() is not None
        while select.select([self._here], [], [], 0)[0]:
            self._take()
        assert termios.tcgetattr(self._there) == self.modes
        assert self.raw.count(b"\x1b[?1049h") == self.raw.count(b"\x1b[?1049l") == 1
        assert self.raw.count(b"\x1b[?25l") == self.raw.count(b"\x1b[?25h")
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for end in (self._here, self._there):
            os.close(end)

    def _take(self) -> None:
        data = os.read(self._here, 65536)
        self.raw += data
        self._stream.feed(data)


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def make(*arguments: str) -> Terminal:
        made.append(Terminal(*arguments))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_it_follows_a_run_without_flicker_until_q(tmp_path: Path, terminal: Callable[..., Terminal]) -> None:
    writing = Writing(tmp_path / "r1.stabmon", start=time.time())  # so that it is young however busy the machine is
    writing.step(60)
    screen = terminal(str(writing.path))
    text = screen.shows(lambda text: "step 60" in text)
    assert "✓ Healthy" in text
    assert "norm input     60 layer 0" in text
    first = len(screen.raw)
    writing.step(3)
    screen.shows(lambda text: "step 63" in text)
    # Drawn over, never erased first.
    assert b"\x1b[2J" not in screen.raw[first:]
    assert b"\x1b[J" not in screen.raw[first:]
    writing.close()
    kept = writing.path.read_bytes()
    writing.path.unlink()
    text = screen.shows(lambda text: "is not there. Trying again; q leaves." in " ".join(text.split()))
    assert "step 63" in text
    writing.path.write_bytes(kept)
    screen.shows(lambda text: "q leaves" not in text and "finished  step 63" in text)
    screen.press(b"q")
    assert screen.ended() == 0


@pytest.mark.parametrize(("by", "code"), [("key", 0), ("signal", 128 + signal.SIGTERM)])
def test_ctrl_c_and_a_signal_leave_the_terminal_as_it_was(
    tmp_path: Path, terminal: Callable[..., Terminal], by: str, code: int
) -> None:
    writing = Writing(tmp_path / "r1.stabmon")
    writing.step(5)
    screen = terminal(str(tmp_path))
    screen.shows(lambda text: "step 5" in text)
    if by == "key":
        screen.process.send_signal(signal.SIGINT)
    else:
        screen.process.terminate()
    assert screen.ended() == code


def drawn(watched: _Watched) -> str:
    """The text, in one line however it was wrapped."""
    out = StringIO()
    Console(width=100, file=out).print(watched.drawn(100))
    return " ".join(out.getvalue().split())


def test_what_was_seen_stays_and_grows_older_while_there_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = Writing(tmp_path / "r1.stabmon", start=time.time() - 3)
    writing.step(3)
    source, now = Local(writing.path), 1000.0
    monkeypatch.setattr("stabmon.watch.live.time.monotonic", lambda: now)
    watched = _Watched(source)
    watched.refresh(first=True)
    (before,) = map(int, re.findall(r"newest step (\d+) s ago", drawn(watched)))
    now += 50
    monkeypatch.setattr(source, "run", _away)
    watched.refresh()
    text = drawn(watched)
    assert "nobody there. Trying again; q leaves. This is what was seen 50 s ago:" in text
    assert f"newest step {before + 50} s ago" in text


def test_what_can_never_be_had_ends_it_at_once_and_what_may_come_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Local(tmp_path / "r1.stabmon")
    waiting = _Watched(source)
    waiting.refresh(first=True)
    assert "is not there. Trying again; q leaves." in drawn(waiting)
    (tmp_path / "r1.stabmon").write_bytes(b"no run log")
    with pytest.raises(NoAnswer, match="not a readable stabmon run log"):
        _Watched(source).refresh(first=True)


def _away() -> None:
    raise NoAnswer("nobody there", passing=True)
