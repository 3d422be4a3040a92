"""Files that grow while they are read."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

import pytest

from stabmon.readers import ReadError, Recording, opened
from stabmon.readers.reading import Reading
from stabmon.readers.recording import _reread

SECONDS = 30.0
"""Long enough for a busy machine; none of it is waited for where things work."""


class Followed:
    """A recording that a thread reads; (step, loss) as they come."""

    def __init__(self, path: Path | None = None, stream: object = None) -> None:
        self.told: Queue[tuple[int, float]] = Queue()
        self.recording: Queue[Recording] = Queue()
        self._source = path or stream
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        recording = opened(self._source, follow=True)  # type: ignore[arg-type]
        self.recording.put(recording)
        for snapshot, _ in recording.feeds():
            self.told.put((snapshot.step, round(snapshot.scalar("loss"), 4)))

    def next(self, count: int) -> list[tuple[int, float]]:
        return [self.told.get(timeout=SECONDS) for _ in range(count)]

    def stop(self) -> None:
        self.recording.get(timeout=SECONDS).stop()
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()


@contextmanager
def following(path: Path) -> Iterator[Followed]:
    followed = Followed(path)
    yield followed
    followed.stop()
    with pytest.raises(Empty):
        followed.told.get_nowait()


def rows(*steps: int) -> str:
    return "".join(json.dumps({"step": step, "loss": 3 + step}) + "\n" for step in steps)


def told(*steps: int) -> list[tuple[int, float]]:
    return [(step, 3 + step) for step in steps]


def test_lines_are_told_as_they_come_the_last_one_too(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(rows(1, 2))
    with following(path) as followed:
        assert followed.next(2) == told(1, 2)
        with path.open("a") as file:
            file.write(rows(3))
            file.flush()
            assert followed.next(1) == told(3)
            text = rows(4)
            file.write(text[:9])  # half a line waits for its end
            file.flush()
            file.write(text[9:])
            file.flush()
            assert followed.next(1) == told(4)


def test_it_waits_for_a_file_to_have_something(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("")
    with following(path) as followed:
        path.write_text("step,loss\n1,4\n")
        assert followed.next(1) == told(1)


def replaced(path: Path) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(rows(1, 2))
    path.rename(path.with_suffix(".old"))
    fresh.rename(path)


def cut(path: Path) -> None:
    os.truncate(path, 0)
    with path.open("a") as file:
        file.write(rows(1, 2))


@pytest.mark.parametrize("rotate", [replaced, cut])
def test_a_log_that_is_rotated_is_followed_on(tmp_path: Path, rotate: Callable[[Path], None]) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(rows(*range(100, 140)))
    with following(path) as followed:
        assert followed.next(40) == told(*range(100, 140))
        rotate(path)
        assert followed.next(2) == told(1, 2)
        with path.open("a") as file:
            file.write(rows(3))
        assert followed.next(1) == told(3)


def test_a_state_that_is_written_anew_tells_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"

    def write(count: int) -> None:
        state = {"log_history": [{"step": i, "loss": 3 + i} for i in range(1, count + 1)]}
        fresh = path.with_suffix(".tmp")
        fresh.write_text(json.dumps(state))
        fresh.rename(path)

    write(3)
    with following(path) as followed:
        assert followed.next(3) == told(1, 2, 3)
        write(5)
        assert followed.next(2) == told(4, 5)


def test_a_state_that_is_gone_or_half_written_for_a_moment_is_followed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Hugging Face writes it: emptied, then filled. One that is whole and shorter is another run."""
    monkeypatch.setattr("stabmon.readers.recording.POLL_SECONDS", 0)
    outcomes: Iterator[float | BaseException] = iter(
        [3, 1.5, 1.5, 4, FileNotFoundError(), 5, ReadError("cut off"), 6, 2, 2, KeyboardInterrupt()]
    )

    def again() -> Iterator[Reading]:
        now = next(outcomes)
        if isinstance(now, BaseException):
            raise now
        yield from (Reading(step) for step in range(1, int(now) + 1))
        if now % 1:
            raise ReadError("cut off")

    steps: list[int | None] = []
    with pytest.raises(KeyboardInterrupt):
        steps.extend(reading.step for reading in _reread(again, threading.Event()) if reading)
    assert steps == [1, 2, 3, 4, 5, 6, 1, 2]


def test_a_pipe_is_read_while_it_is_written() -> None:
    there, here = os.pipe()
    with os.fdopen(there, "rb") as stream, os.fdopen(here, "w") as file:
        followed = Followed(stream=stream)
        file.write(rows(1))
        file.flush()
        assert followed.next(1) == told(1)
        file.write(rows(2))
        file.flush()
        assert followed.next(1) == told(2)
        file.close()
        followed.thread.join(SECONDS)
        assert not followed.thread.is_alive()


def test_what_waits_for_the_first_line_ends_with_the_pipe() -> None:
    there, here = os.pipe()
    os.close(here)
    with os.fdopen(there, "rb") as stream, pytest.raises(ValueError, match="is empty"):
        opened(stream, follow=True)
