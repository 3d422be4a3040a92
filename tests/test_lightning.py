from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import pytorch_lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn

from stabmon import Monitor
from stabmon.catalog import STATISTICS
from stabmon.lightning import StabilityCallback
from stabmon.records import ARCHITECTURE, CHECKPOINT, PLANNED, RESUME, Snapshot
from stabmon.runlog import read
from tests.frameworks import Module, lightning_trainer
from tests.trainings import BATCH, CLIP, STEPS, Batch, Keep, Network, adamw, loader, watched

HALF = BATCH // 2


def callback(folder: Path, sink: Keep, **settings: Any) -> StabilityCallback:
    return StabilityCallback(**{**watched(folder, sink), **settings})


def same(ones: list[Snapshot], others: list[Snapshot]) -> None:
    """Every statistic of every step to 1e-6."""
    assert [s.step for s in ones] == [s.step for s in others] == list(range(1, len(ones) + 1))
    for one, other in zip(ones, others, strict=True):
        for name in STATISTICS.keys() - {"step_seconds", "monitor_seconds", "eval_loss"}:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-6, err_msg=f"{name}, step {one.step}")


def same_parameters(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def hooks(network: nn.Module) -> int:
    return sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in network.modules())


class Decaying(Module):
    """The learning rate halves after every step."""

    def configure_optimizers(self) -> Any:
        optimizer = adamw(self.net)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def test_accumulation_clipping_and_a_schedule_give_the_numbers_of_a_plain_loop(tmp_path: Path) -> None:
    by_trainer, by_loop = Keep(), Keep()
    trained, network = Network(), Network()
    trainer = lightning_trainer(
        tmp_path, callback(tmp_path, by_trainer), accumulate_grad_batches=2, gradient_clip_val=CLIP, max_steps=4
    )
    trainer.fit(Decaying(trained), loader(HALF, 8 * HALF))
    optimizer = adamw(network)
    with Monitor(network, optimizer, **watched(tmp_path, by_loop)) as monitor:
        losses: list[Tensor] = []
        for number, batch in enumerate(loader(HALF, 8 * HALF), 1):
            losses.append(network(**batch)["loss"])
            (losses[-1] / 2).backward()
            if number % 2 == 0:
                nn.utils.clip_grad_norm_(network.parameters(), CLIP)
                optimizer.step()
                optimizer.zero_grad()
                monitor.step(sum(losses) / 2)
                losses.clear()
                optimizer.param_groups[0]["lr"] /= 2
    same(by_trainer.snapshots, by_loop.snapshots)
    assert [s.scalar("learning_rate") for s in by_trainer.snapshots] == pytest.approx([1e-2, 5e-3, 2.5e-3, 1.25e-3])
    assert min(s.scalar("total_grad_norm") for s in by_trainer.snapshots) > 5 * CLIP, "before clipping"
    assert same_parameters(trained, network)


class Manual(Module):
    """One optimizer for the head, one for the rest, both after one backward pass."""

    automatic_optimization = False

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.automatic_optimization = False

    def training_step(self, batch: Batch, _: int) -> Any:
        loss = self.net(**batch)["loss"]
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            self.clip_gradients(optimizer, CLIP, "norm")
            optimizer.step()
            optimizer.zero_grad()
        return {"loss": loss}

    def configure_optimizers(self) -> Any:
        return two_optimizers(self.net)


def two_optimizers(network: Network) -> list[torch.optim.Optimizer]:
    body = [*network.embedding.parameters(), *network.encoder.parameters()]
    return [torch.optim.AdamW(body, lr=1e-2), torch.optim.SGD(network.head.parameters(), lr=1e-1)]


def test_manual_optimization_counts_a_step_of_both_optimizers_as_one(tmp_path: Path) -> None:
    by_trainer, by_loop = Keep(), Keep()
    trained, network = Network(), Network()
    lightning_trainer(tmp_path, callback(tmp_path, by_trainer), max_steps=2 * STEPS).fit(Manual(trained), loader())
    optimizers = two_optimizers(network)
    with Monitor(network, optimizers, **watched(tmp_path, by_loop)) as monitor:
        for batch in loader():
            loss = network(**batch)["loss"]
            loss.backward()
            for optimizer in optimizers:
                nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], CLIP)
                optimizer.step()
                optimizer.zero_grad()
            monitor.step(loss)
    assert len(by_trainer.snapshots) == STEPS
    same(by_trainer.snapshots, by_loop.snapshots)
    assert same_parameters(trained, network)


class Threefold(Manual):
    """Three steps of each optimizer with every batch."""

    def training_step(self, batch: Batch, index: int) -> Any:
        return [super(Threefold, self).training_step(batch, index) for _ in range(3)][-1]


def test_where_a_batch_has_several_steps_rows_plan_checkpoints_and_a_resume_count_batches(tmp_path: Path) -> None:
    def train(steps: int, ckpt_path: Path | None = None) -> list[tuple[int, str, dict[str, Any]]]:
        saving = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=12, save_top_k=1)
        watching = StabilityCallback(serve=False, folder=tmp_path / "runs", run="r")
        given = {"max_steps": 6 * steps, "max_epochs": -1, "enable_checkpointing": True}
        trainer = lightning_trainer(tmp_path, watching, saving, **given)
        trainer.fit(Threefold(Network()), loader(), ckpt_path=ckpt_path)
        assert watching.monitor is not None
        assert watching.monitor.run_log is not None
        feeds = list(read(watching.monitor.run_log).feeds())
        assert [s.step for s, _ in feeds] == list(range(1, steps + 1))
        return [
            (e.step, e.kind, dict(e.detail)) for _, events in feeds for e in events if e.kind in (PLANNED, CHECKPOINT)
        ]

    assert train(4) == [
        (0, PLANNED, {"steps": 12}),
        (0, PLANNED, {"steps": 4}),
        (2, CHECKPOINT, {"name": "step=12.ckpt"}),
        (4, CHECKPOINT, {"name": "step=24.ckpt", "gone": "2"}),
    ]
    assert train(6, tmp_path / "step=24.ckpt")[-2:] == [  # Lightning leaves the one that it goes on from
        (4, PLANNED, {"steps": 6}),
        (6, CHECKPOINT, {"name": "step=36.ckpt"}),
    ]


class Whole(Module):
    """`training_step` calls the module itself."""

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.net.head(self.net.encoder(self.net.embedding(input_ids)))

    def training_step(self, batch: Batch, _: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten())


class Pieces(Whole):
    """`training_step` calls the parts one by one."""

    def training_step(self, batch: Batch, _: int) -> Tensor:
        logits = self.forward(batch["input_ids"])
        return nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())


@pytest.mark.parametrize("strategy", ["auto", "ddp"])
@pytest.mark.parametrize("kind", [Module, Whole])
def test_all_ways_to_call_the_network_give_the_same_numbers(
    tmp_path: Path, kind: type[Module], strategy: str, process_group_ends: None
) -> None:
    kept, reference = Keep(), Keep()
    lightning_trainer(tmp_path, callback(tmp_path, reference)).fit(Module(Network()), loader())
    trainer = lightning_trainer(tmp_path, callback(tmp_path, kept), strategy=strategy, use_distributed_sampler=False)
    trainer.fit(kind(Network()), loader(), loader())
    same(kept.snapshots, reference.snapshots)


@pytest.fixture
def process_group_ends() -> Iterator[None]:
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def test_a_network_called_in_pieces_is_not_probed_and_its_hidden_width_is_not_taken_for_a_vocabulary(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pieces, reference = Keep(), Keep()
    for kind, kept in ((Module, reference), (Pieces, pieces)):
        lightning_trainer(tmp_path, callback(tmp_path, kept)).fit(kind(Network()), loader())
    for mine, other in zip(pieces.snapshots, reference.snapshots, strict=True):
        for name in ("loss", "grad_norm", "update_ratio"):
            np.testing.assert_allclose(mine[name], other[name], rtol=1e-6, err_msg=name)
        assert np.isnan(mine.scalar("output_change_kl"))
    # Pieces are given no token ids, so that first tokens count in them; gammas are 1 before the first update.
    embedded = Network().embedding(next(iter(loader()))["input_ids"])
    gain = torch.rsqrt(embedded.var(-1, correction=0) + 1e-5).mean().item()
    assert pieces.snapshots[0]["norm_gain"][0] == pytest.approx(gain, rel=1e-6)
    # The vocabulary is learnt from the targets: it is what has been seen, and no target is left out.
    assert 16 < np.exp(pieces.snapshots[-1].scalar("uniform_loss")) <= 32.001
    assert sum("in pieces" in record.message for record in caplog.records) == 1


def test_the_trainer_of_pytorch_lightning_takes_the_callback(tmp_path: Path) -> None:
    class Other(pytorch_lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Network()

        def training_step(self, batch: Batch, _: int) -> Tensor:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return adamw(self.net)

    kept, reference = Keep(), Keep()
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    pytorch_lightning.Trainer(
        default_root_dir=tmp_path, callbacks=[callback(tmp_path, kept)], max_steps=STEPS, accelerator="cpu",
        logger=False, **quiet,
    ).fit(Other(), loader())  # fmt: skip
    lightning_trainer(tmp_path, callback(tmp_path, reference)).fit(Module(Network()), loader())
    same(kept.snapshots, reference.snapshots)
    assert kept.state == "finished"


def test_pytorch_lightning_in_use_does_not_bring_lightning_in() -> None:
    code = (
        "import sys, pytorch_lightning; from stabmon.lightning import StabilityCallback as S; "
        "print(issubclass(S, pytorch_lightning.Callback), 'lightning' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_without_either_package_the_import_says_what_to_install() -> None:
    code = "import sys; sys.modules |= dict.fromkeys(('lightning', 'pytorch_lightning')); import stabmon.lightning"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'stabmon[lightning]'" in done.stderr.splitlines()[-1]


def test_validation_is_not_read_and_its_loss_goes_with_the_next_step(tmp_path: Path) -> None:
    kept, reference = Keep(), Keep()
    lightning_trainer(tmp_path, callback(tmp_path, reference)).fit(Module(Network()), loader())
    found: list[float] = []

    class Note(pl.Callback):  # type: ignore[misc]
        def on_validation_end(self, trainer: Any, module: Any) -> None:
            if not trainer.sanity_checking:
                found.append(float(trainer.callback_metrics["val_loss"]))

    trainer = lightning_trainer(tmp_path, callback(tmp_path, kept), Note(), val_check_interval=2)
    trainer.fit(Module(Network()), loader(), loader())
    same(kept.snapshots, reference.snapshots)
    assert len(found) == 2
    losses = {s.step: s.scalar("eval_loss") for s in kept.snapshots if np.isfinite(s.scalar("eval_loss"))}
    assert losses == {3: pytest.approx(found[0]), 5: pytest.approx(found[1])}


def fit(at: Path, kept: Keep, max_steps: int, ckpt_path: Path | None = None, **settings: Any) -> Path:
    """Train up to that step, three to an epoch, with a checkpoint after each, in `<at>/lightning_logs/version_N`; the
    run log."""
    watching = StabilityCallback(serve=False, sinks=[kept], **settings)
    saving = ModelCheckpoint(at, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    arguments = {"logger": CSVLogger(at), "enable_checkpointing": True, "max_steps": max_steps}
    trainer = lightning_trainer(at, watching, saving, **arguments)
    trainer.fit(Module(Network()), loader(count=3 * BATCH), ckpt_path=ckpt_path)
    assert watching.monitor is not None
    assert watching.monitor.run_log is not None
    return watching.monitor.run_log


def test_a_fit_from_a_checkpoint_goes_on_in_the_same_run_log(tmp_path: Path) -> None:
    whole, second = Keep(), Keep()
    fit(tmp_path / "whole", whole, 6)
    log = fit(tmp_path, Keep(), 3)
    same_log = fit(tmp_path, second, 6, tmp_path / "step=3.ckpt")
    assert log.parent == tmp_path / "lightning_logs/version_0/stabmon"
    assert same_log == log, "though Lightning itself now writes version_1"
    recorded = read(log)
    assert [s.step for s, _ in recorded.feeds()] == [1, 2, 3, 4, 5, 6]
    assert [(e.kind, e.detail["at"]) for _, events in recorded.feeds() for e in events if e.kind == RESUME] == [
        ("resume", 3)
    ]
    for name in ("loss", "context_share", "total_grad_norm", "unigram_loss", "bigram_loss"):
        assert second.snapshots[-1].scalar(name) == whole.snapshots[-1].scalar(name), name


def test_a_checkpoint_whose_run_log_is_gone_begins_a_new_one_at_its_step(tmp_path: Path) -> None:
    kept = Keep()
    fit(tmp_path, Keep(), 3).unlink()
    log = fit(tmp_path, kept, 5, tmp_path / "step=3.ckpt")
    assert log.parent == tmp_path / "lightning_logs/version_1/stabmon"
    assert [s.step for s in kept.snapshots] == [4, 5]


def test_a_given_folder_and_name_win_over_the_checkpoint(tmp_path: Path) -> None:
    fit(tmp_path, Keep(), 3, run="first", folder=tmp_path / "a")
    log = fit(tmp_path, Keep(), 4, tmp_path / "step=3.ckpt", run="second", folder=tmp_path / "b")
    assert log == tmp_path / "b" / "second.stabmon"


class Raise(pl.Callback):  # type: ignore[misc]
    """Raises after the second batch; meanwhile counts the network's hooks."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.hooks = 0

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        self.hooks = hooks(module)
        if index == 1:
            raise self.error


@pytest.mark.parametrize(
    ("error", "seen", "state"),
    [(RuntimeError("mine"), RuntimeError, "failed"), (KeyboardInterrupt(), SystemExit, "stopped")],
)
def test_an_exception_in_training_ends_the_run_and_takes_every_hook_away(
    tmp_path: Path, error: BaseException, seen: type[BaseException], state: str
) -> None:
    network, kept, raising = Network(), Keep(), Raise(error)
    watching = callback(tmp_path, kept)
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(seen):
            lightning_trainer(tmp_path, watching, raising).fit(Module(network), loader())
    finally:
        signal.signal(signal.SIGINT, handler)  # Lightning ignores it from its first KeyboardInterrupt on
    assert (kept.state, [s.step for s in kept.snapshots]) == (state, [1, 2])
    assert raising.hooks > 0
    assert hooks(network) == 0
    again = Keep()
    watching._sinks = [again]
    lightning_trainer(tmp_path, watching).fit(Module(network), loader())
    assert (again.state, len(again.snapshots)) == ("finished", STEPS)


def test_a_step_without_loss_and_batches_of_another_kind_do_not_end_a_training(tmp_path: Path) -> None:
    class Odd(Module):
        def training_step(self, batch: Any, index: int) -> Tensor | None:
            (tokens,) = batch
            return None if index == 1 else self.net(tokens[:, :-1], tokens[:, 1:])["loss"]

    kept = Keep()
    tokens = torch.randint(32, (BATCH * STEPS, 9), generator=torch.Generator().manual_seed(1))
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens), batch_size=BATCH)
    lightning_trainer(tmp_path, callback(tmp_path, kept)).fit(Odd(Network()), data)
    for name in ("loss", "total_grad_norm", "context_share"):
        assert [bool(np.isfinite(s.scalar(name))) for s in kept.snapshots] == [True, False, True, True, True], name
    assert [event.kind for event in kept.events] == [PLANNED, ARCHITECTURE]


@pytest.mark.parametrize("whole", [torch.int16, torch.int64])
def test_targets_are_labels_or_the_second_of_a_pair(tmp_path: Path, whole: torch.dtype) -> None:
    class Paired(Module):
        def training_step(self, batch: Any, _: int) -> Tensor:
            return self.net(batch[0], batch[1].long())["loss"]

    kept, reference = Keep(), Keep()
    lightning_trainer(tmp_path, callback(tmp_path, reference)).fit(Module(Network()), loader())
    pairs = [(row["input_ids"], row["labels"].to(whole)) for row in loader().dataset]
    lightning_trainer(tmp_path, callback(tmp_path, kept)).fit(
        Paired(Network()), torch.utils.data.DataLoader(pairs, batch_size=BATCH)
    )
    for name in ("uniform_loss", "unigram_loss", "bigram_loss"):
        assert [s.scalar(name) for s in kept.snapshots] == [s.scalar(name) for s in reference.snapshots], name


def test_patterns_choose_the_norms(tmp_path: Path) -> None:
    kept = Keep()
    watching = callback(tmp_path, kept, include=["net.encoder.*"], exclude=["*.norm1"])
    lightning_trainer(tmp_path, watching, max_steps=1).fit(Module(Network()), loader())
    names = [site.name for site in kept.snapshots[0].layout.sites_of("norm_gain")]
    assert names == ["net.encoder.layers.0.norm2", "net.encoder.layers.1.norm2", "net.encoder.norm"]


def test_wrong_settings_raise_where_the_callback_is_made() -> None:
    with pytest.raises(ValueError, match=r"every=0"):
        StabilityCallback(every=0)
    with pytest.raises(ValueError, match=r"probe_evry.*probe_every"):
        StabilityCallback(probe_evry=5)


def test_a_taken_port_raises_before_the_first_step_and_leaves_no_hooks(tmp_path: Path) -> None:
    network, before = Network(), Network()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        watching = StabilityCallback(folder=tmp_path, serve=True, port=port)
        with pytest.raises(OSError, match=f"port={port} is taken"):
            lightning_trainer(tmp_path, watching).fit(Module(network), loader())
    assert hooks(network) == 0
    assert same_parameters(network, before)
