import inspect
from collections import namedtuple
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BatchEncoding, DynamicCache, GPT2Config, GPT2LMHeadModel

from stabmon.taps.probe import Call, Probe, cut, cut_targets


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


# ---------------------------------------------------------------------- cut


def test_cut_keeps_whole_sequences_of_at_most_512_tokens() -> None:
    call = Call((), {"input_ids": ids(16, 100), "attention_mask": torch.ones(16, 1, 100, 100), "scale": 2.0})
    part = cut(call)
    assert torch.equal(part.kwargs["input_ids"], call.kwargs["input_ids"][:5])
    assert part.kwargs["attention_mask"].shape == (5, 1, 100, 100)
    assert part.kwargs["scale"] == 2.0


def test_cut_shortens_a_sequence_longer_than_512_in_every_dimension_of_time() -> None:
    mask, embedded = torch.ones(3, 1, 700, 700), torch.randn(3, 700, 700)
    part = cut(Call((ids(3, 700), torch.ones(700, 700)), {"mask": mask, "embedded": embedded}))
    assert [t.shape for t in part.args] == [(1, 512), (512, 512)]
    assert part.kwargs["mask"].shape == (1, 1, 512, 512)
    assert torch.equal(part.kwargs["embedded"], embedded[:1, :512])


def test_cut_of_inputs_without_time_counts_one_token_each() -> None:
    part = cut(Call((torch.randn(600, 3, 4, 4),), {"labels": ids(600)}))
    assert part.args[0].shape == (512, 3, 4, 4)
    assert part.kwargs["labels"].shape == (512,)


def test_cut_copies_tensors_also_inside_mappings_and_named_tuples() -> None:
    Pair = namedtuple("Pair", "left right")
    encoding = BatchEncoding({"input_ids": ids(2, 3)})
    call = Call((encoding, Pair(ids(2, 3), [ids(2, 3)])), {})
    part = cut(call)
    encoding["input_ids"].zero_()
    call.args[1].right[0].zero_()
    assert isinstance(part.args[0], BatchEncoding)
    assert isinstance(part.args[1], Pair)
    assert torch.equal(part.args[0]["input_ids"], ids(2, 3))
    assert torch.equal(part.args[1].right[0], ids(2, 3))


def test_cut_keeps_labels_and_drops_caches_and_the_item_count() -> None:
    call = Call((), {"input_ids": ids(2, 3), "labels": ids(2, 3), "past_key_values": DynamicCache(),
                     "num_items_in_batch": torch.tensor(6), "use_cache": True})  # fmt: skip
    assert set(cut(call).kwargs) == {"input_ids", "labels"}
    signature = inspect.signature(GPT2LMHeadModel.forward)
    assert cut(call, signature=signature).kwargs["use_cache"] is False


def test_cut_twice_is_cut_once() -> None:
    once = cut(Call((ids(9, 700),), {}))
    assert torch.equal(cut(once).args[0], once.args[0])


def test_targets_are_cut_like_the_call_flattened_or_not() -> None:
    call, targets = Call((ids(16, 100),), {}), ids(16, 100)
    assert torch.equal(cut_targets(targets, call), targets[:5])
    assert torch.equal(cut_targets(targets.flatten(), call), targets[:5])
    assert torch.equal(cut_targets(targets[:, 0], call), targets[:5, 0])
    assert torch.equal(cut_targets(ids(2, 700), Call((ids(2, 700),), {})), ids(2, 700)[:1, :512])


# ---------------------------------------------------------------------- evaluation


def test_output_at_other_parameters_is_that_of_a_copy_that_has_them() -> None:
    model, other = tiny_gpt2(), tiny_gpt2()
    with torch.no_grad():
        for p in other.parameters():
            p.add_(torch.randn_like(p) * 0.02)
    call = Call((), {"input_ids": ids(2, 16), "labels": ids(2, 16)})
    output = Probe(model, call)(parameters(other))
    expected = other.eval()(**call.kwargs)
    logits = expected.logits.reshape(32, 61)
    assert output.logits is not None
    assert output.loss is not None
    torch.testing.assert_close(output.logits, logits - logits.mean(-1, keepdim=True), rtol=0, atol=1e-6)
    assert output.loss.item() == expected.loss.item()


def test_tied_weights_move_together_and_their_slope_counts_both_uses() -> None:
    model = tiny_gpt2()
    assert model.lm_head.weight is model.transformer.wte.weight
    call = Call((), {"input_ids": ids(2, 16), "labels": ids(2, 16)})
    here, toward = parameters(model), parameters(model)
    toward["transformer.wte.weight"] += 0.01 * torch.randn(61, 32)
    output = Probe(model, call)(here, toward)
    copy = deepcopy(model).eval()
    copy(**call.kwargs).loss.backward()
    step = toward["transformer.wte.weight"] - here["transformer.wte.weight"]
    assert output.slope is not None
    assert output.slope.item() == pytest.approx((copy.transformer.wte.weight.grad * step).sum().item(), rel=1e-5)


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
    assert probe(parameters(model), toward=changed).slope is not None
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
    first, second = probe({}).logits, probe({}).logits
    assert first is not None
    assert second is not None
    assert torch.equal(first, second)


def test_a_forward_that_raises_leaves_the_model_as_it_was() -> None:
    model = Fragile().train()
    before, objects = deepcopy(model.state_dict()), list(model.parameters())
    probe = Probe(model, Call((torch.randn(7, 6),), {}))
    rng = torch.get_rng_state()
    model.fails = True
    with pytest.raises(RuntimeError, match="half-way"):
        probe({name: p + 1 for name, p in parameters(model).items()})
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
    output = Probe(model, Call((x,), {}, module=model.net))({"net.weight": torch.zeros(4, 3)})
    assert output.logits is not None
    bias = model.net.bias - model.net.bias.mean()
    torch.testing.assert_close(output.logits, bias.expand(5, 4))


def test_the_backward_of_a_checkpointed_model_recomputes_with_the_swapped_parameters() -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lower, self.upper = nn.Linear(3, 8), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = checkpoint(lambda t: torch.tanh(self.lower(t)), x, use_reentrant=False)
            z: Tensor = self.upper(h)
            return z

    model, x, y = Checkpointed(), torch.randn(5, 3), ids(5, high=4)
    there = {name: p + 0.1 for name, p in parameters(model).items()}
    toward = {name: p + torch.randn_like(p) for name, p in there.items()}
    output = Probe(model, Call((x,), {}), y)(there, toward)
    copy = deepcopy(model)
    copy.load_state_dict(there)
    F.cross_entropy(copy.upper(torch.tanh(copy.lower(x))), y).backward()
    expected = sum(
        (p.grad * (toward[n] - there[n])).sum().item() for n, p in copy.named_parameters() if p.grad is not None
    )
    assert output.slope is not None
    assert output.slope.item() == pytest.approx(expected, rel=1e-5)


class Returns(nn.Module):
    """Returns whatever it is told to make of its logits."""

    def __init__(self, shape: Any) -> None:
        super().__init__()
        self.linear, self.shape = nn.Linear(3, 4), shape

    def forward(self, x: Tensor) -> Any:
        return self.shape(self.linear(x))


@pytest.mark.parametrize(
    ("shape", "logits", "loss"),
    [
        (lambda z: z, True, None),
        (lambda z: (z, z.sum()), True, "sum"),
        (lambda z: (z.sum(), z), True, "sum"),
        (lambda z: {"aux": z.mean(), "hidden": 2 * z, "logits": z}, True, None),
        (lambda z: {"loss": z.sum(), "hidden": z}, True, "sum"),
        (lambda z: z.sum(), False, "sum"),
        (lambda z: z[..., :1], False, None),
    ],
    ids=["tensor", "tuple", "hf tuple", "mapping", "mapping with loss", "loss alone", "one column"],
)
def test_logits_and_loss_are_found_in_what_the_model_returns(shape: Any, logits: bool, loss: str | None) -> None:
    model, x = Returns(shape), torch.randn(2, 5, 3)
    output = Probe(model, Call((x,), {}))({})
    z = model.linear(x).detach()
    if logits:
        assert output.logits is not None
        torch.testing.assert_close(output.logits, (z - z.mean(-1, keepdim=True)).reshape(10, 4))
    assert (output.logits is None) is not logits
    assert (output.loss is None) is (loss is None)
    if output.loss is not None:
        assert output.loss.item() == pytest.approx(z.sum().item(), rel=1e-6)


@pytest.mark.parametrize("targets", [ids(2, 5, high=4), ids(10, high=4)], ids=["[B, T]", "[B*T]"])
def test_given_targets_make_the_loss_and_ignored_ones_do_not_count(targets: Tensor) -> None:
    targets = targets.clone()
    targets.view(-1)[3] = -100
    model, x = Returns(lambda z: z), torch.randn(2, 5, 3)
    output = Probe(model, Call((x,), {}), targets)({})
    log_p = model.linear(x).detach().reshape(10, 4).log_softmax(-1)
    picked = [-log_p[i, t].item() for i, t in enumerate(targets.flatten().tolist()) if t != -100]
    assert output.loss is not None
    assert output.loss.item() == pytest.approx(sum(picked) / 9, rel=1e-6)


def test_targets_of_another_shape_make_no_loss() -> None:
    model, x = Returns(lambda z: z), torch.randn(2, 5, 3)
    assert Probe(model, Call((x,), {}), ids(5, 2, high=4))({}).loss is None
    assert Probe(model, Call((x,), {}), torch.randn(2, 5))({}).loss is None


def test_bfloat16_parameters_or_logits_are_not_exact() -> None:
    x = torch.randn(2, 3)
    assert Probe(Returns(lambda z: z), Call((x,), {}))({}).exact
    assert not Probe(Returns(lambda z: z.bfloat16()), Call((x,), {}))({}).exact
    assert not Probe(Returns(lambda z: z).bfloat16(), Call((x.bfloat16(),), {}))({}).exact


def test_half_inputs_of_an_autocast_run_are_widened() -> None:
    output = Probe(Returns(lambda z: z), Call((torch.randn(2, 3).bfloat16(),), {}))({})
    assert output.logits is not None
    assert output.exact
