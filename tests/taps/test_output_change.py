import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon.catalog import STATISTICS
from stabmon.taps.probe.calls import Call
from stabmon.taps.probe.divergence import kl_divergence
from tests.taps.one_update import at, batch, by_block, centred, copies, read, step, tap_on, tiny_gpt2, whole


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def test_columns_are_in_the_catalog_and_belong_to_their_scope() -> None:
    columns = tap_on(tiny_gpt2(), None, None, blocks=by_block(tiny_gpt2())).columns()
    assert len(columns) == 10 + 2 * 4
    for name, site in columns:
        assert STATISTICS[name].scope == ("block" if site.name else "model")
        assert STATISTICS[name].formula is None


@pytest.mark.parametrize("lr", [1e-2, 1e-4])
def test_total_change_split_and_kl_equal_a_float64_copy_of_the_model(lr: float) -> None:
    model = tiny_gpt2().train()
    before = step(model, lr)
    found = whole(read(tap_on(model, Call((), batch()), before)))
    old, new = centred(at(model, before)), centred(at(model, copies(model)))
    change = new - old
    context = change - change.mean(0)
    kl = F.kl_div(new.log_softmax(-1), old.log_softmax(-1), log_target=True, reduction="batchmean")
    assert found["output_msq"] == pytest.approx(old.square().mean().item(), rel=1e-5)
    assert found["output_change_msq"] == pytest.approx(change.square().mean().item(), rel=1e-3)
    assert found["output_change_context_msq"] == pytest.approx(context.square().mean().item(), rel=1e-3)
    assert found["output_change_kl"] == pytest.approx(kl.item(), rel=1e-3)
    share = (old - old.mean(0)).square().sum() / old.square().sum()
    assert found["probe_context_share"] == pytest.approx(share.item(), rel=1e-5)


def test_change_by_a_relative_update_of_1e_6_is_exact_to_2_percent_in_float32() -> None:
    model = tiny_gpt2().train()
    before = copies(model)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1 + 1e-6 * torch.randn_like(p))
    found = whole(read(tap_on(model, Call((), batch()), before)))
    old, new = centred(at(model, before)), centred(at(model, copies(model)))
    kl = F.kl_div(new.log_softmax(-1), old.log_softmax(-1), log_target=True, reduction="batchmean")
    assert found["output_change_msq"] == pytest.approx((new - old).square().mean().item(), rel=0.04)
    assert found["output_change_kl"] == pytest.approx(kl.item(), rel=0.04)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_changes_of_half_parameters_equal_a_float64_copy_of_what_is_stored(dtype: torch.dtype) -> None:
    model = tiny_gpt2().to(dtype).train()
    before, blocks = step(model, 1e-3, torch.optim.SGD if dtype == torch.float16 else torch.optim.Adam), by_block(model)
    found = read(tap_on(model, Call((), batch()), before, blocks=blocks))
    after = copies(model)
    old, new = centred(at(model, before)), centred(at(model, after))
    kl = F.kl_div(new.log_softmax(-1), old.log_softmax(-1), log_target=True, reduction="batchmean")
    assert found["output_change_msq", ""] == pytest.approx((new - old).square().mean().item(), rel=1e-3)
    assert found["output_change_kl", ""] == pytest.approx(kl.item(), rel=1e-3)
    assert found["output_change_error", ""] == 0
    loss = at(model, after)(**batch()).loss - at(model, before)(**batch()).loss
    assert found["actual_loss_change", ""] == pytest.approx(loss.item(), rel=1e-2)
    for site, names in blocks.items():
        change = centred(at(model, before | {name: after[name] for name in names})) - old
        assert found["block_output_change_msq", site.name] == pytest.approx(change.square().mean().item(), rel=1e-3)


def test_padding_counts_in_no_statistic_of_the_output() -> None:
    model = tiny_gpt2().train()
    before = step(model, 1e-3)
    mask = torch.ones(4, 24, dtype=torch.int64)
    mask[0, 9:], mask[2, 20:] = 0, 0
    found = whole(read(tap_on(model, Call((), batch() | {"attention_mask": mask}), before)))
    old, new = (
        centred(at(model, values), attention_mask=mask)[mask.flatten() > 0] for values in (before, copies(model))
    )
    change = new - old
    kl = F.kl_div(new.log_softmax(-1), old.log_softmax(-1), log_target=True, reduction="batchmean")
    share = (old - old.mean(0)).square().sum() / old.square().sum()
    assert found["output_msq"] == pytest.approx(old.square().mean().item(), rel=1e-5)
    assert found["output_change_msq"] == pytest.approx(change.square().mean().item(), rel=1e-3)
    assert found["output_change_context_msq"] == pytest.approx(
        (change - change.mean(0)).square().mean().item(), rel=1e-3
    )
    assert found["output_change_kl"] == pytest.approx(kl.item(), rel=1e-3)
    assert found["probe_context_share"] == pytest.approx(share.item(), rel=1e-5)


def test_each_blocks_change_equals_a_copy_in_which_it_alone_moved() -> None:
    model = tiny_gpt2().train()
    before, blocks = step(model, 1e-3), by_block(model)
    found = read(tap_on(model, Call((), batch()), before, blocks=blocks))
    old, after = centred(at(model, before)), copies(model)
    for site, names in blocks.items():
        change = centred(at(model, before | {name: after[name] for name in names})) - old
        assert found["block_output_change_msq", site.name] == pytest.approx(change.square().mean().item(), rel=1e-3)
        assert found["block_output_msq", site.name] == pytest.approx(old.square().mean().item(), rel=1e-5)


def test_loss_changes_equal_the_models_own_loss_and_gradient() -> None:
    model = tiny_gpt2().train()
    before = step(model, 1e-3)
    found = whole(read(tap_on(model, Call((), batch()), before)))
    old, new = at(model, before), at(model, copies(model))
    loss = old(**batch()).loss
    loss.backward()
    moves = zip(old.parameters(), new.parameters(), strict=True)
    slope = sum((p.grad * (q - p)).sum().item() for p, q in moves if p.grad is not None)
    assert found["probe_loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert found["predicted_loss_change"] == pytest.approx(slope, rel=1e-4)
    assert found["actual_loss_change"] == pytest.approx(new(**batch()).loss.item() - loss.item(), rel=1e-3)


def test_trust_ratio_is_1_for_a_small_step_and_falls_with_a_large_one() -> None:
    ratio = {}
    for lr in (1e-5, 3e-2):
        model = tiny_gpt2().train()
        found = whole(read(tap_on(model, Call((), batch()), step(model, lr))))
        ratio[lr] = found["actual_loss_change"] / found["predicted_loss_change"]
    assert ratio[1e-5] == pytest.approx(1, abs=0.01)
    assert ratio[3e-2] < 0.7


def test_trust_ratio_of_a_quadratic_is_1_minus_half_the_curvature_along_the_step() -> None:
    class Quadratic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Linear(3, 1, bias=False)

        def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
            return {"loss": (self.w(x) - y).square().mean()}

    model, x, y = Quadratic(), torch.randn(8, 3), torch.randn(8, 1)
    before = copies(model)
    gradient = torch.autograd.grad(model(x, y)["loss"], model.w.weight)[0]
    lr = 0.3
    with torch.no_grad():
        model.w.weight -= lr * gradient
    found = whole(read(tap_on(model, Call((x, y), {}), before)))
    hessian = 2 * x.T @ x / 8
    expected = 1 - lr * (gradient @ hessian @ gradient.T).item() / (2 * gradient.square().sum().item())
    assert found["actual_loss_change"] / found["predicted_loss_change"] == pytest.approx(expected, rel=1e-4)
    assert math.isnan(found["output_change_msq"])
    assert math.isnan(found["probe_context_share"])


def test_loss_comes_from_given_targets_where_the_model_has_none() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(61, 16), nn.Linear(16, 61))
    x, y = torch.randint(61, (40, 24)), torch.randint(61, (40, 24))
    found = whole(read(tap_on(model, Call((x,), {}), copies(model), targets=y.flatten())))
    kept = slice(0, 512 // 24)
    expected = F.cross_entropy(model(x[kept]).flatten(0, 1), y[kept].flatten())
    assert found["probe_loss"] == pytest.approx(expected.item(), rel=1e-6)


def test_reading_changes_nothing_that_training_sees() -> None:
    ends: list[dict[str, Tensor]] = []
    for watched in (False, True):
        torch.manual_seed(3)
        model = tiny_gpt2().train()
        torch.manual_seed(4)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(3):
            for _ in range(2):
                (model(**batch()).loss / 2).backward()
            before = copies(model)
            optimizer.step()
            if watched:
                read(tap_on(model, Call((), batch()), before, blocks=by_block(model)))
            optimizer.zero_grad()
        ends.append(copies(model))
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_detach_forgets_the_probe() -> None:
    model = tiny_gpt2()
    tap = tap_on(model, Call((), batch()), step(model, 1e-3))
    read(tap)
    tap.detach()
    assert torch.isnan(tap.read()).all()


# ---------------------------------------------------------------------- KL


@pytest.mark.parametrize(
    ("scale", "error"),
    [(1e-6, 2e-3), (1e-5, 5e-4), (1e-4, 5e-5), (1e-2, 1e-6), (0.1, 1e-6), (1.0, 1e-6), (10.0, 1e-6), (100.0, 1e-6)],
)
def test_kl_equals_float64_over_sixteen_orders_of_magnitude(scale: float, error: float) -> None:
    z, change = 3 * torch.randn(64, 1000), scale * torch.randn(64, 1000)
    p, q = z.double().log_softmax(-1), (z.double() + change.double()).log_softmax(-1)
    expected = F.kl_div(q, p, log_target=True, reduction="batchmean").item()
    assert kl_divergence(z, change).item() == pytest.approx(expected, rel=error)


def test_kl_of_a_jump_that_overflows_exp_is_finite() -> None:
    z = torch.tensor([[0.0, 0.0]])
    change = torch.tensor([[500.0, -500.0]])
    assert kl_divergence(z, change).item() == pytest.approx(500 - math.log(2), rel=1e-6)


def test_kl_over_several_portions_of_rows_is_the_mean_over_all() -> None:
    z, change = torch.randn(200, 50_257), 0.1 * torch.randn(200, 50_257)
    halves = [kl_divergence(z[rows], change[rows]).item() for rows in (slice(0, 50), slice(50, 200))]
    assert kl_divergence(z, change).item() == pytest.approx((halves[0] + 3 * halves[1]) / 4, rel=1e-5)
