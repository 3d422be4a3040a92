"""Trainings watched in the loops of frameworks, each with accumulation over two micro-batches and clipping."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils.data import Sampler, SequentialSampler

from stabmon.bench.exact.families import Batch
from stabmon.bench.exact.plan import CLIP, STEPS, Plan, schedule
from stabmon.bench.exact.watched import Settings
from stabmon.monitor import Monitor

_PRECISION = {"fp32": "no", "bf16 autocast": "bf16"}


def in_huggingface(plan: Plan, model: nn.Module, settings: Settings) -> None:
    """transformers.Trainer."""
    from transformers import Trainer, TrainingArguments

    from stabmon.huggingface import StabilityCallback

    class InOrder(Trainer):  # type: ignore[misc]  # transformers is not followed
        def _get_train_sampler(self, *_: Any) -> Sampler[int]:
            return SequentialSampler(self.train_dataset)

    (optimizer,) = plan.optimizers(model)
    micro_batches = [batch for batches in plan.batches for batch in batches]
    arguments = TrainingArguments(
        str(settings["folder"]),
        max_steps=STEPS,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=plan.loop.micro_batches,
        max_grad_norm=CLIP,
        bf16=plan.precision == "bf16 autocast",
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        seed=0,
    )
    callback = StabilityCallback(**settings, log_to="none")
    InOrder(
        model,
        arguments,
        data_collator=_only,
        train_dataset=micro_batches,
        callbacks=[callback],
        optimizers=(optimizer, schedule(optimizer)),
    ).train()


def _only(batches: list[Batch]) -> Batch:
    """The data set's rows are whole micro-batches, since their lengths differ."""
    (batch,) = batches
    return dict(batch)


def in_lightning(plan: Plan, model: nn.Module, settings: Settings) -> None:
    """lightning.Trainer."""
    import lightning.pytorch as pl
    from torch.utils.data import DataLoader

    from stabmon.lightning import StabilityCallback

    class Module(pl.LightningModule):  # type: ignore[misc]  # lightning is not followed
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def training_step(self, batch: Batch, _: int) -> Tensor:
            loss: Tensor = self.net(**batch)["loss"]
            return loss

        def configure_optimizers(self) -> Any:
            (optimizer,) = plan.optimizers(self.net)
            return [optimizer], [{"scheduler": schedule(optimizer), "interval": "step"}]

    micro_batches = [batch for batches in plan.batches for batch in batches]
    with _quiet():
        trainer = pl.Trainer(
            max_steps=STEPS,
            accumulate_grad_batches=plan.loop.micro_batches,
            gradient_clip_val=CLIP,
            precision="bf16-mixed" if plan.precision == "bf16 autocast" else "32-true",
            default_root_dir=settings["folder"],
            callbacks=[StabilityCallback(**settings)],
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
        )
        trainer.fit(Module(), DataLoader(micro_batches, batch_size=None))  # type: ignore[arg-type]  # a list is a data set


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Lightning's hints."""
    log = logging.getLogger("lightning.pytorch")
    level = log.level
    log.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    log.setLevel(level)


def in_accelerate(plan: Plan, model: nn.Module, settings: Settings) -> None:
    """A loop around accelerate."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)  # that of the training before, in its precision
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=plan.loop.micro_batches,
        mixed_precision=_PRECISION[plan.precision],
        step_scheduler_with_optimizer=False,
    )
    (inner,) = plan.optimizers(model)
    slower = schedule(inner)
    network, optimizer = accelerator.prepare(model, inner)
    with Monitor(network, optimizer, **settings) as monitor:
        for batch in (batch for batches in plan.batches for batch in batches):
            with accelerator.accumulate(network):
                loss = network(**batch)["loss"]
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(network.parameters(), CLIP)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                slower.step()
                monitor.step()
