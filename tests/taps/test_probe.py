from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import GPT2Config, GPT2LMHeadModel

from stabmon.taps.probe.calls import Call
from stabmon.taps.probe.fitting import fit
from stabmon.taps.probe.probe import Answer, Probe, by_backward


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def tiny_gpt2(**config: Any) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 61, "n_positions": 64}
    return GPT2LMHeadModel(GPT2Config(**(sizes | config), bos_token_id=0, eos_token_id=0))


def ids(*shape: int, high: int = 61) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(1))


def parameters(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def same(answer: Answer) -> Answer:
    return answer


def outputs(probe: Probe, values: Mapping[str, Tensor]) -> Tensor:
    z = probe(values, same).z
    assert z is not None
    return z.detach()


class Fragile(nn.Module):
    """Dropout, batch norm, a buffer changed in place and one rebound, and a forward that can fail half-way."""

    in_place: Tensor
    rebound: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.into, self.norm, self.out = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 5)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("in_place", torch.zeros(8))
        self.register_buffer("rebound", torch.zeros(8))
        self.fails = False

    def forward(self, x: Tensor) -> Tensor:
        h = self.dropout(self.norm(self.into(x)))
        self.in_place.add_(h.detach().mean(0))
        self.rebound = self.rebound + 1
        if self.fails:
            raise RuntimeError("half-way")
        z: Tensor = self.out(h + self.in_place)
        return z


def test_output_at_other_parameters_is_that_of_a_copy_that_has_them() -> None:
    model, other = tiny_gpt2(), tiny_gpt2()
    with torch.no_grad():
        for p in other.parameters():
            p.add_(torch.randn_like(p) * 0.02)
    call = Call((), {"input_ids": ids(2, 16), "labels": ids(2, 16)})
    output = Probe(model, call)(parameters(other), same)
    expected = other.eval()(**call.kwargs)
    logits = expected.logits.reshape(32, 61)
    assert output.z is not None
    assert output.loss is not None
    assert output.classes
    torch.testing.assert_close(output.z, logits - logits.mean(-1, keepdim=True), rtol=0, atol=1e-6)
    assert output.loss.item() == expected.loss.item()


def test_tied_weights_move_together_and_their_slope_counts_both_uses() -> None:
    model = tiny_gpt2()
    assert model.lm_head.weight is model.transformer.wte.weight
    call = Call((), {"input_ids": ids(2, 16), "labels": ids(2, 16)})
    here, toward = parameters(model), parameters(model)
    toward["transformer.wte.weight"] += 0.01 * torch.randn(61, 32)
    slope = Probe(model, call)(here, lambda answer: answer.slope(toward))
    copy = deepcopy(model).eval()
    copy(**call.kwargs).loss.backward()
    step = toward["transformer.wte.weight"] - here["transformer.wte.weight"]
    assert slope is not None
    assert slope.item() == pytest.approx((copy.transformer.wte.weight.grad * step).sum().item(), rel=1e-5)


def test_everything_of_the_model_is_bit_identical_after_the_probe() -> None:
    model = Fragile().train()
    model.norm.eval()
    model(torch.randn(7, 6)).square().sum().backward()
    before = deepcopy(model)
    gradients = [(p.grad, deepcopy(p.grad)) for p in model.parameters()]
    objects = [*model.parameters(), *model.buffers()]
    changed = {name: p + 1 for name, p in parameters(model).items()}
    probe = Probe(model, Call((torch.randn(7, 6),), {}), ids(7, high=5))
    rng = torch.get_rng_state()
    assert probe(parameters(model), lambda answer: answer.slope(changed)) is not None
    assert torch.equal(torch.get_rng_state(), rng)
    assert all(a is b for a, b in zip([*model.parameters(), *model.buffers()], objects, strict=True))
    for p, (grad, copy) in zip(model.parameters(), gradients, strict=True):
        assert copy is not None
        assert p.grad is grad
        assert p.grad is not None
        assert torch.equal(p.grad, copy)
    for a, b in zip([*model.parameters(), *model.buffers()], [*before.parameters(), *before.buffers()], strict=True):
        assert torch.equal(a, b)
    assert [m.training for m in model.modules()] == [m.training for m in before.modules()]


def test_a_buffer_that_the_forward_changes_is_the_same_in_each_evaluation() -> None:
    model = Fragile()
    probe = Probe(model, Call((torch.randn(7, 6),), {}))
    assert torch.equal(outputs(probe, {}), outputs(probe, {}))


def test_a_forward_that_raises_leaves_the_model_as_it_was() -> None:
    model = Fragile().train()
    before, objects = deepcopy(model.state_dict()), list(model.parameters())
    probe = Probe(model, Call((torch.randn(7, 6),), {}))
    rng = torch.get_rng_state()
    model.fails = True
    with pytest.raises(RuntimeError, match="half-way"):
        probe({name: p + 1 for name, p in parameters(model).items()}, same)
    assert torch.equal(torch.get_rng_state(), rng)
    assert all(a is b for a, b in zip(model.parameters(), objects, strict=True))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(m.training for m in model.modules())


def test_parameters_are_swapped_in_the_whole_model_when_a_part_of_it_was_called() -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(3, 4)

    model, x = Wrapper(), torch.randn(5, 3)
    z = outputs(Probe(model, Call((x,), {}, module=model.net)), {"net.weight": torch.zeros(4, 3)})
    torch.testing.assert_close(z, model.net.bias.expand(5, 4))


@pytest.mark.parametrize("reentrant", [False, True])
def test_the_backward_of_a_checkpointed_model_recomputes_with_the_swapped_parameters(reentrant: bool) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lowest, self.lower, self.upper = nn.Linear(3, 3), nn.Linear(3, 8), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = checkpoint(lambda t: torch.tanh(self.lower(t)), self.lowest(x), use_reentrant=reentrant)
            z: Tensor = self.upper(h)
            return z

    model, x, y = Checkpointed(), torch.randn(5, 3), ids(5, high=4)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    there = {name: p + 0.1 for name, p in parameters(model).items()}
    toward = {name: p + torch.randn_like(p) for name, p in there.items()}
    probe = fit(model, Call((x,), {}), y)
    assert (probe.differentiate is by_backward) is reentrant
    slopes = probe(there, lambda answer: [answer.slope(toward) for _ in range(3)])
    copy = deepcopy(model)
    copy.zero_grad()
    copy.load_state_dict(there)
    F.cross_entropy(copy.upper(torch.tanh(copy.lower(copy.lowest(x)))), y).backward()
    expected = sum(
        (p.grad * (toward[n] - there[n])).sum().item() for n, p in copy.named_parameters() if p.grad is not None
    )
    assert [s.item() for s in slopes if s is not None] == [pytest.approx(expected, rel=1e-5)] * 3
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        assert p.grad is not None
        assert torch.equal(p.grad, gradient)


# ---------------------------------------------------------------------- precision


class Casting(nn.Module):
    """Computes in a precision of its own, whatever its parameters have, and returns float32."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(3, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            z: Tensor = self.out(self.into(x))
        return z.float()


class Refusing(nn.Module):
    """Takes one precision only, as quantized layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 4, dtype=torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        assert self.out.weight.dtype == torch.bfloat16
        z: Tensor = self.out(x.bfloat16())
        return z


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_parameters_are_widened_so_that_the_output_is_that_of_a_float32_copy(dtype: torch.dtype) -> None:
    model = tiny_gpt2().to(dtype)
    probe = fit(model, Call((), {"input_ids": ids(2, 16), "labels": ids(2, 16)}))
    assert probe.wide
    assert probe.exact
    logits = deepcopy(model).float().eval()(ids(2, 16)).logits.reshape(32, 61)
    expected = logits - logits.mean(-1, keepdim=True)
    torch.testing.assert_close(outputs(probe, parameters(model)), expected, rtol=0, atol=1e-6)
    assert all(p.dtype == dtype for p in model.parameters())


def test_a_model_that_computes_in_halves_of_its_own_or_takes_nothing_else_is_not_exact() -> None:
    x = torch.randn(2, 3)
    assert fit(nn.Linear(3, 4), Call((x,), {})).exact
    assert not fit(Casting(), Call((x,), {})).exact
    refusing = fit(Refusing(), Call((x,), {}))
    assert not refusing.wide
    assert not refusing.exact


def test_half_inputs_of_an_autocast_run_are_widened() -> None:
    probe = fit(nn.Linear(3, 4), Call((torch.randn(2, 3).bfloat16(),), {}))
    assert probe.exact
    assert outputs(probe, {}).dtype == torch.float32
