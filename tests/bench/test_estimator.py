import json

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from stabmon.bench import estimator
from stabmon.bench.estimator import COUNTS, MEASURED, RATES, Row
from stabmon.bench.one_update import one_update, rms
from stabmon.cli import app

DRAWS = 320
WAYS = (
    "difference in float32",
    "difference in bfloat16",
    "difference in float32 of bfloat16 weights",
    "estimate in bfloat16 against float32",
)


class Tiny(nn.Module):
    """Two residual blocks without attention."""

    def __init__(self, placement: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.token = nn.Embedding(256, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.Tanh()) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)
        for block in self.blocks:
            x = x + block(x)
        z: Tensor = self.head(self.norm(x))
        return z


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return list(estimator.rows("pre", Tiny("pre"), DRAWS))


def of(rows: list[Row], what: str, quantity: str, lr: float) -> list[Row]:
    return [row for row in rows if (row.what, row.quantity, row.lr) == (what, quantity, lr)]


def test_the_error_of_estimates_is_1_over_sqrt_2k(rows: list[Row]) -> None:
    for quantity in ("block", "whole"):
        found = of(rows, MEASURED, quantity, RATES[1])
        assert [row.cotangents for row in found] == list(COUNTS)
        for row in found:
            assert row.cotangents is not None
            assert row.theory == pytest.approx((2 * row.cotangents) ** -0.5)
            # The root of few squares spreads a little less than that; 10 samples tell a spread to within two thirds.
            assert row.rms == pytest.approx(row.theory, rel=0.67)


def test_a_kl_divergence_is_estimated_within_three_standard_errors(rows: list[Row]) -> None:
    single, mean = (row for row in rows if row.quantity == "KL")
    assert (single.cotangents, single.samples, mean.cotangents) == (16, 10, 160)
    for row in (single, mean):
        assert row.cotangents is not None
        assert row.theory == pytest.approx((2 / row.cotangents) ** 0.5)
        assert row.rms < 3 * row.theory


@pytest.mark.parametrize("lr", RATES)
def test_differences_in_float32_are_exact_also_of_half_weights_and_those_in_bfloat16_are_not(
    rows: list[Row], lr: float
) -> None:
    worst = {what: max(row.p90 for row in rows if (row.what, row.lr) == (what, lr)) for what in WAYS}
    assert worst["difference in float32"] < 0.01
    assert worst["difference in float32 of bfloat16 weights"] < 0.01
    assert worst["estimate in bfloat16 against float32"] < 0.05
    assert worst["difference in bfloat16"] > {1e-3: 0.01, 1e-5: 1, 1e-6: 10}[lr]


def test_exact_differences_and_derivatives_agree_for_a_small_update() -> None:
    update = one_update(Tiny("pre"), torch.randint(256, (2, 9), generator=torch.Generator().manual_seed(0)), 1e-6, 2)
    for names in (*update.blocks, list(update.before)):
        assert rms(update.swapped(names)) == pytest.approx(rms(update.derivative(names)), rel=1e-3)


def test_the_last_line_of_json_is_the_rows_of_both_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimator, "Network", Tiny)
    done = CliRunner().invoke(app, ["bench", "estimator", "--json", "--draws", "32"])
    assert done.exit_code == 0, done.output
    (name,) = found = json.loads(done.stdout.splitlines()[-1])
    assert name == "rows"
    assert {row["placement"] for row in found["rows"]} == {"pre", "post"}
    keys = ["what", "quantity", "placement", "lr", "cotangents", "median", "p90", "rms", "theory", "samples"]
    assert all(list(row) == keys for row in found["rows"])


def test_too_few_draws_are_one_line() -> None:
    done = CliRunner().invoke(app, ["bench", "estimator", "--draws", "3"])
    assert done.exit_code == 2
    assert done.stderr == "stabmon: draws is 3; give at least 32, and 300 or more for a spread\n"
