"""A small model, one update of it, and the output-change tap on it; float64 copies to compare with."""

from collections.abc import Mapping, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.output_change import OutputChange
from stabmon.taps.probe.calls import Call
from stabmon.taps.probe.sources import FirstCall

ALL = Due(layers=True, probe=True, blocks=True)
Values = dict[tuple[str, str], float]


def tiny_gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(n_layer=3, n_head=2, n_embd=32, vocab_size=61, n_positions=64, bos_token_id=0, eos_token_id=0)
    )


def batch() -> dict[str, Tensor]:
    ids = torch.randint(61, (4, 24), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "labels": ids}


def copies(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def by_block(model: nn.Module) -> dict[Site, list[str]]:
    groups: dict[Site, list[str]] = {}
    for name, _ in model.named_parameters():
        head, _, rest = name.partition(".h.")
        layer = int(rest.split(".")[0]) if rest else None
        groups.setdefault(Site(f"{head}.h.{layer}" if rest else "rest", layer), []).append(name)
    return groups


def tap_on(
    model: nn.Module,
    call: Call | None,
    before: Mapping[str, Tensor] | None,
    targets: Tensor | None = None,
    blocks: Mapping[Site, Sequence[str]] | None = None,
    max_tokens: int = 512,
    estimate_blocks: bool = False,
) -> OutputChange:
    source = FirstCall(model, (), lambda: call, lambda: targets, max_tokens)
    return OutputChange(model, blocks or {}, source, lambda: before, estimate_blocks)


def read(tap: OutputChange, due: Due = ALL) -> Values:
    tap.arm(due)
    values = tap.read()
    assert values.dtype == torch.float32
    return {(name, site.name): value for (name, site), value in zip(tap.columns(), values.tolist(), strict=True)}


def whole(values: Values) -> dict[str, float]:
    return {name: value for (name, site), value in values.items() if site == ""}


def step(model: nn.Module, lr: float, optimizer: type[torch.optim.Optimizer] = torch.optim.Adam) -> dict[str, Tensor]:
    """One update on the batch, in eval mode; returns theta_t."""
    before = copies(model)
    moving = optimizer(model.parameters(), lr=lr)  # type: ignore[call-arg]
    model.eval()(**batch()).loss.backward()
    moving.step()
    moving.zero_grad()
    model.train()
    return before


def at(model: nn.Module, values: Mapping[str, Tensor]) -> nn.Module:
    """A float64 copy of the model with these parameters."""
    copy = deepcopy(model).double().eval()
    with torch.no_grad():
        for name, p in copy.named_parameters():
            p.copy_(values[name])
    return copy


def centred(model: nn.Module, **given: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(**batch(), **given).logits
    return (logits - logits.mean(-1, keepdim=True)).reshape(-1, logits.shape[-1])
