"""The taps against the numbers measured on a published network at initialisation (d = 512, 6 layers, 5 seeds)."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from stabmon.settings import Settings
from stabmon.taps import Due
from stabmon.taps.instruments import Instruments
from tests.taps.seed_network import VOCABULARY, Network, batch

SEEDS, BATCHES = 5, 5
DUE = Due(layers=True)


@cache
def signals(pre: bool) -> dict[str, np.ndarray]:
    """Means over seeds and batches of what the taps read, by statistic; the weights stay at their initial values."""
    found: dict[str, list[np.ndarray]] = {}
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        network = Network(pre)
        # The one parameter that each block's gradient norm is wanted of is what the optimizer holds.
        optimizer = torch.optim.SGD([block.down.weight for block in network.blocks], lr=0.0)
        instruments = Instruments(network, [optimizer], Settings.of())
        for step in range(1, BATCHES + 1):
            instruments.arm(DUE)
            tokens, targets = batch()
            F.cross_entropy(network(tokens).reshape(-1, VOCABULARY), targets.reshape(-1)).backward()
            optimizer.step()
            optimizer.zero_grad()
            (snapshot,) = instruments.collect(step, None, None, (0.0, 0.0, 0.0))
            for name in ("norm_input_msq", "norm_gain", "grad_norm"):
                found.setdefault(name, []).append(snapshot[name])
        roles = [site.role for site in snapshot.layout.sites_of("norm_input_msq")]
        instruments.detach()
    return {"roles": np.array(roles), **{name: np.mean(rows, axis=0) for name, rows in found.items()}}


def at(pre: bool, statistic: str, role: str) -> np.ndarray:
    read = signals(pre)
    return read[statistic][read["roles"] == role]


def test_post_ln_norm_inputs_are_flat_over_depth() -> None:
    np.testing.assert_allclose(at(False, "norm_input_msq", "ffn_norm"), [1.45, 1.45, 1.47, 1.42, 1.46, 1.50], rtol=0.02)


def test_pre_ln_norm_inputs_grow_with_depth() -> None:
    outputs = [*at(True, "norm_input_msq", "attention_norm")[1:], *at(True, "norm_input_msq", "final")]
    np.testing.assert_allclose(outputs, [1.52, 2.15, 2.89, 3.74, 4.69, 5.75], rtol=0.02)


@pytest.mark.parametrize(("pre", "role", "gain"), [(True, "final", 0.42), (False, "ffn_norm", 0.82)])
def test_final_gain(pre: bool, role: str, gain: float) -> None:
    assert at(pre, "norm_gain", role)[-1] == pytest.approx(gain, abs=0.01)


@pytest.mark.parametrize(
    ("pre", "norms"),
    [(False, [1.17, 1.08, 1.05, 1.07, 1.09, 1.08]), (True, [4.08, 3.23, 2.61, 2.23, 1.89, 1.63])],
)
def test_gradient_norms_of_the_last_matrix_of_each_ffn(pre: bool, norms: list[float]) -> None:
    np.testing.assert_allclose(signals(pre)["grad_norm"], norms, rtol=0.05)
