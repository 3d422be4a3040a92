"""float16 near 65,504, branches and updates that rounding swallows: warned of once, and nothing that is healthy."""

import numpy as np
import pytest
from numpy.typing import ArrayLike

from stabmon.detectors.arrays import Floats
from stabmon.detectors.precision import Precision
from stabmon.records import Alert, Snapshot
from tests.detectors.series import alerts_of, make_series, steps, told

LIMITS = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028e38}


def largest(values: ArrayLike, dtype: str = "float16", every: int = 1) -> list[Snapshot]:
    """A run whose norms' inputs have these largest values."""
    x = np.asarray(values, float)
    used = np.log(x / LIMITS[dtype])
    return make_series({"norm_input_msq": x**0, "activation_max": x, "range_used": used}, first=every, every=every)


def judged(snapshots: list[Snapshot]) -> list[Alert]:
    return alerts_of(Precision(), snapshots)


def test_float16_within_two_doublings_of_its_end_is_a_warning_at_the_third_reading() -> None:
    """65,504 / 4 = 16,376."""
    values = np.where(steps(60) < 30, 16000.0, 16500.0)
    (alert,) = judged(largest(values))
    assert (alert.step, alert.severity, alert.since) == (32, "warning", 30)
    assert alert.evidence["precision_headroom"] == pytest.approx(np.log(65504 / 16500), abs=1e-5)
    assert "no forecast" in alert.action


def test_growth_that_overflows_within_fifty_steps_is_critical_and_says_when() -> None:
    """x1.03 a step: from 16,376 on, ln 4 / ln 1.03 = 46.9 steps are left."""
    grows = 100 * 1.03 ** steps(210)
    alerts = judged(largest(grows))
    first = int(np.argmax(grows > 65504 / 4)) + 1
    assert told(alerts) == [(first + 2, "critical")]
    left = np.log(65504 / grows[first + 1]) / np.log(1.03)
    assert f"overflows in about {left:.0f} steps" in alerts[0].action


def test_slow_growth_is_a_warning_until_fifty_steps_are_left() -> None:
    grows = 1000 * 1.01 ** steps(400)
    severities = told(judged(largest(grows)))
    assert [severity for _, severity in severities] == ["warning", "critical"]
    left = np.log(65504 / 1000) / np.log(1.01) - severities[1][0]
    assert 49 <= left <= 50


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_format_with_range_to_spare_is_silent(dtype: str) -> None:
    assert judged(largest(100 * 1.03 ** steps(300), dtype)) == []


def test_massive_activations_of_ten_thousand_are_silent() -> None:
    assert judged(largest(np.full(100, 1e4))) == []


def test_two_outliers_in_a_row_are_silent() -> None:
    values = np.full(100, 500.0)
    values[50:52] = 6e4
    assert judged(largest(values)) == []


def test_the_norm_nearest_to_the_end_is_named() -> None:
    x = np.full((20, 4), 100.0) * [1, 2, 400, 3]
    alert, *_ = judged(
        make_series({"norm_input_msq": x**0, "activation_max": x, "range_used": np.log(x / LIMITS["float16"])})
    )
    assert (alert.site, alert.layer) == ("layers.2.norm", 2)


def test_norms_in_float32_beside_float16_ones_do_not_count() -> None:
    x = np.full((20, 2), 5e4)
    used = np.log(x / [LIMITS["float32"], LIMITS["float16"]])
    (alert,) = judged(make_series({"norm_input_msq": x**0, "activation_max": x, "range_used": used}))
    assert alert.layer == 1


def rounded(x: Floats) -> Floats:
    """To bfloat16, to nearest."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    return (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def updates(learning_rate: float, stochastic: bool) -> list[Snapshot]:
    """What bfloat16 weights of rms .02 make of Adam's updates, in 40 steps."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(40):
        weights = rounded(rng.normal(0, 0.02, 4000))
        meant = learning_rate * rng.normal(0, 0.4, 4000)
        spread = 2.0 ** (np.floor(np.log2(np.abs(weights))) - 7) * rng.uniform(-0.5, 0.5, 4000) * stochastic
        moved = rounded(weights + meant + spread) - weights
        rows.append([np.square(v).sum() for v in (moved, meant, moved - meant)])
    names = ("update_sq", "intended_update_sq", "lost_update_sq")
    columns = dict(zip(names, np.array(rows).T, strict=True))
    return make_series({"norm_input_msq": np.ones(40), "weight_sq": np.ones(40), **columns})


@pytest.mark.parametrize(("learning_rate", "severities"), [(1e-3, []), (1e-4, []), (1e-5, [(10, "warning")])])
def test_bfloat16_weights_lose_nine_tenths_of_small_updates(
    learning_rate: float, severities: list[tuple[int, str]]
) -> None:
    assert told(judged(updates(learning_rate, stochastic=False))) == severities


@pytest.mark.parametrize("learning_rate", [1e-3, 1e-4, 9e-5, 1e-5, 1e-6])
def test_stochastic_rounding_loses_nothing(learning_rate: float) -> None:
    assert judged(updates(learning_rate, stochastic=True)) == []


def swamped(shares: Floats) -> list[Snapshot]:
    ones = np.ones_like(shares)
    parts = {"swamped_share": shares, "branch_msq": 1e-5 * ones, "trunk_msq": ones}
    return make_series({"norm_input_msq": ones[:, :1], **parts}, every=10, first=10)


def test_a_stream_that_swallows_a_fifth_of_its_branches_is_a_warning() -> None:
    shares = np.where(steps(60)[:, None] < 30, 0.02, [0.2, 0.5, 0.1, 0.1])
    (alert,) = judged(swamped(shares))
    assert (alert.step, alert.since, alert.layer) == (390, 300, 1)
    assert alert.evidence["mean_swamped_share"] == pytest.approx(0.225)
    assert alert.evidence["branch_ratio"] == pytest.approx(1e-5**0.5, rel=1e-4)


def test_one_layer_that_adds_nothing_is_silent() -> None:
    assert judged(swamped(np.tile([0.7, 0.01, 0.01, 0.01], (60, 1)))) == []


def test_branches_that_start_small_are_silent() -> None:
    assert judged(swamped(np.where(steps(60)[:, None] < 25, 1.0, 0.01) * np.ones(4))) == []


def test_at_level_light_nothing_is_read_and_nothing_said() -> None:
    assert judged(make_series({"norm_input_msq": np.ones(50)})) == []


def test_missing_readings_change_nothing() -> None:
    full = largest(np.where(steps(60) < 30, 16000.0, 16500.0))
    gaps = [s if s.step != 31 else Snapshot(31, s.time, s.values * np.nan, s.layout) for s in full]
    (alert,) = judged(gaps)
    assert (alert.step, alert.since) == (33, 30)


def test_what_has_room_is_ruled_out_with_its_reading() -> None:
    shares = np.full((60, 4), 0.3)
    snapshots = swamped(shares)
    both = make_series(
        {
            "norm_input_msq": np.ones(60),
            "swamped_share": shares,
            "activation_max": np.full(60, 655.04),
            "range_used": np.full(60, np.log(0.01)),
        },
        every=10,
        first=10,
    )
    assert judged(snapshots)[0].ruled_out == ()
    assert judged(both)[0].ruled_out == ("overflow: x100 left",)
