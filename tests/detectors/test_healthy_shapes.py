"""Runs whose every statistic goes as it should: no detector says more than an info, alone or with the others."""

import numpy as np
import pytest

from stabmon.catalog import STATISTICS
from stabmon.detectors import default_detectors
from stabmon.detectors.arrays import Floats
from stabmon.pipeline import build
from stabmon.records import Alert, Run, Snapshot
from tests.detectors.series import make_series

COUNT, LAYERS = 400, 4
HEALTHY = {
    "loss": (5.79, 2.2),
    "learning_rate": (1e-3, 1e-3),
    "uniform_loss": (5.55, 5.55),
    "unigram_loss": (3.3, 3.12),
    "bigram_loss": (2.9, 2.2),
    "pretrained": (0, 0),
    "skipped_steps": (0, 0),
    "final_norm_input_msq": (6.7, 40),
    "context_share": (0.18, 0.5),
    "norm_input_msq": (2.5, 13),
    "norm_input_var": (2.4, 13),
    "norm_gain": (0.66, 0.29),
    "token_similarity": (0.7, 0.18),
    "total_grad_sq": (21, 0.9),
    "grad_sq": (1.8, 0.035),
    "weight_sq": (586, 605),
    "update_sq": (5e-3, 2e-3),
    "intended_update_sq": (5e-3, 2e-3),
    "attention_logit_max": (2.5, 6),
    "attention_entropy": (0.95, 0.8),
    "attention_entropy_min": (0.9, 0.67),
    "log_z": (5.7, 6.5),
    "log_z_msq": (32, 43),
    "logit_max": (2.3, 8.6),
    "logit_mean": (-0.05, -0.05),
    "probe_context_share": (0.05, 0.08),
    "probe_loss": (5.8, 2.3),
    "output_msq": (0.4, 7),
    "output_change_msq": (1e-3, 3e-3),
    "output_change_context_msq": (5e-4, 1.8e-3),
    "output_change_kl": (5e-3, 2e-3),
    "actual_loss_change": (-2e-2, -2e-3),
    "predicted_loss_change": (-2.2e-2, -2.3e-3),
    "activation_max": (6, 15),
    "range_used": (-87, -86),
    "branch_msq": (0.4, 1.1),
    "trunk_msq": (2.9, 10),
    "branch_cosine": (0.06, 0.2),
    "swamped_share": (0, 0),
    "dead_unit_share": (0.05, 0),
    "saturated_unit_share": (0, 0),
    "rms_t_msq": (0.9, 0.9),
    "adam_update_msq": (0.9, 0.05),
    "epsilon_share": (0.03, 1e-3),
}
"""First and last value, as recorded of a small Pre-LN language model on text."""
MODEL = {name for name, row in STATISTICS.items() if row.scope == "model"}

t = np.arange(1.0, COUNT + 1)
SHAPES = {
    "a constant": np.ones(COUNT),
    "a power law": np.log(t) / np.log(COUNT),
    "a line": (t - 1) / (COUNT - 1),
    "an exponential": 1 - np.exp(-t / 60),
    "steps": np.repeat(np.arange(8) / 7, COUNT // 8),
}
"""Share of the way, in logarithms, from first to last."""


def between(first: float, last: float, share: Floats) -> Floats:
    if first * last <= 0:
        return np.asarray(first + (last - first) * share)
    return np.asarray(first * (last / first) ** share)


def run(shape: str, noise: float = 0.0, seed: int = 0, first: int = 1) -> list[Snapshot]:
    """`noise`: relative, of each value for itself."""
    rng = np.random.default_rng(seed)
    rows = {}
    for name, ends in HEALTHY.items():
        width = 1 if name in MODEL else LAYERS
        values = np.repeat(between(*ends, SHAPES[shape])[:, None], width, axis=1)
        rows[name] = values * np.exp(noise * rng.normal(size=values.shape)) if values.all() else values
    rows["learning_rate"] = np.full((COUNT, 1), 1e-3)
    return make_series(rows, first=first)


def loud(snapshots: list[Snapshot]) -> list[Alert]:
    pipeline = build(Run("r", 0.0), default_detectors(), [])
    for snapshot in snapshots:
        pipeline.feed(snapshot)
    return [alert for alert in pipeline.alerts if alert.severity != "info"]


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_healthy_run_is_silent(shape: str, noise: float) -> None:
    assert [(a.step, a.detector, a.action) for a in loud(run(shape, noise))] == []


@pytest.mark.parametrize("first", [101, 1_000_001])
def test_a_healthy_run_of_which_no_log_tells_the_beginning_is_silent(first: int) -> None:
    assert loud(run("a constant", 0.03, first=first)) == []


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_the_scale_of_gradients_and_weights_changes_no_alert(scale: float) -> None:
    """Of both alike: a loss in other units, a model of another width. Here gradients and updates jump in mid-run."""

    def told(factor: float) -> list[tuple[str, int, str]]:
        snapshots = run("a power law", 0.03)
        for snapshot in snapshots:
            for name in ("total_grad_sq", "grad_sq", "weight_sq", "update_sq", "intended_update_sq"):
                slots = snapshot.layout.slots(name)
                jump = 400 if 300 <= snapshot.step < 320 and name != "weight_sq" else 1
                snapshot.values[slots] *= np.float32(factor * jump)
        return [(a.detector, a.step, a.severity) for a in loud(snapshots)]

    assert told(scale) == told(1.0) != []
