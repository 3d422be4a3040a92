"""Attention is watched without a trace: bit for bit, no mode or hook left, each forward once."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.nn import functional as F
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint
from transformers import MixtralConfig, MixtralForCausalLM

from stabmon import Monitor
from stabmon.bench.waits import counting
from stabmon.taps import Due
from stabmon.taps.attention.scores import scores_of, summary
from stabmon.taps.attention.tap import Attention
from tests.taps.attention_naive import Values, measured, parts_of, read

# Dynamo itself touches .grad of every tensor that it wraps.
compiling = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
INPUT = torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(0))


class SelfAttention(nn.Module):
    def __init__(self, core: Callable[[Tensor], Tensor] = torch.relu) -> None:
        super().__init__()
        self.qkv, self.core = nn.Linear(16, 48), core

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        return self.core(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, recompute: bool | None = None, core: Callable[[Tensor], Tensor] = torch.relu) -> None:
        super().__init__()
        self.norm, self.attn, self.drop = nn.LayerNorm(16), SelfAttention(core), nn.Dropout(0.2)
        self.recompute = recompute

    def forward(self, x: Tensor) -> Tensor:
        if self.recompute is None:
            return self._branch(x)
        out: Tensor = checkpoint(self._branch, x, use_reentrant=self.recompute)
        return out

    def _branch(self, x: Tensor) -> Tensor:
        return x + self.drop(self.attn(self.norm(x)))


class Net(nn.Module):
    def __init__(self, recompute: bool | None = None, core: Callable[[Tensor], Tensor] = torch.relu) -> None:
        super().__init__()
        self.up = nn.Linear(16, 16)
        self.blocks = nn.ModuleList(Block(recompute, core) for _ in range(2))
        self.final = nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        for block in self.blocks:
            x = block(x)
        return self.final(x)


def seeded(**kinds: Any) -> Net:
    torch.manual_seed(0)
    return Net(**kinds)


def trained(model: nn.Module, watch: bool, tmp: Any) -> list[Tensor]:
    """Parameters after four steps of two micro-batches, and where the random numbers stand."""
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    monitor = Monitor(model, optimizer, level="deep", serve=False, folder=tmp, every=2) if watch else None
    for step in range(4):
        for part in (1, 2):
            model(INPUT * part + step).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if monitor:
            monitor.step(0.0)
    if monitor:
        assert monitor.latest is not None
        assert monitor.latest["attention_entropy"].size == 2
        monitor.close()
    return [*(p.detach().clone() for p in model.parameters()), torch.rand(2)]


@pytest.mark.parametrize("recompute", [None, False, True])
def test_a_training_is_the_same_bit_for_bit(recompute: bool | None, tmp_path: Any) -> None:
    alone, watched = (trained(seeded(recompute=recompute), watch, tmp_path) for watch in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))
    assert _get_current_function_mode_stack() == []


def backward(model: nn.Module) -> None:
    model(INPUT).square().mean().backward()


@pytest.mark.parametrize("recompute", [False, True])
def test_what_checkpointing_computes_again_counts_once(recompute: bool) -> None:
    plain = measured(Attention, seeded().eval(), backward)
    assert measured(Attention, seeded(recompute=recompute).eval(), backward) == plain
    tap = Attention(parts_of(model := seeded(recompute=recompute)))
    backward(model)
    assert tap.weights().tolist() == [1, 64, 64] * 2  # 2 sequences, 4 heads, 8 queries that see two keys


def test_evaluations_and_forwards_without_gradients_are_not_read() -> None:
    model = seeded()
    tap = Attention(parts_of(model))
    model(INPUT)
    before = read(tap), tap.weights().tolist()
    with torch.no_grad():
        model(INPUT * 3)
    model.eval()(INPUT * 3)
    assert (read(tap), tap.weights().tolist()) == before


def test_copies_pickles_and_a_detached_model_are_not_watched() -> None:
    model = seeded()
    tap = Attention(parts_of(model))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        other(INPUT)
        assert read_nothing(tap)
    tap = Attention(parts_of(model))
    tap.detach()
    model(INPUT)
    assert read_nothing(tap)


def read_nothing(tap: Attention) -> bool:
    return not tap._seen and bool(tap._readings.values().isnan().all())


def test_an_exception_in_the_forward_leaves_no_mode_behind() -> None:
    def broken(x: Tensor) -> Tensor:
        raise ArithmeticError("the user's own")

    model = seeded(core=broken)
    tap = Attention(parts_of(model))
    with pytest.raises(ArithmeticError, match="the user's own"):
        model(INPUT)
    assert _get_current_function_mode_stack() == []
    assert tap._open == []


def test_ctrl_c_in_the_forward_costs_nothing_later() -> None:
    def interrupted(x: Tensor) -> Tensor:
        raise KeyboardInterrupt

    model = seeded(core=interrupted).eval()
    tap = Attention(parts_of(model))
    with pytest.raises(KeyboardInterrupt):
        model(INPUT)
    for block in model.blocks:
        block.attn.core = torch.relu
    tap.arm(Due(layers=True))
    assert torch._C._len_torch_function_stack() == 0
    torch.randn(2, 2, 3, 3).softmax(-1)  # outside of any attention
    backward(model)
    assert read(tap) == pytest.approx(measured(Attention, seeded().eval(), backward))


def test_a_failure_while_reading_stays_out_of_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ArithmeticError("ours")

    monkeypatch.setattr("stabmon.taps.attention.tap.summary", broken)
    model = seeded()
    tap = Attention(parts_of(model))
    backward(model)
    with pytest.raises(ArithmeticError, match="ours"):
        tap.read()


def test_under_autocast_the_scores_of_the_rounded_queries_and_keys_are_exact() -> None:
    rounded: list[Tensor] = []

    class Kept(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is F.scaled_dot_product_attention:
                rounded.extend(x.detach().float() for x in args[:2])
            return func(*args, **(kwargs or {}))

    def call(model: nn.Module) -> None:
        with torch.autocast("cpu", torch.bfloat16), Kept():
            model(INPUT)

    found = measured(Attention, seeded().eval(), call)
    wanted, _ = summary(scores_of(rounded[0], rounded[1], is_causal=True)[0])
    assert list(found.values())[:3] == pytest.approx(wanted.tolist(), rel=1e-6)


def counted_graphs(model: nn.Module, watched: bool) -> tuple[int, int, Values | None]:
    torch._dynamo.reset()
    counters.clear()
    parts = parts_of(model)
    parts.norm_tap.detach()  # what it adds to a graph takes most of the time
    tap = Attention(parts) if watched else None
    compiled = torch.compile(model, backend="eager")
    for due in (True, False, True):
        if tap:
            tap.arm(Due(layers=due))
        compiled(INPUT).square().mean().backward()
    values = read(tap) if tap else None
    return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()), values


@compiling
def test_a_compiled_model_is_one_graph_in_which_attention_is_said_not_to_be_seen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="stabmon")
    graphs, breaks, values = counted_graphs(seeded(), watched=True)
    assert (graphs, breaks, values) == (*counted_graphs(seeded(), watched=False)[:2], {})
    assert "attention is not seen in blocks.0.attn, blocks.1.attn: it is compiled" in caplog.text


@compiling
def test_a_compiled_part_inside_an_attention_stays_compiled_and_the_attention_is_seen() -> None:
    torch._dynamo.reset()
    counters.clear()
    model = seeded(core=torch.compile(lambda x: torch.relu(x) * 1, backend="eager")).eval()
    tap = Attention(parts_of(model))
    for due in (True, False, True, False, True):
        tap.arm(Due(layers=due))
        backward(model)
        tap.read()
    assert read(tap) == pytest.approx(measured(Attention, seeded().eval(), backward))
    assert counters["stats"]["unique_graphs"] == 2  # with the function mode and without it
    assert sum(counters["graph_break"].values()) == 0


def test_the_probe_of_a_model_that_trains_in_eval_mode_is_not_read(tmp_path: Any) -> None:
    read_with: list[Any] = []
    for probe_every in (1, 1000):
        model = seeded().eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Monitor(
            model,
            optimizer,
            level="deep",
            serve=False,
            folder=tmp_path,
            probe_every=probe_every,
            dense_steps=0,
            every=1,
        ) as monitor:
            for step in range(3):
                model(INPUT + step).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                monitor.step(0.0)
            assert monitor.latest is not None
            assert (monitor.latest.scalar("total_output_change_ratio") > 0) == (probe_every == 1)
            read_with.append((monitor.latest["attention_logit_max"], monitor.latest["attention_entropy"]))
    assert [a.tolist() for a in read_with[0]] == [a.tolist() for a in read_with[1]]


def test_nothing_read_at_level_deep_waits_for_the_device(tmp_path: Any) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = MixtralForCausalLM(MixtralConfig(**sizes, vocab_size=61, intermediate_size=8, num_local_experts=4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(61, (2, 12))
    # No probe: it is the model's own code, which may wait.
    quiet = {"every": 1, "dense_steps": 0, "probe_every": 1000}
    with Monitor(model, optimizer, level="deep", serve=False, folder=tmp_path, **quiet) as monitor:

        def train() -> None:
            loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss)

        train()  # in the first step the model is got to know
        with counting(torch.device("cpu")) as waits:
            train()
            train()
        assert monitor.latest is not None
        for statistic in ("attention_entropy", "router_entropy", "log_z"):
            assert (monitor.latest[statistic] > 0).all()
    assert waits.count == 0
