"""The bytes of a file, a pipe or a growing file: unpacked, looked at before they are read, never all in memory."""

from __future__ import annotations

import gzip
import os
import select
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Event as Stop
from typing import BinaryIO, cast

from stabmon.readers.reading import Notes, ReadError

CHUNK = 1 << 18
HEAD = 8 << 20
"""What is looked at, at most, to tell what a file is: logs may begin with megabytes of something else."""
POLL_SECONDS = 0.5
FREE = 4 << 20
MOST_RATIO = 250
"""Real logs pack 3 to 40 times; above this after 4 MB it is a bomb, or not a log. Tens of MB of tiny rows would take
minutes until they are refused."""


class Source:
    """Named bytes. `chunks` tells them from the start, what was looked at included."""

    def __init__(self, stream: BinaryIO, name: str, path: Path | None, follow: bool, notes: Notes) -> None:
        self.name, self.path, self.follow, self.notes = name, path, follow, notes
        self.owned = path is not None
        """Whether it is closed here."""
        self.stopped = Stop()
        self.head = b""
        self.run = ""
        """Name of the run that is read, where the file tells it."""
        self.others: tuple[str, ...] = ()
        """Names of other runs in it."""
        self._stream: BinaryIO = stream
        self._raw = stream
        self._packed: _Counted | None = None
        self._out = 0
        self._ended = False

    def look(self) -> bool:
        """Look further into it; whether there was more. Waits for a file that is followed, up to `stop`."""
        if len(self.head) >= HEAD:
            return False
        if not (more := self._more()):
            return self.follow and not self._ended
        first, self.head = not self.head, self.head + more
        if first and self.head[:2] == b"\x1f\x8b":
            self._unpack()
        return True

    def chunks(self) -> Iterator[bytes]:
        """b"": a followed file has nothing new."""
        try:
            if self.head:
                yield self.head
            self.head = b""
            while not self._ended:
                more = self._more()
                if more or self.follow:
                    yield more
        finally:
            self.close()

    @property
    def ended(self) -> bool:
        """There is no more than what was looked at."""
        return self._ended

    def close(self) -> None:
        """A file that was opened for it; never a stream that somebody else opened."""
        if self.owned:
            self._raw.close()

    def __del__(self) -> None:  # of a recording that nobody reads to its end
        self.close()

    def _unpack(self) -> None:
        if self.follow:
            self.notes.say("A packed file does not grow; it was read to its end.")
            self.follow = False
        self._packed = _Counted(self.head, self._raw)
        self._stream = cast(BinaryIO, gzip.GzipFile(fileobj=cast(BinaryIO, self._packed)))
        self.head = b""
        self.head = self._more()
        if not self.head:
            raise ReadError(f"{self.name} is a damaged gz file, or packed from an empty one; pack it again")

    def _more(self) -> bytes:
        try:
            more = self._followed() if self.follow else self._read()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            if not self._out:
                raise ReadError(f"{self.name} is a damaged gz file ({error}); pack it again") from None
            self.notes.say("The gz file is damaged or cut off; what could be unpacked was read.")
            self._ended = True
            return b""
        self._out += len(more)
        if self._packed and self._out > FREE and self._out > MOST_RATIO * self._packed.count:
            raise ReadError(
                f"{self.name} unpacks to more than {MOST_RATIO} times its size, as no log does; unpack it yourself if "
                "you trust it"
            )
        return more

    def _read(self) -> bytes:
        read = getattr(self._stream, "read1", self._stream.read)
        more: bytes = read(CHUNK)
        self._ended = not more
        return more

    def _followed(self) -> bytes:
        """What is new; b"" after half a second without."""
        if self.stopped.is_set():
            self._ended = True
            return b""
        if self.path is None:
            return self._read() if _ready(self._stream) else b""
        if more := self._stream.read(CHUNK):
            return more
        if self._replaced():
            return b"\n" + self._stream.read(CHUNK)
        self.stopped.wait(POLL_SECONDS)
        return b""

    def _replaced(self) -> bool:
        """Whether the path now names another file, or one that was cut; that is then read from its start."""
        assert self.path is not None, "only a path is replaced"
        try:
            there = self.path.stat()
        except OSError:  # between the two halves of a rename
            return False
        here = os.fstat(self._stream.fileno())
        if (there.st_ino, there.st_dev) != (here.st_ino, here.st_dev):
            fresh = self.path.open("rb")
            self._stream.close()
            self._stream = self._raw = fresh
            return True
        if there.st_size < self._stream.tell():
            self._stream.seek(0)
            return True
        return False


class _Counted:
    """A packed stream, with the bytes that were already taken from it; counts what was read."""

    def __init__(self, taken: bytes, stream: BinaryIO) -> None:
        self._taken, self._stream, self.count = taken, stream, 0

    def read(self, size: int = -1) -> bytes:
        if self._taken:
            size = len(self._taken) if size < 0 else size
            more, self._taken = self._taken[:size], self._taken[size:]
        else:
            more = self._stream.read(size)
        self.count += len(more)
        return more


def _ready(stream: BinaryIO) -> bool:
    """Whether a read would not wait; true after at most half a second where nobody can tell."""
    try:
        return bool(select.select([stream.fileno()], [], [], POLL_SECONDS)[0])
    except (OSError, ValueError):
        return True
