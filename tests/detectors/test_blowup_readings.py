"""Time, growth and placement as residual_blowup reads them."""

import numpy as np
import pytest

from stabmon.detectors.arrays import Floats
from stabmon.detectors.blowup_readings import Clock, Growth, Shocks, on_stream
from stabmon.records import Site
from tests.detectors.series import make_series


def site(layer: int | None, placement: str) -> Site:
    return Site(f"{layer}.{placement}", layer, placement=placement)


@pytest.mark.parametrize(
    ("placements", "seen"),
    [
        (["pre", "inner", "inner", "pre"], [1, 0, 0, 1]),
        (["post", "post"], [1, 1]),
        (["sandwich", "sandwich", "sandwich", "sandwich"], [1, 0, 1, 0]),
        (["sandwich", "inner", "sandwich", "sandwich", "sandwich"], [1, 0, 0, 1, 0]),
        (["res_post", "res_post"], [0, 0]),
        (["parallel"], [1]),
        ([""], [1]),
    ],
)
def test_norms_off_the_residual_stream_are_not_judged(placements: list[str], seen: list[int]) -> None:
    layers = [site(layer, placement) for layer in range(3) for placement in placements]
    around = [site(None, "embedding"), *layers, site(None, "final")]
    assert on_stream(around).tolist() == [False, *[bool(s) for s in seen * 3], True]


def times(rate: Floats) -> Floats:
    clock, found = Clock(), []
    for snapshot in make_series({"learning_rate": rate}):
        clock.tick(snapshot)
        found.append(clock.now)
    return np.array(found)


def test_a_warm_up_counts_its_steps_by_their_rate_and_a_ramp_or_a_decay_after_it_does_not() -> None:
    warm = np.minimum(np.arange(1, 101) / 50, 1.0)
    assert times(warm)[-1] == pytest.approx(warm.sum())
    ramp = np.concatenate([warm, 1.02 ** np.arange(200)])
    decay = np.concatenate([warm, 0.99 ** np.arange(200)])
    for rate in (ramp, decay):
        assert times(rate)[-1] == pytest.approx(warm.sum() + 200)


def test_a_jump_counts_by_its_rate_as_long_as_it_lasts() -> None:
    rate = np.ones(150)
    rate[100:110] = 30
    assert times(rate)[-1] == pytest.approx(rate.sum())


def test_a_jump_back_up_after_a_cut_adds_no_time() -> None:
    rate = np.ones(150)
    rate[50:100] = 0.1
    assert times(rate)[-1] == pytest.approx(150)


def test_without_a_rate_time_is_the_step() -> None:
    clock = Clock()
    for snapshot in make_series({"loss": np.ones(70)}):
        clock.tick(snapshot)
    assert clock.now == 70


def grown(n: Floats, first: int = 1) -> Growth:
    growth, clock = Growth(n.shape[1]), Clock()
    for snapshot in make_series({"norm_input_msq": n}, first=first):
        clock.tick(snapshot)
        growth.add(snapshot.step, clock, snapshot["norm_input_msq"])
    return growth


def test_the_exponent_of_a_power_law_is_its_power_and_of_an_exponential_its_rate_times_the_step() -> None:
    t = np.arange(1.0, 401)
    growth = grown(np.stack([0.1 * t**1.5, 1e-6 * t**4, 5 * np.exp(0.02 * t)], axis=1))
    assert growth.exponent[:2] == pytest.approx([1.5, 4], rel=2e-3)
    # The short window's, taken at its middle: x1.02 a step at step 380.
    assert growth.exponent[2] == pytest.approx(0.02 * 380, rel=0.01)
    assert growth.rate[2] == pytest.approx(0.02, rel=1e-4)
    assert [growth.exponential(i) for i in range(3)] == [False, False, True]


def test_growth_in_depth_is_told_where_it_is_exponential_and_not_where_it_is_linear() -> None:
    depth = np.arange(8)
    exponential, linear = (grown(np.tile(law, (60, 1))) for law in (1.5**depth, 1 + 2.0 * depth))
    everywhere = np.ones(8, dtype=bool)
    assert exponential.depth_factor(everywhere) == pytest.approx(1.5)
    assert np.isnan(linear.depth_factor(everywhere))
    assert np.isnan(exponential.depth_factor(everywhere & (depth < 5)))


def test_where_no_range_is_read_float16_is_over_when_30_times_the_rms_is_65504() -> None:
    """n = (65504 / 30)^2 e^(-.04 s), s steps from the end: the rms grows by 2 % a step."""
    t = np.arange(1.0, 301)
    growth = grown(((65504 / 30) ** 2 * np.exp(-0.04 * (350 - t)))[:, None])
    found = growth.overflow(0)
    assert found is not None
    assert (found.earliest, found.latest) == pytest.approx((50, 50), abs=0.5)


def test_updates_overshoot_when_the_trend_of_their_kl_reaches_a_fifth_of_a_nat() -> None:
    """Every ten steps, x1.02 a step, .05 at step 100: ln 4 / ln 1.02 = 70 steps on."""
    t = np.arange(10.0, 101, 10)
    shocks = Shocks()
    for snapshot in make_series({"output_change_kl": 0.05 * 1.02 ** (t - 100)}, first=10, every=10):
        shocks.read(snapshot)
    found = shocks.forecast()
    assert found is not None
    assert (found.earliest, found.latest) == pytest.approx((70, 70), abs=0.5)
    assert shocks.overshot == -1
