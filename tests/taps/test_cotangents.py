import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2LMHeadModel

from stabmon.bench.waits import counting
from stabmon.taps import Due
from stabmon.taps.probe.calls import Call
from stabmon.taps.probe.cotangents import Cotangents, Estimates
from stabmon.taps.probe.fitting import fit
from stabmon.taps.probe.probe import Answer, Probe
from tests.taps.one_update import at, batch, by_block, centred, copies, read, step, tap_on, tiny_gpt2, whole

K, SEEDS = 8, 12
TOLERANCE = 3 / math.sqrt(2 * K * SEEDS)
"""Three standard errors of the root of a mean over all seeds."""


@pytest.fixture(scope="module")
def model() -> GPT2LMHeadModel:
    return tiny_gpt2().train()


@pytest.fixture(scope="module")
def before(model: GPT2LMHeadModel) -> dict[str, Tensor]:
    return step(model, 1e-4)


@pytest.fixture(scope="module")
def estimates(model: GPT2LMHeadModel, before: dict[str, Tensor]) -> list[Estimates]:
    return drawn(model, before, Call((), batch()), K, range(SEEDS))


def drawn(model: nn.Module, before: dict[str, Tensor], call: Call, count: int, seeds: range) -> list[Estimates]:
    cotangents, now = Cotangents(by_block(model).values(), count), copies(model)

    def look(answer: Answer) -> list[Estimates]:
        return [cotangents.estimate(answer, now, seed) for seed in seeds]

    return Probe(model, call)(before, look)


def mean(estimates: list[Estimates], of: Callable[[Estimates], Tensor | None]) -> Tensor:
    return torch.stack([value for e in estimates if (value := of(e)) is not None]).mean(0)


def test_blocks_whole_and_context_agree_with_float64_differences_within_three_standard_errors(
    model: GPT2LMHeadModel, before: dict[str, Tensor], estimates: list[Estimates]
) -> None:
    old, after = centred(at(model, before)), copies(model)
    change = centred(at(model, after)) - old
    context = (change - change.mean(0)).square().mean()
    exact = [
        (centred(at(model, before | {name: after[name] for name in names})) - old).square().mean()
        for names in by_block(model).values()
    ]
    found = torch.cat(
        [mean(estimates, lambda e: e.blocks), mean(estimates, lambda e: torch.stack((e.whole, e.context)))]
    )
    expected = torch.stack([*exact, change.square().mean(), context]).float()
    assert (found / expected).sqrt().tolist() == pytest.approx([1] * len(expected), abs=TOLERANCE)


def test_kl_agrees_with_the_exact_divergence_within_three_standard_errors(
    model: GPT2LMHeadModel, before: dict[str, Tensor], estimates: list[Estimates]
) -> None:
    old, new = centred(at(model, before)).log_softmax(-1), centred(at(model, copies(model))).log_softmax(-1)
    exact = (old.exp() * (old - new)).sum(-1).mean().item()
    assert math.sqrt(mean(estimates, lambda e: e.kl).item() / exact) == pytest.approx(1, abs=TOLERANCE)


def test_the_spread_of_estimates_is_the_standard_error_that_is_told() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 61)), torch.randn(96, 8)
    before = copies(model)
    now = {name: value + 1e-4 * torch.randn_like(value) for name, value in before.items()}
    cotangents = Cotangents([[name] for name in before], 4)
    probe = Probe(model, Call((x,), {}), torch.randint(61, (96,)))
    found = probe(before, lambda answer: [cotangents.estimate(answer, now, seed) for seed in range(400)])
    assert cotangents.standard_error == 1 / math.sqrt(8)
    for values in ([e.whole for e in found], [e.context for e in found], [e.kl for e in found if e.kl is not None]):
        squares = torch.stack(values)
        # A mean of 4 squares of normal numbers spreads by sqrt(2 / 4); that of 400 is known to a twentieth of itself.
        assert (squares.std() / squares.mean()).item() == pytest.approx(math.sqrt(2 / 4), rel=0.2)


def test_padding_is_left_out(model: GPT2LMHeadModel, before: dict[str, Tensor]) -> None:
    mask = torch.ones(4, 24, dtype=torch.int64)
    mask[:, 12:] = 0
    found = drawn(model, before, Call((), batch() | {"attention_mask": mask}), K, range(SEEDS))
    kept = mask.flatten() > 0
    old, new = (centred(at(model, values), attention_mask=mask)[kept] for values in (before, copies(model)))
    whole = math.sqrt(mean(found, lambda e: e.whole).item() / (new - old).square().mean().item())
    assert whole == pytest.approx(1, abs=TOLERANCE)


def test_the_same_seed_gives_the_same_and_another_another(model: GPT2LMHeadModel, before: dict[str, Tensor]) -> None:
    first, again, other = (drawn(model, before, Call((), batch()), 1, range(s, s + 1))[0].whole for s in (7, 7, 8))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# ---------------------------------------------------------------------- in the tap


def test_blocks_are_estimated_at_every_probe_and_exact_where_they_are_due() -> None:
    model = tiny_gpt2().train()
    before, blocks = step(model, 1e-4), by_block(model)
    tap = tap_on(model, Call((), batch()), before, blocks=blocks, estimate_blocks=True)
    exact, estimated = read(tap), read(tap, Due(probe=True))
    assert exact["block_output_change_error", ""] == 0
    assert estimated["block_output_change_error", ""] == pytest.approx(1 / math.sqrt(8))
    assert exact["output_change_error", ""] == estimated["output_change_error", ""] == 0
    for site in blocks:
        ratio = math.sqrt(estimated["block_output_change_msq", site.name] / exact["block_output_change_msq", site.name])
        assert 0.2 < ratio < 2.2  # 3.5 standard errors of four cotangents
        assert ratio != 1


@pytest.mark.parametrize("rounded", [False, True])
def test_nothing_waits_for_the_device(rounded: bool) -> None:
    network = tiny_gpt2().train()
    model = Rounded(network, rounded)
    before = {f"network.{name}": value for name, value in step(network, 1e-3).items()}
    blocks = {site: [f"network.{name}" for name in names] for site, names in by_block(network).items()}
    mask = torch.ones(4, 24, dtype=torch.int64)
    tap = tap_on(model, Call((), batch() | {"attention_mask": mask}), before, blocks=blocks, estimate_blocks=True)
    read(tap)
    for due in (Due(probe=True), Due(probe=True, blocks=True)):
        tap.arm(due)
        with counting(torch.device("cpu")) as waits:
            tap.read()
        assert waits.count == 0


class Rounded(nn.Module):
    """A network that nothing can make run in float32, as with quantized layers: it computes in bfloat16 by itself."""

    def __init__(self, network: nn.Module, rounded: bool = True) -> None:
        super().__init__()
        self.network, self.rounded = network, rounded

    def forward(self, attention_mask: Tensor | None = None, **inputs: Tensor) -> object:
        # transformers would look at the mask's values, which is a wait of the model's own.
        with torch.autocast("cpu", torch.bfloat16, enabled=self.rounded):
            return self.network(**inputs)


@pytest.mark.parametrize("lr", [1e-3, 1e-6])
def test_where_outputs_are_rounded_the_change_is_estimated_and_the_loss_read_above_its_rounding(lr: float) -> None:
    network = tiny_gpt2().train()
    before = step(network, lr)
    old, new = at(network, before), at(network, copies(network))
    model = Rounded(network)
    assert not fit(model, Call((), batch())).exact
    named = {f"network.{name}": value for name, value in before.items()}
    blocks = {site: [f"network.{name}" for name in names] for site, names in by_block(network).items()}
    tap = tap_on(model, Call((), batch()), named, blocks=blocks)
    readings = [read(tap, Due(probe=True)) for _ in range(6)]
    error = readings[0]["output_change_error", ""]
    assert error == readings[0]["block_output_change_error", ""] == pytest.approx(1 / math.sqrt(8))
    found = math.sqrt(sum(r["output_change_msq", ""] for r in readings) / 6)
    exact = (centred(new) - centred(old)).square().mean().sqrt().item()
    assert found / exact == pytest.approx(1, abs=3 * error / math.sqrt(6))
    actual, predicted = (readings[0][f"{kind}_loss_change", ""] for kind in ("actual", "predicted"))
    truth = (new(**batch()).loss - old(**batch()).loss).item()
    if lr == 1e-3:
        assert actual == pytest.approx(truth, rel=0.1)
        assert whole(readings[0])["output_change_kl"] > 0
    else:
        assert math.isnan(actual)
        assert predicted == pytest.approx(truth, rel=0.1)


def test_sparse_gradients_of_an_embedding_give_what_dense_ones_do() -> None:
    torch.manual_seed(0)
    values = {"0.weight": torch.randn(7, 3), "1.weight": torch.randn(4, 3), "1.bias": torch.randn(4)}
    toward = {name: value + 0.1 * torch.randn_like(value) for name, value in values.items()}
    cotangents, tokens = Cotangents([["0.weight"], ["1.weight", "1.bias"]]), torch.tensor([[1, 2, 2, 5]])

    def look(answer: Answer) -> list[Tensor | None]:
        return [cotangents.block_changes(answer, toward, 1), answer.slope(toward)]

    found = []
    for sparse in (False, True):
        model = nn.Sequential(nn.Embedding(7, 3, sparse=sparse), nn.Linear(3, 4))
        found.append(Probe(model, Call((tokens,), {}), tokens.clamp(max=3))(values, look))
    for dense, other in zip(*found, strict=True):
        assert dense is not None
        assert other is not None
        assert other.tolist() == pytest.approx(dense.tolist(), rel=1e-6)
