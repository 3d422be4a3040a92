"""Every run of a file, in one pass."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stabmon.readers import ReadError, every_run, several
from stabmon.replays import replay, verdicts
from tests.readers.made import Made, wandb_export
from tests.readers.makers import MAKERS
from tests.readers.reading import read

NAMES = [maker.__name__ for maker in MAKERS]
HEADER = "run_id,step,loss,grad_norm,val_loss"


def rows_of(run: int, count: int = 30) -> list[str]:
    """With an evaluation at the end, a blank among its last losses, and a step that goes back in each third run."""
    made = [f"{run},{10 * i},{run + 3 - i / 50},{1 + i},"[:] for i in range(1, count + 1)]
    return [*made, f"{run},{10 * count},,,{run}.5", f"{run},{10 * count - 50 * (run % 3 == 0) + 10},{run},2,"]


def told(text: str) -> dict[str, list[tuple[object, ...]]]:
    """What each run was fed, in the order in which the runs ended."""
    fed: dict[str, list[tuple[object, ...]]] = {}
    over = []
    for recording, told in every_run(io.BytesIO(text.encode())):
        of = fed.setdefault(recording.run.name, [])
        if told is None:
            over.append(recording.run.name)
            continue
        snapshot, events = told
        of.append((snapshot.step, snapshot.values.tobytes(), [(event.kind, event.detail) for event in events]))
    return {name: fed[name] for name in over}


def alone(run: int) -> list[tuple[object, ...]]:
    of = told("\n".join([HEADER.removeprefix("run_id,"), *(row.partition(",")[2] for row in rows_of(run))]))
    return of["standard input"]


def mixed(runs: int) -> list[str]:
    return [row for rows in zip(*(rows_of(run) for run in range(runs)), strict=True) for row in rows]


def test_runs_one_after_the_other_and_runs_that_are_mixed_are_read_as_each_alone() -> None:
    after = told("\n".join([HEADER, *(row for run in range(5) for row in rows_of(run))]))
    among = told("\n".join([HEADER, *mixed(5)]))
    assert list(after) == list(among) == [str(run) for run in range(5)]
    assert after == among == {str(run): alone(run) for run in range(5)}


def test_a_run_that_begins_after_the_head_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sweep.csv"
    path.write_text("\n".join([HEADER, *rows_of(1, 20_000), *rows_of(2)]))
    found = list(verdicts(path))
    assert [(verdict.run, verdict.steps) for verdict in found] == [("1", 20_001), ("2", 31)]
    assert path.stat().st_size > 1 << 18


def test_more_runs_than_are_open_at_a_time() -> None:
    after = told("\n".join([HEADER, *(row for run in range(several.OPEN + 40) for row in rows_of(run, 2))]))
    assert list(after) == [str(run) for run in range(several.OPEN + 40)]
    assert after["7"] == told("\n".join([HEADER, *rows_of(7, 2), *rows_of(8, 2)]))["7"]


def test_a_run_that_comes_again_after_so_many_others_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(several, "OPEN", 3)
    over = []
    text = "\n".join([HEADER, *(row for run in (0, 1, 2, 3, 0) for row in rows_of(run))])
    with pytest.raises(ReadError, match=r"rows of run '0' come again after those of 3 others; sort it by run, then by"):
        over += [recording.run.name for recording, fed in every_run(io.BytesIO(text.encode())) if fed is None]


def test_what_was_begun_is_judged_before_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "OPEN", 3)
    path = tmp_path / "sweep.csv"
    path.write_text("\n".join([HEADER, *(row for run in (0, 1, 2, 3, 0) for row in rows_of(run))]))
    found = verdicts(path)
    assert [next(found).run for _ in range(4)] == ["0", "1", "2", "3"]
    with pytest.raises(ReadError):
        next(found)


def test_runs_of_an_export_are_read_in_one_pass() -> None:
    of = told(wandb_export().text)
    assert {name: len(fed) for name, fed in of.items()} == {"second run": 40, "first run": 20}
    first = read(wandb_export().text, run="first run")
    assert [fed[:2] for fed in of["first run"]] == [(s.step, s.values.tobytes()) for s, _ in first.fed]


def test_runs_of_json_lines_are_told_apart() -> None:
    text = "".join(f'{{"run": "{run}", "step": {i}, "loss": {i + ord(run)}}}\n' for i in range(4) for run in "ab")
    assert {name: len(fed) for name, fed in told(text + '{"note": "done"}\n').items()} == {"a": 4, "b": 4}


@pytest.mark.parametrize("maker", MAKERS, ids=NAMES)
def test_of_a_file_with_one_run_it_is_the_verdict_that_replay_gives(maker: Callable[[], Made], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(maker().text)
    found = list(verdicts(path))
    assert str(found[0]) == str(replay(path))
    assert (found[0].could_run, found[0].steps) == (replay(path).could_run, replay(path).steps)


def test_a_run_whose_id_is_the_number_0_is_one() -> None:
    rows = [{"run_id": run, "step": step, "loss": 3.0} for run in (0, 1) for step in (1, 2)]
    nameless = [{"run_id": run, "step": 3, "loss": 3.0} for run in (None, "")]
    text = "".join(json.dumps(row) + "\n" for row in [*rows, *nameless])
    assert {name: [step for step, *_ in fed] for name, fed in told(text).items()} == {"0": [1, 2], "1": [1, 2]}
    assert read(text).recording.run.name == "0"
