"""JSON objects that hold a run, and those that do not."""

from __future__ import annotations

import json

import pytest

from stabmon.readers import ReadError
from tests.readers.reading import read

ROWS = [{"step": step, "loss": loss} for step, loss in ((1, 3.0), (2, 2.5), (10, 2.25), (20, 2.0))]
READ = [(row["step"], row["loss"]) for row in ROWS]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"metrics": ROWS}, "Rows read from 'metrics'."),
        ({"config": {"blocks": [{"n": 1}]}, "final_loss": 1.0, "metrics": ROWS}, "Rows read from 'metrics'."),
        (
            {"valid": [{**row, "loss": 9.0} for row in ROWS], "train": ROWS},
            "Rows read from 'train', and not from valid.",
        ),
        ({str(row["step"]): {"loss": row["loss"]} for row in ROWS}, "step from 'step'"),
        ({"at": {str(row["step"]): row for row in ROWS}, "n": 4}, "Rows read from 'at'."),
        ({"history": [{"epoch": row["step"], "loss": row["loss"]} for row in ROWS]}, "epochs stand for steps"),
    ],
    ids=["list", "among others", "with an evaluation's", "by step", "by step, deeper", "epochs"],
)
def test_rows_are_read_wherever_they_stand(document: object, said: str, indent: int | None) -> None:
    found = read(json.dumps(document, indent=indent))
    assert (found.recording.format, found.losses) == ("JSON object", READ)
    assert said in found.notes


def test_keys_that_were_sorted_as_text_are_steps_in_order() -> None:
    found = read(json.dumps({key: {"loss": dict(READ)[int(key)]} for key in ("1", "10", "2", "20")}))
    assert found.losses == READ
    assert "restart" not in found.notes


def test_only_what_is_whole_is_read_of_one_that_is_cut_off() -> None:
    for document in ({"metrics": ROWS}, {str(row["step"]): row for row in ROWS}):
        found = read(json.dumps(document)[:-20])
        assert found.losses == READ[:3]
        assert "cut off or damaged after entry 3" in found.notes


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (json.dumps({"log_history": ROWS}), "Hugging Face trainer_state.json"),
        (json.dumps({"loss": [3.0, 2.5], "val_loss": [3.5, 3.0]}), "Keras history"),
        (json.dumps({"step": 1, "loss": 3.0, "parts": ROWS}) + '\n{"step": 2, "loss": 2.5}\n', "JSON lines"),
        (json.dumps({"step": 1, "loss": 3.0, "parts": ROWS[:1]}), "JSON lines"),
        ('{"1": {"loss": 3.0}}\n{"1": {"loss": 2.5}}\n', "JSON lines"),
    ],
)
def test_other_formats_stay_what_they_are(text: str, form: str) -> None:
    assert read(text).recording.format == form


def test_a_list_of_results_is_no_run() -> None:
    with pytest.raises(ReadError, match="holds no losses"):
        read(json.dumps({"models": [{"name": "a", "loss": 1.5}, {"name": "b", "loss": 1.25}]}))
