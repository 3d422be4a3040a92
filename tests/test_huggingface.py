from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from stabmon import Monitor
from stabmon.catalog import STATISTICS
from stabmon.huggingface import StabilityCallback
from stabmon.records import EVALUATION, Snapshot
from stabmon.runlog.progress import events_of

VOCABULARY, LENGTH, STEPS, BATCH = 64, 12, 4, 4


class Tokens(Dataset[dict[str, Tensor]]):
    """Random tokens; the labels are the inputs, which the model shifts itself."""

    def __init__(self, rows: int = 64) -> None:
        self.rows = torch.randint(VOCABULARY, (rows, LENGTH), generator=torch.Generator().manual_seed(3))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Keep:
    """A sink that keeps the snapshots."""

    name = "keep"

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []

    def emit(self, snapshot: Snapshot, alerts: Sequence[Any], events: Sequence[Any]) -> None:
        self.snapshots.append(snapshot)

    def close(self, state: str) -> None: ...


def model(dropout: float = 0.0) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    rates = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
    tokens = {"bos_token_id": None, "eos_token_id": None}
    size = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**size, **rates, **tokens, loss_type="ForCausalLMLoss"))


def trainer(network: torch.nn.Module, folder: Path, *callbacks: Any, **arguments: Any) -> Trainer:
    given = {
        "max_steps": STEPS, "per_device_train_batch_size": BATCH, "learning_rate": 1e-2, "report_to": [],
        "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "lr_scheduler_type": "constant", **arguments,
    }  # fmt: skip
    chosen = TrainingArguments(str(folder), **given)
    return Trainer(network, chosen, train_dataset=Tokens(), eval_dataset=Tokens(4), callbacks=list(callbacks))


def callback(folder: Path, *sinks: Any, **settings: Any) -> StabilityCallback:
    return StabilityCallback(serve=False, folder=folder, sinks=sinks, **settings)


def test_training_is_bit_identical_with_dropout_accumulation_and_clipping(tmp_path: Path) -> None:
    final = []
    for callbacks in ([], [callback(tmp_path / "runs")]):
        network = model(dropout=0.1)
        trainer(network, tmp_path, *callbacks, gradient_accumulation_steps=2, max_grad_norm=0.1).train()
        final.append([p.detach().clone() for p in network.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*final, strict=True))


def test_the_trainer_gives_the_numbers_of_a_plain_loop(tmp_path: Path) -> None:
    by_trainer, by_loop = Keep(), Keep()
    running = trainer(model(), tmp_path, callback(tmp_path / "runs", by_trainer), gradient_accumulation_steps=2)
    seen: list[dict[str, Tensor]] = []
    collate = running.data_collator

    def collate_and_keep(rows: list[Any]) -> dict[str, Tensor]:
        seen.append(collate(rows))
        return seen[-1]

    running.data_collator = collate_and_keep
    running.train()

    plain = model()
    # The Trainer's own optimizer, and its way to the mean: the sum over tokens / the number of labels of the step.
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2, weight_decay=0.0, fused=True)
    labels = torch.tensor(2 * BATCH * LENGTH)
    with Monitor(plain, optimizer, serve=False, folder=tmp_path / "runs", sinks=[by_loop]) as monitor:
        for step in range(STEPS):
            losses = []
            for batch in seen[2 * step : 2 * step + 2]:
                loss = plain(**batch, num_items_in_batch=labels).loss
                loss.backward()
                losses.append(loss.detach())
            torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(torch.stack(losses).sum())

    assert [s.step for s in by_trainer.snapshots] == [s.step for s in by_loop.snapshots] == [1, 2, 3, 4]
    assert by_trainer.snapshots[0].layout == by_loop.snapshots[0].layout
    timing = {"step_seconds", "monitor_seconds"}
    for one, other in zip(by_trainer.snapshots, by_loop.snapshots, strict=True):
        for name in STATISTICS.keys() - timing:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-6, atol=1e-12, err_msg=f"{name} at {one.step}")


def test_gradient_norm_and_loss_are_the_trainers_own(tmp_path: Path) -> None:
    kept = Keep()
    running = trainer(model(), tmp_path, callback(tmp_path / "runs", kept), max_grad_norm=0.01, logging_steps=1)
    running.train()
    logs = [entry for entry in running.state.log_history if "grad_norm" in entry]
    assert len(logs) == STEPS
    for entry, snapshot in zip(logs, kept.snapshots, strict=True):
        assert snapshot.scalar("total_grad_norm") == pytest.approx(entry["grad_norm"], rel=1e-5)
        assert snapshot.scalar("loss") == pytest.approx(entry["loss"], abs=2e-4), "the Trainer rounds to 4 digits"
        assert snapshot.scalar("learning_rate") == pytest.approx(1e-2)


def test_evaluation_in_between_is_not_read(tmp_path: Path) -> None:
    readings = []
    for evaluate in (False, True):
        kept = Keep()
        running = trainer(model(), tmp_path, callback(tmp_path / "runs", kept))
        if evaluate:
            running.args.eval_strategy, running.args.eval_steps = "steps", 1
            running.eval_dataset = Tokens(8)
        running.train()
        readings.append([s["norm_input_msq"] for s in kept.snapshots])
    np.testing.assert_array_equal(*readings)
    losses = [entry["eval_loss"] for entry in running.state.log_history if "eval_loss" in entry]
    # The last evaluation comes after the last step: it is an event alone.
    assert [s.scalar("eval_loss") for s in kept.snapshots[1:]] == pytest.approx(losses[:-1], rel=1e-6)


def test_of_several_evaluation_sets_the_mean_is_recorded_once(tmp_path: Path) -> None:
    kept = Keep()
    running = trainer(model(), tmp_path, callback(tmp_path / "runs", kept), eval_strategy="steps", eval_steps=1)
    running.eval_dataset = {"short": Tokens(4), "long_loss": Tokens(8)}
    running.train()
    losses = [
        [entry[name] for entry in running.state.log_history if name in entry]
        for name in ("eval_short_loss", "eval_long_loss_loss")
    ]
    means = [(short + long) / 2 for short, long in zip(*losses, strict=True)]
    assert len(means) == STEPS
    assert losses[0] != pytest.approx(losses[1], rel=1e-6)
    assert [s.scalar("eval_loss") for s in kept.snapshots[1:]] == pytest.approx(means[:-1], rel=1e-6)
    events = events_of(next((tmp_path / "runs").glob("*.stabmon")))
    told = [event.detail["eval_loss"] for event in events if event.kind == EVALUATION]
    assert told == pytest.approx(means, rel=1e-6)


def test_run_logs_lie_in_the_output_folder_and_say_how_it_ended(tmp_path: Path) -> None:
    watching = StabilityCallback(serve=False, run="named")
    trainer(model(), tmp_path, watching).train()
    assert watching.monitor is not None
    assert watching.monitor.run_log == tmp_path / "stabmon" / "named.stabmon"


def test_an_exception_in_training_and_another_try(tmp_path: Path) -> None:
    class Stop(StabilityCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            super().on_step_end(*args, **kwargs)
            raise RuntimeError("stop")

    network, watching = model(), Stop(serve=False, folder=tmp_path)
    running = trainer(network, tmp_path, watching)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="stop"):
            running.train()
    hooks = sum(len(m._forward_pre_hooks) for m in network.modules())
    watching.on_train_end(running.args, running.state, running.control)
    assert hooks == 1 + 5 + 1, "one on the root, one on each norm, one on the stack of blocks: the first run's are gone"
    assert not any(m._forward_pre_hooks for m in network.modules())


def test_wrong_settings_raise_where_the_callback_is_made() -> None:
    with pytest.raises(ValueError, match=r"every=0"):
        StabilityCallback(every=0)
    with pytest.raises(ValueError, match=r"probe_evry.*probe_every"):
        StabilityCallback(probe_evry=5)


def test_pickling_a_watched_model_for_a_checkpoint(tmp_path: Path) -> None:
    kept = Keep()
    arguments = {"save_strategy": "steps", "save_steps": 2, "load_best_model_at_end": False}
    trainer(model(), tmp_path, callback(tmp_path / "runs", kept), **arguments).train()
    resumed = Keep()
    arguments["max_steps"] = 6
    trainer(model(), tmp_path, callback(tmp_path / "runs", resumed), **arguments).train(
        resume_from_checkpoint=str(tmp_path / "checkpoint-4")
    )
    assert [s.step for s in resumed.snapshots] == [5, 6], "a resumed run counts on"
