"""JSON documents whose lists are the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stabmon.readers import ReadError, found, opened
from tests.readers.reading import read

LOSSES = [3.0, 2.5, 2.25, 2.0]
HELD = [3.5, 3.0, 2.75, 2.5]
HISTORY = {"accuracy": [0.5] * 4, "loss": LOSSES, "val_loss": HELD}
COUNTED = list(enumerate(LOSSES, 1))
INF = float("inf")


def points(values: list[float], every: int = 10) -> list[list[float]]:
    return [[every * i, value] for i, value in enumerate(values, 1)]


def column(values: list[float]) -> dict[str, float]:
    """As pandas' DataFrame.to_json writes it."""
    return {str(i): value for i, value in enumerate(values)}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    "document",
    [
        HISTORY,
        {"history": HISTORY},
        {"final_loss": 1.2, "config": {"lr": 0.1, "layers": [64, 64]}, "results": {"history": HISTORY}},
        {"train": {"loss": LOSSES, "acc": [0.5] * 4}, "val": {"loss": HELD, "acc": [0.5] * 4}},
        {"loss": {"train": LOSSES, "val": HELD}},
        {"train_losses": LOSSES, "val_losses": HELD},
        {name: column(values) for name, values in HISTORY.items()},
    ],
    ids=["bare", "history", "among others", "by part", "by metric", "losses", "pandas"],
)
def test_a_history_is_read_wherever_it_stands(document: object, indent: int | None) -> None:
    part = read(json.dumps(document, indent=indent))
    assert part.losses == COUNTED
    assert part.of("eval_loss") == list(enumerate(HELD, 1))


@pytest.mark.parametrize(
    ("document", "steps"),
    [
        ({"history": HISTORY, "epoch": [0, 1, 2, 3], "params": {"epochs": 4}}, [0, 1, 2, 3]),
        ({"losses": LOSSES, "steps": [10, 20, 30, 40]}, [10, 20, 30, 40]),
        ({"train_loss": points(LOSSES)}, [10, 20, 30, 40]),
        ({"logs": {"train_loss": points(LOSSES), "acc": points([0.5, 0.6])}}, [10, 20, 30, 40]),
        ({"loss": {str(step): loss for step, loss in zip((5, 10, 100, 200), LOSSES, strict=True)}}, [5, 10, 100, 200]),
    ],
)
def test_steps_are_read_where_they_are_told(document: object, steps: list[int]) -> None:
    assert read(json.dumps(document)).losses == list(zip(steps, LOSSES, strict=True))


def test_points_of_an_evaluation_go_with_the_next_loss() -> None:
    part = read(json.dumps({"train_loss": points(LOSSES), "val_loss": [[15, 3.5], [40, 2.5]]}))
    assert part.losses == [(10 * step, loss) for step, loss in COUNTED]
    assert part.of("eval_loss") == [(20, 3.5), (40, 2.5)]


def test_lists_that_may_be_anything_are_refused_with_their_names_and_read_by_them() -> None:
    document = json.dumps({"train": points(LOSSES), "val": points(HELD)})
    with pytest.raises(ReadError, match=r"\(its lists are train, val; name the one of the loss with --loss\)"):
        read(document)
    assert read(document, loss="train").losses == [(10 * step, loss) for step, loss in COUNTED]


def test_a_list_of_another_length_counts_something_else_and_is_left_out() -> None:
    part = read(json.dumps({"history": {"loss": [3.0] * 40, "val_loss": HELD}}))
    assert (len(part.losses), part.of("eval_loss")) == (40, [])
    assert "Lists that are not as long as 'loss' were left out: val_loss." in part.notes


def test_values_that_are_not_finite_stay_so() -> None:
    assert read('{"history": {"loss": [3.0, NaN, 2.0]}}').losses == [(1, 3.0), (2, INF), (3, 2.0)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps({"history": HISTORY})[:-9], "looks like JSON that is cut off or damaged; write it again, or give"),
        (json.dumps(HISTORY)[:-9], "looks like a history of Keras, but is cut off or damaged"),
        ('{"loss": [3.0, "x"], "sizes": [1, 2]}', "no list that looks like a loss; name one with --loss: sizes$"),
        (str({"loss": LOSSES, "val_loss": HELD}), "like what Python prints of a dict; write it with json.dump instead"),
        ('{"loss": [3.0, "x"]}', "name one with --loss: none of numbers$"),
        ('{"loss": [[3.0, 2.5, 2.25], [2.0, 1.5, 1.25]]}', "is no number; name the columns or keys with --loss"),
    ],
)
def test_a_refusal_says_what_is_wrong_with_the_document(text: str, said: str) -> None:
    with pytest.raises(ReadError, match=said):
        read(text)


def test_rows_two_levels_deep_are_read() -> None:
    rows = [{"step": 10 * step, "loss": loss} for step, loss in COUNTED]
    held = [{**row, "loss": 9.0} for row in rows]
    part = read(json.dumps({"config": {"lr": 0.1}, "history": {"val": held, "train": rows}}))
    assert part.losses == [(10 * step, loss) for step, loss in COUNTED]
    assert "Rows read from 'train', and not from val." in part.notes


def test_the_first_of_json_lines_stays_one() -> None:
    lines = ['{"epoch": 1, "loss": 3.0, "class_loss": [1, 2]}', '{"epoch": 2, "loss": 2.5, "class_loss": [1, 2]}']
    assert read(lines[0]).losses == [(1, 3.0)]
    assert read("\n".join(lines)).losses == [(1, 3.0), (2, 2.5)]


def test_values_without_a_name_are_the_loss_where_the_files_name_says_so(tmp_path: Path) -> None:
    """TensorBoard's JSON of a scalar, and `json.dump(losses)`."""
    scalar = [[1700000000.5 + i, 10 * i, loss] for i, loss in COUNTED]
    for name, content in (
        ("losses.json", LOSSES),
        ("sizes.json", LOSSES),
        ("run-a-tag-loss.json", scalar),
        ("run-a-tag-lr.json", scalar),
    ):
        (tmp_path / name).write_text(json.dumps(content))
    read_of = {
        path.name: [(s.step, s.scalar("loss")) for s, _ in opened(path).feeds()] for path in found([str(tmp_path)])
    }
    assert read_of == {"losses.json": COUNTED, "run-a-tag-loss.json": [(10 * i, loss) for i, loss in COUNTED]}
    for name in ("sizes", "run-a-tag-lr"):
        with pytest.raises(ReadError, match="does not say that it is a loss; give .* --loss Value$"):
            opened(tmp_path / f"{name}.json")
        assert len(list(opened(tmp_path / f"{name}.json", loss="Value").feeds())) == 4
    assert "nor its name, says what 'Value' is" in read(json.dumps(scalar)).notes
    with pytest.raises(ReadError, match="does not say that it is a loss"):
        read(json.dumps(LOSSES))
