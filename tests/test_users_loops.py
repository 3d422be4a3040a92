"""What users' own models and loops do that ours do not: the numbers stay right, and the training what it was."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from stabmon import Monitor
from stabmon.records import PART_FAILED
from tests.trainings import VOCABULARY, Keep, watched

STEPS = 4


class Net(nn.Module):
    """Three blocks with a norm each, without dropout."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.Tanh()) for _ in range(3))
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, tokens: Tensor) -> Any:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


Change = Callable[[int, nn.Module, Monitor], object]


def batches(shape: tuple[int, int] = (4, 9), steps: int = STEPS) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(VOCABULARY, shape, generator=generator) for _ in range(steps)]


def losses(model: nn.Module, tokens: Tensor) -> Tensor:
    returned = model(tokens[:, :-1])
    logits = returned[0] if isinstance(returned, tuple) else returned
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def run(
    folder: Path, model: nn.Module, given: Sequence[Tensor] | None = None, after: Change | None = None, **settings: Any
) -> Keep:
    """What was seen of a plain loop of SGD; `after` is called after each step."""
    kept = Keep()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, **{**watched(folder, kept), **settings}) as monitor:
        for number, tokens in enumerate(batches() if given is None else given):
            loss = losses(model, tokens)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss, targets=tokens[:, 1:])
            if after:
                after(number, model, monitor)
    return kept


def failed(kept: Keep) -> list[Any]:
    """Parts that were dropped."""
    return [event.detail["part"] for event in kept.events if event.kind == PART_FAILED]


def last(kept: Keep, *names: str) -> list[list[float]]:
    return [kept.snapshots[-1][name].tolist() for name in names]


READ = ("total_grad_norm", "norm_gain", "context_share", "update_ratio", "total_output_change_ratio", "trust_ratio")


def test_a_float64_model_reads_as_its_float32_twin(tmp_path: Path) -> None:
    single, double = run(tmp_path, Net()), run(tmp_path, Net().double())
    assert failed(double) == []
    for name in READ:
        assert double.snapshots[-1][name] == pytest.approx(single.snapshots[-1][name], rel=1e-3), name


def test_a_model_trained_in_eval_mode_reads_as_in_training_mode(tmp_path: Path) -> None:
    assert last(run(tmp_path, Net().eval()), *READ) == last(run(tmp_path, Net()), *READ)


def test_an_evaluation_with_gradients_before_the_first_step_is_not_taken_for_training(tmp_path: Path) -> None:
    kept, plain = Keep(), run(tmp_path, Net(), batches()[:1])
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, **watched(tmp_path, kept)) as monitor:
        model.eval()
        model(batches((2, 3))[3])
        model.train()
        loss = losses(model, batches()[0])
        loss.backward()
        optimizer.step()
        monitor.step(loss, targets=batches()[0][:, 1:])
    assert last(kept, *READ, "probe_loss") == last(plain, *READ, "probe_loss")


def test_no_forward_at_all_is_said_to_be_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = Net()
    with Monitor(model, torch.optim.SGD(model.parameters(), lr=0.1), **watched(tmp_path, Keep())) as monitor:
        monitor.step(1.0)
        monitor.step(1.0)  # where other tests have compiled a model, the first step is looked at again
    assert "is it the one that the loop trains?" in caplog.text


@pytest.mark.parametrize("unscaled", [True, False])
def test_gradients_of_a_scaled_loss_are_scaled_back(tmp_path: Path, unscaled: bool) -> None:
    kept, model = Keep(), Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with Monitor(model, optimizer, **watched(tmp_path, kept)) as monitor:
        for tokens in batches():
            loss = losses(model, tokens)
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            if unscaled:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1e6)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            monitor.step(loss, targets=tokens[:, 1:])
    assert last(kept, "grad_norm")[0] == pytest.approx(last(run(tmp_path, Net()), "grad_norm")[0], rel=1e-5)


def test_reentrant_checkpointing_costs_nothing(tmp_path: Path) -> None:
    class Checkpointed(Net):
        def forward(self, tokens: Tensor) -> Tensor:
            x = self.embedding(tokens)
            for block in self.blocks:
                x = x + checkpoint(block, x, use_reentrant=True)
            return self.head(x)  # type: ignore[no-any-return]

    found, plain = run(tmp_path, Checkpointed()), run(tmp_path, Net())
    assert failed(found) == []
    assert last(found, *READ) == last(plain, *READ)


def test_an_unnamed_scalar_beside_the_logits_is_not_the_loss_where_targets_are_given(tmp_path: Path) -> None:
    class WithPenalty(Net):
        def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
            logits = super().forward(tokens)
            return logits, logits.square().mean()

    assert last(run(tmp_path, WithPenalty()), "probe_loss") == last(run(tmp_path, Net()), "probe_loss")


def test_a_forward_that_returns_the_loss_alone_gives_the_loss(tmp_path: Path) -> None:
    class LossAlone(Net):
        def forward(self, tokens: Tensor) -> Tensor:
            return F.cross_entropy(super().forward(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    kept, model = Keep(), LossAlone()
    with Monitor(model, torch.optim.SGD(model.parameters(), lr=0.1), **watched(tmp_path, kept)) as monitor:
        loss = model(batches()[0])
        loss.backward()
        monitor.step()
    assert kept.snapshots[0].scalar("loss") == pytest.approx(loss.item(), rel=1e-6)


def test_a_batch_without_tokens_is_not_read_and_is_no_value_that_is_not_finite(tmp_path: Path) -> None:
    kept = run(tmp_path, Net(), [torch.zeros(0, 9, dtype=torch.long), *batches()])
    first, then = kept.snapshots[:2]
    assert np.isnan(first["norm_gain"]).all()
    assert np.isnan(first.scalar("context_share"))
    assert np.isfinite(then["norm_gain"]).all()
    assert np.isfinite(kept.snapshots[-1].scalar("total_output_change_ratio")), "the probe is a batch that has tokens"


def test_a_single_token_has_no_context_share(tmp_path: Path) -> None:
    kept = run(tmp_path, Net(), batches((1, 2)))
    assert np.isfinite(kept.snapshots[-1]["norm_gain"]).all()
    assert np.isnan(kept.snapshots[-1].scalar("context_share"))
    assert np.isnan(kept.snapshots[-1]["token_similarity"]).all()


class AddNorm(nn.Module):
    """A norm that adds the residual itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return F.rms_norm(x + residual, (16,), self.weight)


class Fused(Net):
    def __init__(self) -> None:
        super().__init__()
        self.norm = AddNorm()

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        return self.head(self.norm(x, self.blocks[0](x)))  # type: ignore[no-any-return]


def test_a_norm_that_takes_more_than_its_input_is_left_out_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = run(tmp_path, Fused())
    assert [site.name for site in kept.snapshots[0].layout.sites_of("norm_gain")] == ["blocks.0.0"]
    assert "norm (AddNorm) cannot be tried out" in caplog.text


class Gathers(Net):
    """Adds to a list of its own in every forward, as mixtures of experts do with their routers' losses."""

    def __init__(self) -> None:
        super().__init__()
        self.penalties: list[Tensor] = []
        self.seen: dict[str, int] = {}
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = super().forward(tokens)
        self.penalties.append(logits.square().mean() * torch.rand((), generator=self.generator))
        self.seen["calls"] = self.seen.get("calls", 0) + 1
        return logits


def test_what_a_forward_gathers_in_lists_of_the_model_holds_nothing_of_the_probe(tmp_path: Path) -> None:
    model = Gathers()
    plain = torch.Generator().manual_seed(0)
    run(tmp_path, model)
    assert (len(model.penalties), model.seen["calls"]) == (STEPS, STEPS)
    expected = [torch.rand((), generator=plain) for _ in range(STEPS + 1)]
    assert torch.equal(torch.rand((), generator=model.generator), expected[-1])


def test_targets_that_are_none_later_on_cost_the_baselines_alone(tmp_path: Path) -> None:
    kept, model = Keep(), Net()
    with Monitor(model, torch.optim.SGD(model.parameters(), lr=0.1), **watched(tmp_path, kept)) as monitor:
        for number, tokens in enumerate(batches()):
            losses(model, tokens).backward()
            wrong: Any = "the targets"
            monitor.step(1.0, targets=wrong if number == 1 else tokens[:, 1:])
    assert failed(kept) == ["baselines"]
    assert np.isfinite(kept.snapshots[-1]["norm_gain"]).all()
    assert np.isnan(kept.snapshots[-1].scalar("unigram_loss"))


def test_a_run_log_that_fails_where_counts_are_stored_is_dropped_alone_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("stabmon.session.KEEP_EVERY", 2)
    monkeypatch.setattr("stabmon.runlog.writer.RunLogWriter.keep", full)
    kept = run(tmp_path, Net())
    assert [s.step for s in kept.snapshots] == [1, 2, 3, 4]
    assert failed(kept) == ["run_log"]
    assert sum(r.levelno >= logging.ERROR for r in caplog.records) == 1


def test_a_run_log_deleted_while_it_is_written_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stabmon.runlog.writer._COMMIT_SECONDS", 0.0)

    def after(number: int, model: nn.Module, monitor: Monitor) -> None:
        if number == 1:
            shutil.rmtree(tmp_path / "runs")

    kept = run(tmp_path, Net(), after=after)
    assert len(kept.snapshots) == STEPS
    assert failed(kept) == ["run_log"]
    assert "deleted or moved" in caplog.text


def test_tracing_for_export_in_training_mode_takes_nothing_of_ours_along(tmp_path: Path) -> None:
    graphs: list[str] = []

    def after(number: int, model: nn.Module, monitor: Monitor) -> None:
        if number == 1:
            exported = torch.export.export(model, (torch.zeros(2, 3, dtype=torch.long),), strict=False)
            graphs.append(str(exported.graph))

    kept = run(tmp_path, Net(), after=after)
    assert failed(kept) == []
    plain = torch.export.export(Net(), (torch.zeros(2, 3, dtype=torch.long),), strict=False)
    assert graphs == [str(plain.graph)]


def test_values_that_are_not_finite_warn_of_nothing(tmp_path: Path) -> None:
    def after(number: int, model: nn.Module, monitor: Monitor) -> None:
        if number == 0:
            with torch.no_grad():
                next(model.parameters()).fill_(torch.inf)

    kept = run(tmp_path, Net(), after=after)
    assert failed(kept) == []
    assert np.isnan(kept.snapshots[-1]["update_ratio"]).any(), "Inf / Inf, without a warning"
