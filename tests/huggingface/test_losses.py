"""Loss and targets of a step where the Trainer works the loss out by itself, and how a run that an exception ended is
told."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertPreTrainedModel,
    Trainer,
    TrainingArguments,
)

from stabmon.huggingface import StabilityCallback
from stabmon.runlog import read
from tests.test_huggingface import STEPS, Keep, Tokens, callback, model, trainer


def entries(running: Trainer) -> list[float]:
    return [entry["loss"] for entry in running.state.log_history if "loss" in entry]


def losses(kept: Keep) -> list[float]:
    return [snapshot.scalar("loss") for snapshot in kept.snapshots]


@pytest.mark.parametrize("accumulated", [1, 2])
def test_under_label_smoothing_the_loss_is_the_trainers(tmp_path: Path, accumulated: int) -> None:
    kept = Keep()
    given = {"label_smoothing_factor": 0.1, "logging_steps": 1, "gradient_accumulation_steps": accumulated}
    running = trainer(model(), tmp_path, callback(tmp_path / "runs", kept), **given)
    running.train()
    assert len(entries(running)) == STEPS
    assert losses(kept) == pytest.approx(entries(running), abs=1e-4), "the Trainer rounds to 4 digits"


def test_between_two_logs_each_steps_own_loss_is_read(tmp_path: Path) -> None:
    kept = Keep()
    running = trainer(model(), tmp_path, callback(tmp_path / "runs", kept), label_smoothing_factor=0.1, logging_steps=2)
    running.train()
    found = losses(kept)
    assert [sum(found[i : i + 2]) / 2 for i in (0, 2)] == pytest.approx(entries(running), abs=1e-4)
    assert len(set(found)) == STEPS


def of_my_own(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    return 2 * F.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def test_with_a_loss_function_of_ones_own_the_loss_is_that(tmp_path: Path) -> None:
    kept = Keep()
    arguments = TrainingArguments(
        str(tmp_path), max_steps=STEPS, report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True,
        logging_steps=1,
    )  # fmt: skip
    watching = callback(tmp_path / "runs", kept)
    running = Trainer(model(), arguments, train_dataset=Tokens(), callbacks=[watching], compute_loss_func=of_my_own)
    running.train()
    assert losses(kept) == pytest.approx(entries(running), abs=1e-4)
    assert losses(kept)[0] == pytest.approx(2 * torch.log(torch.tensor(64.0)).item(), abs=0.5)


def test_a_loss_that_is_not_finite_shows_though_the_trainer_leaves_it_out_of_its_own(tmp_path: Path) -> None:
    kept, calls = Keep(), iter(range(100))

    def broken(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        return of_my_own(outputs, labels) * (float("nan") if next(calls) == 3 else 1.0)

    given = {"gradient_accumulation_steps": 2, "logging_steps": 1}
    running = trainer(model(), tmp_path, callback(tmp_path / "runs", kept), **given)
    running.compute_loss_func = broken
    running.train()
    assert all(map(math.isfinite, entries(running)))
    assert [math.isfinite(loss) for loss in losses(kept)[:2]] == [True, False], "the fourth micro-batch is of step 2"


def test_a_training_step_of_ones_own_tells_the_loss(tmp_path: Path) -> None:
    class Twice(Trainer):  # type: ignore[misc]  # transformers is not followed
        def training_step(self, network: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
            inputs = self._prepare_inputs(inputs)
            loss = of_my_own(network(input_ids=inputs["input_ids"]), inputs["labels"])
            self.accelerator.backward(loss)
            return loss.detach()

    kept = Keep()
    running = Twice(**parts(tmp_path, kept))
    running.train()
    assert losses(kept) == pytest.approx(entries(running), abs=1e-4)
    assert losses(kept)[0] == pytest.approx(2 * math.log(64), abs=0.5)


def parts(folder: Path, kept: Keep, network: Any = None, rows: Any = None, **arguments: Any) -> dict[str, Any]:
    given = TrainingArguments(
        str(folder), max_steps=STEPS, report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True,
        logging_steps=1, **arguments,
    )  # fmt: skip
    watching = callback(folder / "runs", kept)
    return {"model": network or model(), "args": given, "train_dataset": rows or Tokens(), "callbacks": [watching]}


SIZE = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
MASKED = 63


def bert(kind: type[BertPreTrainedModel]) -> BertPreTrainedModel:
    torch.manual_seed(0)
    return kind(BertConfig(**SIZE, max_position_embeddings=12, num_labels=3, hidden_dropout_prob=0.0))


def masked() -> list[dict[str, Tensor]]:
    hidden = torch.arange(12) % 4 == 1
    return [
        {"input_ids": row["input_ids"].masked_fill(hidden, MASKED), "labels": row["labels"].masked_fill(~hidden, -100)}
        for row in Tokens()
    ]


class Weighted(Trainer):  # type: ignore[misc]
    """As transformers' own documentation shows it."""

    def compute_loss(self, network: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        labels = inputs.pop("labels")
        outputs = network(**inputs)
        loss = F.cross_entropy(outputs.logits.flatten(0, -2), labels.flatten(), torch.tensor([1.0, 1.0, 1.0]))
        return (loss, outputs) if return_outputs else loss


@pytest.mark.parametrize(
    ("kind", "rows", "smoothed"),
    [
        (BertForMaskedLM, masked(), True),
        (BertForTokenClassification, [{**row, "labels": row["labels"] % 3} for row in Tokens()], False),
        (BertForSequenceClassification, [{**row, "labels": row["labels"][0] % 3} for row in Tokens()], False),
    ],
)
def test_the_baselines_are_of_the_labels_that_the_model_is_not_given(
    tmp_path: Path, kind: type[BertPreTrainedModel], rows: list[dict[str, Tensor]], smoothed: bool
) -> None:
    own, reference = Keep(), Keep()
    changed = {"label_smoothing_factor": 0.1} if smoothed else {}
    (Trainer if smoothed else Weighted)(**parts(tmp_path, own, bert(kind), rows, **changed)).train()
    Trainer(**parts(tmp_path, reference, bert(kind), rows)).train()
    for name in ("unigram_loss", "bigram_loss", "uniform_loss"):
        found, wanted = ([s.scalar(name) for s in kept.snapshots] for kept in (own, reference))
        np.testing.assert_array_equal(found, wanted, name)
    assert np.isfinite([s.scalar("unigram_loss") for s in own.snapshots]).all()
    assert np.isfinite([s.scalar("probe_loss") for s in own.snapshots]).all()


def test_a_language_models_targets_are_the_next_tokens(tmp_path: Path) -> None:
    kept = Keep()
    trainer(model(), tmp_path, callback(tmp_path / "runs", kept), label_smoothing_factor=0.1, learning_rate=0.1).train()
    first, last = (kept.snapshots[i].scalar("probe_loss") for i in (0, -1))
    assert first == pytest.approx(math.log(64), abs=0.2)
    assert last > 3, "a model that is given these tokens would soon know them, were they in their own places"


def test_a_run_that_an_exception_ended_is_failed_when_another_begins(tmp_path: Path) -> None:
    class Breaks(StabilityCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            super().on_step_end(*args, **kwargs)
            raise RuntimeError("out of memory")

    watching = Breaks(serve=False, folder=tmp_path, linger_seconds=600)
    running = trainer(model(), tmp_path, watching)
    logs = []
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of memory"):
            running.train()
        assert watching.monitor is not None
        logs.append(watching.monitor.run_log)
    watching.monitor.close("stopped")
    assert [read(log).state for log in logs if log] == ["failed", "stopped"]


ENDS = """
import sys, torch
from stabmon import Monitor
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))
monitor = Monitor(model, torch.optim.SGD(model.parameters(), lr=0.1), serve=False, run="it", folder=sys.argv[1])
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    monitor.step(1.0)
raise {}
"""


@pytest.mark.parametrize(("ending", "state"), [("RuntimeError", "failed"), ("SystemExit", "stopped")])
def test_how_a_program_ended_that_closes_nothing(tmp_path: Path, ending: str, state: str) -> None:
    subprocess.run([sys.executable, "-c", ENDS.format(ending), str(tmp_path)], capture_output=True, check=False)
    assert read(tmp_path / "it.stabmon").state == state
