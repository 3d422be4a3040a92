from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from stabmon.catalog import FLOOR_SQ
from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.gradients import Gradients
from stabmon.taps.groups import Groups

A, B, C = Site("a", 0, "block"), Site("b", 1, "block"), Site("c", 2, "block")


def network() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4), "c": nn.Linear(4, 4)})


def groups(model: nn.Module) -> Groups:
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    names = {site: [n for n in parameters if n.startswith(site.name)] for site in (A, B, C)}
    return Groups(parameters, {site: found for site, found in names.items() if found})


def attach(model: nn.Module, *optimizers: torch.optim.Optimizer) -> Gradients:
    tap = Gradients(groups(model), optimizers or [sgd(model)])
    tap.arm(Due(layers=True))
    return tap


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def read(tap: Gradients) -> dict[str, float]:
    return {site.name: float(v) for (_, site), v in zip(tap.columns(), tap.read(), strict=True)}


def run(model: nn.ModuleDict, x: Tensor) -> Tensor:
    return model["b"](model["a"](x).relu()).square().sum()


def naive(module: nn.Module) -> float:
    return sum(float(p.grad.double().square().sum()) for p in module.parameters() if p.grad is not None)


def test_gradients_are_read_before_they_are_clipped() -> None:
    model = network()
    tap = attach(model)
    run(model, torch.ones(2, 4)).backward()
    expected = {name: naive(model[name]) for name in ("a", "b")}
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    found = read(tap)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-6)
    assert found[""] == pytest.approx(sum(expected.values()), rel=1e-6)
    assert found["c"] != found["c"], "a block without gradients was not read"


def test_after_accumulation_the_sum_of_the_micro_batches_is_read() -> None:
    model = network()
    tap = attach(model)
    run(model, torch.ones(2, 4)).backward()
    run(model, torch.arange(8.0).reshape(2, 4)).backward()
    assert read(tap)["a"] == pytest.approx(naive(model["a"]), rel=1e-6)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_backward_is_read_when_all_of_it_has_ended(reentrant: bool) -> None:
    model = network()
    tap = attach(model)
    hidden = checkpoint(model["a"], torch.ones(2, 4, requires_grad=True), use_reentrant=reentrant)
    checkpoint(model["b"], hidden, use_reentrant=reentrant).square().sum().backward()
    found = read(tap)
    assert found["a"] == pytest.approx(naive(model["a"]), rel=1e-6)
    assert found["b"] == pytest.approx(naive(model["b"]), rel=1e-6)


def test_a_gradient_that_is_not_finite_is_inf_in_its_block_and_in_the_total() -> None:
    model = network()
    optimizer = sgd(model)
    tap = attach(model, optimizer)
    x = torch.ones(2, 4)
    (model["b"](model["a"](x)).sum() * torch.nan + model["c"](x).sum()).backward()
    optimizer.step()
    found = read(tap)
    assert (found["a"], found[""]) == (float("inf"), float("inf"))
    assert found["c"] == pytest.approx(naive(model["c"]), rel=1e-6)


def test_squares_survive_down_to_the_stated_floor() -> None:
    tap = groups(network())
    tensors = [torch.full((1,), FLOOR_SQ**0.5) for _ in tap.parameters]
    assert tap.sum_of_squares(tensors)[0] == pytest.approx(2 * FLOOR_SQ, rel=1e-3)


def test_autograd_grad_on_the_side_is_not_taken_for_the_backward_pass() -> None:
    model = network()
    tap = attach(model)
    torch.autograd.grad(run(model, torch.ones(2, 4)), list(model["a"].parameters()))
    assert all(value != value for value in read(tap).values())


def test_half_precision_gradients_do_not_overflow_their_own_norm() -> None:
    tap = groups(network())
    tensors = [torch.full((4,), 40000.0, dtype=torch.float16) for _ in tap.parameters]
    assert tap.sum_of_squares(tensors)[0] == pytest.approx(8 * 40000.0**2, rel=1e-5)


def test_frozen_and_sparse_parameters() -> None:
    model = nn.ModuleDict({"a": nn.Embedding(10, 4, sparse=True), "b": nn.Linear(4, 4)})
    model["b"].bias.requires_grad_(False)
    tap = attach(model)
    model["b"](model["a"](torch.tensor([1, 1, 3]))).square().sum().backward()
    dense = model["a"].weight.grad.to_dense()
    assert read(tap)["a"] == pytest.approx(float(dense.square().sum()), rel=1e-6)
    assert read(tap)["b"] == pytest.approx(float(model["b"].weight.grad.square().sum()), rel=1e-6)


def test_large_tensors_are_exact_to_1e_6() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"a": nn.Embedding(4096, 1024), "b": nn.Linear(4, 4)})
    found = groups(model).sum_of_squares([p.detach() for p in model.parameters()])
    exact = model["a"].weight.detach().double().square().sum()
    assert float(found[0]) == pytest.approx(float(exact), rel=1e-6)


def test_an_overflow_at_a_scale_whose_square_overflows_too_is_inf() -> None:
    model = network()
    optimizer = sgd(model)
    tap = attach(model, optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)

    def step() -> dict[str, float]:
        tap.arm(Due(layers=True))
        scaler.scale(run(model, torch.ones(2, 4))).backward()
        expected = naive(model["a"]) / scaler.get_scale() ** 2
        scaler.step(optimizer)
        optimizer.zero_grad()
        assert read(tap)["a"] == pytest.approx(expected, rel=1e-6)
        return read(tap)

    assert step()["a"] < 1e6
    scaler.update(2.0**120)
    model["a"].weight.data *= 1e30
    assert step()[""] == float("inf")


def test_a_total_of_which_no_block_was_read_is_not_read() -> None:
    model = network()
    tap = attach(model)
    tap._taken = tap._latest = {0: torch.full((3,), torch.nan)}
    assert all(value != value for value in read(tap).values())


def test_a_backward_pass_that_failed_leaves_the_next_one_read_before_it_is_clipped() -> None:
    model = network()
    tap = attach(model)
    loss = run(model, torch.ones(2, 4))
    refused = next(model["a"].parameters()).register_hook(_out_of_memory)
    with pytest.raises(RuntimeError, match="out of memory"):
        loss.backward()  # b has its gradients by then
    refused.remove()
    model.zero_grad()
    run(model, torch.ones(2, 4)).backward()
    expected = naive(model["a"])
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    assert read(tap)["a"] == pytest.approx(expected, rel=1e-6)


def _out_of_memory(gradient: Tensor) -> None:
    raise RuntimeError("out of memory")
