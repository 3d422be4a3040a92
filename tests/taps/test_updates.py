from __future__ import annotations

import pytest
import torch
from torch import nn

from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.groups import Groups
from stabmon.taps.optimizer.updates import Updates


def attach(model: nn.Linear, *optimizers: torch.optim.Optimizer) -> Updates:
    parameters = dict(model.named_parameters())
    tap = Updates(Groups(parameters, {Site("m", 0, "block"): list(parameters)}), optimizers)
    tap.arm(Due(layers=True))
    return tap


def read(tap: Updates) -> dict[str, float]:
    return {statistic: float(v) for (statistic, _), v in zip(tap.columns(), tap.read(), strict=True)}


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().double().reshape(-1) for p in model.parameters()])


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_update_and_weight_norms_are_of_what_really_moved(kind: type[torch.optim.Optimizer]) -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    optimizer = kind(model.parameters(), lr=0.1, weight_decay=0.5)
    tap = attach(model, optimizer)
    before = flat(model)
    model(torch.ones(2, 8)).square().sum().backward()
    optimizer.step()
    found = read(tap)
    assert found["weight_sq"] == pytest.approx(float(before.square().sum()), rel=1e-6)
    assert found["update_sq"] == pytest.approx(float((flat(model) - before).square().sum()), rel=1e-5)
    assert (found["learning_rate"], found["skipped_steps"]) == (pytest.approx(0.1), 0.0)


def test_the_rate_is_that_of_the_step_though_a_scheduler_has_moved_on() -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1))
    tap = attach(model, optimizer)
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.param_groups[0]["lr"].mul_(0.5)
    assert read(tap)["learning_rate"] == pytest.approx(0.1)


def test_a_step_that_never_happened_is_skipped_and_not_read() -> None:
    model = nn.Linear(8, 8)
    tap = attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
    found = read(tap)
    assert found.pop("skipped_steps") == 1.0
    assert all(value != value for value in found.values())


def test_two_optimizers_make_one_update() -> None:
    model = nn.Linear(8, 8)
    first, second = torch.optim.SGD([model.weight], lr=0.1), torch.optim.SGD([model.bias], lr=0.1)
    tap = attach(model, first, second)
    before = flat(model)
    model(torch.ones(2, 8)).square().sum().backward()
    first.step()
    second.step()
    assert read(tap)["update_sq"] == pytest.approx(float((flat(model) - before).square().sum()), rel=1e-5)


def test_no_copy_is_taken_when_nothing_is_due() -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tap = attach(model, optimizer)
    tap.arm(Due())
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    assert tap.weights_before() is None


def test_closures_and_nested_steps_are_one_update() -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    tap = attach(model, optimizer)
    before = flat(model)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 8)).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert read(tap)["update_sq"] == pytest.approx(float((flat(model) - before).square().sum()), rel=1e-5)
