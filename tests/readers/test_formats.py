"""Every format is recognised by its content and read exactly."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from stabmon.readers import found, opened
from tests.readers.made import Made, json_array, json_lines, nanogpt, table, trainer_state
from tests.readers.makers import MAKERS
from tests.readers.reading import read

NAMES = [maker.__name__ for maker in MAKERS]


def exactly(pair: tuple[int, float]) -> object:
    """To float32's precision."""
    return (pair[0], pytest.approx(pair[1], rel=1e-6))


@pytest.mark.parametrize("maker", MAKERS, ids=NAMES)
def test_first_and_last_step_and_loss(maker: Callable[[], Made]) -> None:
    made = maker()
    found = read(made.text)
    assert found.recording.format == made.format
    assert found.losses[0] == exactly(made.first)
    assert found.losses[-1] == exactly(made.last)
    assert len(found.losses) == made.count
    steps = [step for step, _ in found.losses]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize("maker", MAKERS, ids=NAMES)
def test_gradient_norm_learning_rate_and_evaluation(maker: Callable[[], Made]) -> None:
    made = maker()
    found = read(made.text)
    for statistic, value in {
        "total_grad_norm": made.norm,
        "learning_rate": made.rate,
        "eval_loss": made.evaluation,
    }.items():
        of = found.of(statistic)
        assert (bool(of), of[0][1] if of else value) == (value == value, pytest.approx(value, rel=1e-5, nan_ok=True))


@pytest.mark.parametrize("maker", MAKERS, ids=NAMES)
@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.encode("utf-8-sig"),
        lambda text: text.encode("utf-16"),
        lambda text: text.encode("utf-16-be"),
        lambda text: text.encode("utf-32"),
        lambda text: gzip.compress(text.encode()),
    ],
    ids=["CRLF", "BOM", "UTF-16", "UTF-16 without a mark", "UTF-32", "gz"],
)
def test_encodings_change_nothing(maker: Callable[[], Made], encode: Callable[[str], bytes]) -> None:
    made = maker()
    found = read(encode(made.text))
    assert (found.recording.format, found.losses[0], found.losses[-1], len(found.losses)) == (
        *(made.format, exactly(made.first), exactly(made.last)),
        made.count,
    )


def test_a_file_is_found_whatever_it_is_called(tmp_path: Path) -> None:
    for i, maker in enumerate(MAKERS):
        (tmp_path / f"{i:02d}").write_text(maker().text)
    (tmp_path / "99").write_text("{}\n")
    paths = found([str(tmp_path)])
    assert [opened(path).format for path in paths] == [maker().format for maker in MAKERS]


def test_a_run_is_named_after_its_file_and_began_when_the_file_tells(tmp_path: Path) -> None:
    path = tmp_path / "my run.jsonl"
    path.write_text(
        '{"step": 1, "loss": 2, "timestamp": 1700000000.5}\n{"step": 2, "loss": 1, "timestamp": 1700000002}\n'
    )
    recording = opened(path)
    assert (recording.run.name, recording.run.started) == ("my run.jsonl", 1700000000.5)
    assert [snapshot.time for snapshot, _ in recording.feeds()] == [1700000000.5, 1700000002]
    assert recording.timed


def test_seconds_since_the_start_are_times_and_without_times_rows_are_counted() -> None:
    timed, untimed = read(json_lines().text), read(trainer_state().text)
    started = timed.recording.run.started
    assert [s.time - started for s, _ in timed.fed[:3]] == pytest.approx([0, 3.5, 7], abs=1e-3)
    assert timed.recording.timed
    assert not untimed.recording.timed


def test_what_was_seen_is_told() -> None:
    found = read(trainer_state(norms=False).text)
    assert found.recording.seen == {"loss", "learning_rate", "eval_loss"}


class Drops(io.RawIOBase):
    """A stream that gives seven bytes at a time."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def read1(self, size: int) -> bytes:
        return self._content.read(min(size, 7))


@pytest.mark.parametrize("maker", [trainer_state, json_array, json_lines, nanogpt, table])
def test_how_a_stream_is_cut_into_pieces_changes_nothing(maker: Callable[[], Made]) -> None:
    made = maker()
    recording = opened(Drops(made.text.encode()))  # type: ignore[arg-type]
    losses = [snapshot.scalar("loss") for snapshot, _ in recording.feeds()]
    assert recording.format == made.format
    assert sum(loss == loss for loss in losses) == made.count
