"""Where frameworks do more than train from beginning to end: another try, a resume, switched off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import TrainingArguments

from stabmon.huggingface import StabilityCallback
from stabmon.records import Finding, Snapshot
from stabmon.runlog import read
from tests.frameworks import LOOPS, InOrder
from tests.trainings import BATCH, Batch, Keep, Network, rows, watched


class Spy(Network):
    """Counts the hooks that are on it while it is called."""

    most = 0

    def forward(self, input_ids: Tensor, labels: Tensor) -> Batch:
        hooks = sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in self.modules())
        hooks += sum(len(p._post_accumulate_grad_hooks or ()) for p in self.parameters())
        self.most = max(self.most, hooks)
        return super().forward(input_ids, labels)


@pytest.mark.parametrize("disabled", [True, False])
@pytest.mark.parametrize("framework", LOOPS)
def test_switched_off_by_the_environment_nothing_is_attached_or_written_in_any_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str, disabled: bool
) -> None:
    monkeypatch.setenv("STABMON_DISABLED", str(int(disabled)))
    network, kept = Spy(), Keep()
    LOOPS[framework](network, tmp_path, kept)
    found = network.most > 0, (tmp_path / "runs").exists(), bool(kept.snapshots)
    assert found == (not disabled,) * 3


class Small(Network):
    """Has memory for batches of two; says what was done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def forward(self, input_ids: Tensor, labels: Tensor) -> Batch:
        if self.training:
            self.sizes.append(len(input_ids))
            if len(input_ids) > 2:
                raise RuntimeError("CUDA out of memory.")
        return super().forward(input_ids, labels)


def in_huggingface(
    network: Network, folder: Path, watching: StabilityCallback, resume: str | None = None, **given: Any
) -> None:
    arguments = TrainingArguments(
        str(folder), report_to=[], disable_tqdm=True, use_cpu=True, lr_scheduler_type="constant", learning_rate=1e-2,
        **{"per_device_train_batch_size": BATCH, "save_strategy": "no", **given},
    )  # fmt: skip
    InOrder(network, arguments, train_dataset=rows(), callbacks=[watching]).train(resume_from_checkpoint=resume)


def test_a_batch_that_did_not_fit_is_tried_smaller_and_watched_from_its_first_step(tmp_path: Path) -> None:
    network, kept = Small(), Keep()
    watching = StabilityCallback(**watched(tmp_path, kept), run="named")
    in_huggingface(network, tmp_path, watching, auto_find_batch_size=True, max_steps=3)
    assert network.sizes[:1] == [4], "the first try"
    assert set(network.sizes[1:]) <= {2, 3}
    assert [s.step for s in kept.snapshots] == [1, 2, 3]
    assert all(np.isfinite(s.scalar("total_grad_norm")) for s in kept.snapshots)
    assert not any(m._forward_pre_hooks for m in network.modules())
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["named.stabmon"], "tries without a step leave none"


class Always:
    """Alerts from the first step on."""

    name = "always"
    needs = ("loss",)

    def score(self, snapshot: Snapshot) -> Any:
        return np.full(1, 2.0, dtype=np.float32)

    def explain(self, site: int) -> Finding:
        return Finding("warning", "is so", "", (), {}, since=1)


def test_a_resumed_trainer_goes_on_in_its_run_log_with_its_alerts_and_baselines(tmp_path: Path) -> None:
    def run(folder: Path, max_steps: int, resume: str | None = None) -> tuple[Keep, StabilityCallback]:
        kept = Keep()
        watching = StabilityCallback(serve=False, sinks=[kept], detectors=[Always()])
        saving = {"save_strategy": "steps", "save_steps": 2, "max_steps": max_steps}
        torch.manual_seed(2)
        in_huggingface(Network(), folder, watching, resume, **saving)
        return kept, watching

    whole, _ = run(tmp_path / "whole", 4)
    _, before = run(tmp_path / "parts", 2)
    second, after = run(tmp_path / "parts", 4, str(tmp_path / "parts/checkpoint-2"))
    assert before.monitor is not None
    assert after.monitor is not None
    assert after.monitor.run_log == before.monitor.run_log
    assert after.monitor.run_log is not None
    assert [s.step for s, _ in read(after.monitor.run_log).feeds()] == [1, 2, 3, 4]
    assert [(a.step, a.state) for a in after.monitor.alerts] == [(1, "raised")], "open since step 1, not raised again"
    for name in ("loss", "total_grad_norm", "context_share", "unigram_loss", "bigram_loss"):
        assert second.snapshots[-1].scalar(name) == pytest.approx(whole.snapshots[-1].scalar(name), rel=1e-6), name


def test_patterns_of_the_hugging_face_callback_choose_the_norms(tmp_path: Path) -> None:
    kept = Keep()
    watching = StabilityCallback(**watched(tmp_path, kept), include=["encoder.*"], exclude=["*.norm2"])
    in_huggingface(Network(), tmp_path, watching, max_steps=1)
    names = [site.name for site in kept.snapshots[0].layout.sites_of("norm_gain")]
    assert names == ["encoder.layers.0.norm1", "encoder.layers.1.norm1", "encoder.norm"]
