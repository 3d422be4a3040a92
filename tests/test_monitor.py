from __future__ import annotations

import logging
import socket
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon import Monitor
from stabmon.catalog import STATISTICS
from stabmon.records import ARCHITECTURE, Event, Finding, Snapshot
from stabmon.runlog import read
from stabmon.taps.schedule import Schedule

VOCABULARY = 32


class Net(nn.Module):
    """A small Pre-LN language model with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16), enable_nested_tensor=False)
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens)))


def make(**optimizer: Any) -> tuple[Net, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Net()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def batches(steps: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield torch.randint(VOCABULARY, (4, 9), generator=generator)


def loss_of(model: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor]:
    targets = batch[:, 1:]
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), targets.flatten()), targets


def train(model: nn.Module, optimizer: torch.optim.Optimizer, monitor: Monitor | None, steps: int = 6) -> None:
    for batch in batches(steps):
        loss, targets = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if monitor:
            monitor.step(loss, targets=targets)


def watch(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, **settings: Any) -> Monitor:
    return Monitor(model, optimizer, folder=folder, **{"serve": False, "run": "test", **settings})


def happened(events: Sequence[Event]) -> list[Event]:
    """Without what every run is told: what its model is."""
    return [event for event in events if event.kind != ARCHITECTURE]


class Keep:
    """A sink that keeps what it is given."""

    name = "keep"

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.events: list[Event] = []
        self.state: str | None = None

    def emit(self, snapshot: Snapshot, alerts: Sequence[Any], events: Sequence[Event]) -> None:
        self.snapshots.append(snapshot)
        self.events += events

    def close(self, state: str) -> None:
        self.state = state


def test_training_is_bit_identical_with_dropout_accumulation_and_clipping(tmp_path: Path) -> None:
    final = []
    for watched in (False, True):
        model, optimizer = make()
        monitor = watch(model, optimizer, tmp_path) if watched else None
        for step, batch in enumerate(batches(12)):
            loss, targets = loss_of(model, batch)
            (loss / 2).backward()
            if step % 2 == 1:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
                if monitor:
                    monitor.step(loss, targets=targets)
        final.append(([p.detach().clone() for p in model.parameters()], torch.get_rng_state()))
        if monitor:
            monitor.close()
    (plain, random), (seen, random_seen) = final
    assert all(torch.equal(a, b) for a, b in zip(plain, seen, strict=True))
    assert torch.equal(random, random_seen)


def test_every_statistic_is_read_at_the_first_step(tmp_path: Path) -> None:
    model, optimizer = make()
    with watch(model, optimizer, tmp_path) as monitor:
        train(model, optimizer, monitor, steps=1)
        assert monitor.latest is not None
        unread = [name for name in STATISTICS if not np.isfinite(monitor.latest[name]).all()]
        sizes = {name: monitor.latest[name].size for name in ("norm_gain", "grad_norm", "output_change_ratio")}
    assert unread == ["eval_loss", "class_mean_loss"], "the latter is of inputs that are no tokens"
    assert sizes == {"norm_gain": 5, "grad_norm": 5, "output_change_ratio": 5}


def test_the_three_clocks() -> None:
    schedule = Schedule(every=10, probe_every=50, dense_until=50)
    due = {step: schedule.due(step) for step in range(1, 1001)}
    assert [s for s in due if due[s].layers] == [*range(1, 51), *range(60, 1001, 10)]
    assert [s for s in due if due[s].probe] == [*range(1, 51), *range(100, 1001, 50)]
    assert [s for s in due if due[s].blocks] == [1, 10, 20, 30, 40, 50, 500, 1000]


def test_a_resumed_run_is_not_read_densely_and_counts_on(tmp_path: Path) -> None:
    model, optimizer = make()
    kept = Keep()
    with Monitor(model, optimizer, folder=tmp_path, serve=False, start_step=100, sinks=[kept]) as monitor:
        train(model, optimizer, monitor, steps=10)
    assert [s.step for s in kept.snapshots] == list(range(101, 111))
    assert [s.step for s in kept.snapshots if np.isfinite(s["norm_gain"]).any()] == [110]
    assert all(np.isfinite(s.scalar("context_share")) for s in kept.snapshots)


def test_a_resumed_run_goes_on_in_its_log_with_its_detectors_and_counts(tmp_path: Path) -> None:
    whole, first, second = Keep(), Keep(), Keep()
    data = list(batches(20))

    def part(kept: Keep, start: int, stop: int, model: Net, optimizer: torch.optim.Optimizer, **settings: Any) -> Path:
        with Monitor(
            model, optimizer, serve=False, dense_steps=20, every=1, probe_every=1000, start_step=start, sinks=[kept],
            **settings,
        ) as monitor:  # fmt: skip
            for batch in data[start:stop]:
                loss, targets = loss_of(model, batch)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                monitor.step(loss, targets=targets)
        assert monitor.run_log is not None
        return monitor.run_log

    part(whole, 0, 20, *make(), folder=tmp_path / "whole")
    model, optimizer = make()
    log = part(first, 0, 12, model, optimizer, folder=tmp_path / "parts")
    same = part(second, 12, 20, model, optimizer, folder=tmp_path / "parts")
    assert same == log, "found again without a name"
    recorded = read(log)
    assert [s.step for s, _ in recorded.feeds()] == list(range(1, 21))
    assert [(e.kind, e.detail["at"]) for _, events in recorded.feeds() for e in happened(events)] == [("resume", 12)]
    for name in ("unigram_loss", "bigram_loss", "loss", "norm_gain"):
        np.testing.assert_array_equal(second.snapshots[-1][name], whole.snapshots[-1][name], err_msg=name)


def test_a_stall_open_before_a_resume_is_not_raised_again_after_it(tmp_path: Path) -> None:
    class Always:
        name = "always"
        needs = ("loss",)

        def score(self, snapshot: Snapshot) -> Any:
            return np.full(1, 2.0, dtype=np.float32)

        def explain(self, site: int) -> Finding:
            return Finding("warning", "is so", "", (), {}, since=1)

    alerts = []
    for start in (0, 3):
        model, optimizer = make()
        with watch(model, optimizer, tmp_path, detectors=[Always()], start_step=start) as monitor:
            train(model, optimizer, monitor, steps=3)
            alerts.append([alert.step for alert in monitor.alerts])
    assert alerts == [[1], [1]]


def test_patterns_choose_the_norms_and_those_that_fit_none_are_refused(tmp_path: Path) -> None:
    model, optimizer = make()
    with watch(model, optimizer, tmp_path, include=["encoder.*"], exclude=["*.norm1"]) as monitor:
        train(model, optimizer, monitor, steps=1)
        assert monitor.latest is not None
        names = [site.name for site in monitor.latest.layout.sites_of("norm_gain")]
    assert names == ["encoder.layers.0.norm2", "encoder.layers.1.norm2", "encoder.norm"]
    with pytest.raises(ValueError, match=r"exclude='decoder\.\*' fits no norm layer.*encoder\.layers\.0\.norm1"):
        watch(model, optimizer, tmp_path, exclude=["decoder.*"])
    with pytest.raises(ValueError, match=r"placement='\*\.q_norm' fits no norm layer.*encoder\.layers\.0\.norm1"):
        watch(model, optimizer, tmp_path, placement={"*.q_norm": "inner"})
    for argument, patterns in (("exclude", ["*"]), ("include", [])):
        with pytest.raises(ValueError, match=f"{argument}=.* leaves no norm layer"):
            watch(model, optimizer, tmp_path, **{argument: patterns})


def test_an_evaluation_goes_with_the_next_step(tmp_path: Path) -> None:
    model, optimizer = make()
    kept = Keep()
    with watch(model, optimizer, tmp_path, sinks=[kept]) as monitor:
        train(model, optimizer, monitor, steps=1)
        monitor.evaluated(2.5)
        train(model, optimizer, monitor, steps=2)
    found = [s.scalar("eval_loss") for s in kept.snapshots]
    assert found == [pytest.approx(np.nan, nan_ok=True), 2.5, pytest.approx(np.nan, nan_ok=True)]
    assert [(e.kind, e.step, e.detail["eval_loss"]) for e in happened(kept.events)] == [("evaluation", 1, 2.5)]


def test_the_run_log_holds_what_the_pipeline_was_fed(tmp_path: Path) -> None:
    model, optimizer = make()
    kept = Keep()
    with watch(model, optimizer, tmp_path, sinks=[kept]) as monitor:
        train(model, optimizer, monitor)
        path = monitor.run_log
    assert path is not None
    recorded = read(path)
    assert (recorded.state, recorded.run.name) == ("finished", "test")
    rows = [snapshot for snapshot, _ in recorded.feeds()]
    assert [r.step for r in rows] == [1, 2, 3, 4, 5, 6]
    for row, live in zip(rows, kept.snapshots, strict=True):
        np.testing.assert_array_equal(row.values, live.values)


def test_a_second_run_of_the_same_name_gets_a_log_of_its_own(tmp_path: Path) -> None:
    paths = []
    for _ in range(2):
        model, optimizer = make()
        with watch(model, optimizer, tmp_path) as monitor:
            train(model, optimizer, monitor, steps=1)
            paths.append(monitor.run_log)
    assert [path.stem for path in paths if path] == ["test", "test-2"]


def test_closing_removes_every_hook(tmp_path: Path) -> None:
    model, optimizer = make()
    monitor = watch(model, optimizer, tmp_path)
    train(model, optimizer, monitor, steps=2)
    monitor.close()
    left = [m for m in model.modules() if m._forward_pre_hooks or m._forward_hooks]
    assert left == []
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


def test_a_broken_sink_is_dropped_and_counted_and_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Keep):
        name = "broken"

        def emit(self, *_: object) -> None:
            raise RuntimeError("no")

    kept = Keep()
    model, optimizer = make()
    with watch(model, optimizer, tmp_path, sinks=[Broken(), kept]) as monitor:
        train(model, optimizer, monitor, steps=3)
    assert len(kept.snapshots) == 3
    assert [(e.kind, e.detail["part"]) for e in happened(kept.events)] == [("part_failed", "broken")]
    assert sum("broken failed" in r.message for r in caplog.records) == 1


def test_a_broken_tap_reads_nan_from_then_on_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Keep()
    model, optimizer = make()
    with watch(model, optimizer, tmp_path, sinks=[kept]) as monitor:
        train(model, optimizer, monitor, steps=2)
        monkeypatch.setattr("stabmon.taps.norms.similarity", lambda *_: 1 / 0)
        train(model, optimizer, monitor, steps=2)
    assert [e.detail["part"] for e in happened(kept.events)] == ["norms"]
    assert np.isfinite(kept.snapshots[1]["norm_gain"]).all()
    assert np.isnan(kept.snapshots[3]["norm_gain"]).all()
    assert np.isfinite(kept.snapshots[3]["grad_norm"]).all(), "the other taps go on"
    assert sum(r.levelno >= logging.ERROR for r in caplog.records) == 1


def test_an_exception_in_the_training_marks_the_run_failed(tmp_path: Path) -> None:
    model, optimizer = make()
    kept = Keep()
    with pytest.raises(RuntimeError, match="mine"), watch(model, optimizer, tmp_path, sinks=[kept]):
        raise RuntimeError("mine")
    assert kept.state == "failed"


def test_metrics_are_served_while_training(tmp_path: Path) -> None:
    model, optimizer = make()
    with watch(model, optimizer, tmp_path, serve=True, port=0) as monitor:
        train(model, optimizer, monitor)
        with urllib.request.urlopen(f"{monitor.url}/metrics") as response:
            text = response.read().decode()
    for name in ("norm_input_msq", "norm_gain", "grad_norm", "output_change_ratio"):
        assert f"stabmon_{name}{{" in text
    assert 'stabmon_steps_total{rank="0",run="test"} 6.0' in text


def test_disabled_attaches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STABMON_DISABLED", "1")
    model, optimizer = make()
    with watch(model, optimizer, tmp_path) as monitor:
        train(model, optimizer, monitor)
        assert not any(m._forward_pre_hooks for m in model.modules())
    assert list(tmp_path.iterdir()) == []
    assert (monitor.url, monitor.run_log, monitor.latest, list(monitor.alerts)) == (None, None, None, [])


@pytest.mark.parametrize("every", [0, -5])
def test_bad_every(tmp_path: Path, every: int) -> None:
    with pytest.raises(ValueError, match=rf"every={every}.*1 or more"):
        watch(*make(), tmp_path, every=every)


def test_an_optimizer_of_another_model_is_refused_and_leaves_no_hooks(tmp_path: Path) -> None:
    (model, _), (_, other) = make(), make()
    with pytest.raises(ValueError, match=r"optimizer: holds none of the \d+ parameters of model=Net"):
        watch(model, other, tmp_path)
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_what_is_no_optimizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="optimizer=str: must be a torch"):
        watch(make()[0], "adam", tmp_path)  # type: ignore[arg-type]


def test_a_taken_port_is_refused_and_leaves_no_hooks(tmp_path: Path) -> None:
    model, optimizer = make()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"port={port} is taken"):
            watch(model, optimizer, tmp_path, serve=True, port=port)
    assert not any(m._forward_pre_hooks for m in model.modules())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_is_refused_and_frees_the_port(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="folder"):
        watch(*make(), tmp_path / "file" / "runs", serve=True, port=0)


@pytest.mark.parametrize(
    ("loss", "match"),
    [(torch.ones(3), r"loss=\(3,\)-shaped"), ("1.0", "loss=str"), (True, "loss=bool")],
)
def test_a_loss_that_is_not_a_scalar_raises_at_the_first_step_only(tmp_path: Path, loss: Any, match: str) -> None:
    model, optimizer = make()
    with watch(model, optimizer, tmp_path) as monitor:
        with pytest.raises((TypeError, ValueError), match=match):
            monitor.step(loss)
        train(model, optimizer, monitor, steps=1)
        monitor.step(loss)


@pytest.mark.parametrize("loss", [np.float32(2.5), np.float64(2.5), np.int64(2), 2.5, torch.tensor([2.5])])
def test_a_number_of_any_kind_is_a_loss(tmp_path: Path, loss: Any) -> None:
    model, optimizer = make()
    with watch(model, optimizer, tmp_path) as monitor:
        loss_of(model, next(batches(1)))[0].backward()
        monitor.step(loss)
        assert monitor.latest is not None
        assert monitor.latest.scalar("loss") == float(loss)


# Dynamo itself touches .grad of every tensor that it wraps.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_model_gives_the_same_numbers_without_a_graph_break(tmp_path: Path) -> None:
    readings = []
    for compiled in (False, True):
        model, optimizer = make()
        network = torch.compile(model, backend="eager", fullgraph=True) if compiled else model
        with watch(network, optimizer, tmp_path) as monitor:
            train(network, optimizer, monitor, steps=3)
            assert monitor.latest is not None
            readings.append(monitor.latest)
    eager, same = readings
    assert eager.layout == same.layout
    for name in ("norm_input_msq", "norm_gain", "token_similarity", "context_share", "grad_norm", "update_ratio"):
        np.testing.assert_allclose(same[name], eager[name], rtol=1e-5, err_msg=name)
