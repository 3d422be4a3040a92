import numpy as np
import pytest

from stabmon.compare.parting import Losses, parting


def noisy(seed: int, count: int = 400, scale: float = 0.05) -> Losses:
    """From 6 to 2, each seed with its own noise."""
    steps = np.arange(count)
    made: Losses = 2 + 4 * np.exp(-steps / 80) + scale * np.random.default_rng(seed).standard_normal(count)
    return made


STEPS = np.arange(1, 401)


def test_the_same_losses_do_not_differ() -> None:
    found = parting(STEPS, noisy(0), STEPS, noisy(0))
    assert found is not None
    assert (found.common, found.first_step, found.last_step) == (400, 1, 400)
    assert (found.differ_at, found.part_at) == (None, None)
    assert found.last[0] == found.last[1] == np.median(noisy(0)[-5:])


def test_other_noise_alone_is_no_parting() -> None:
    found = [parting(STEPS, noisy(2 * seed), STEPS, noisy(2 * seed + 1)) for seed in range(50)]
    assert [each.part_at for each in found if each and each.part_at is not None] == []
    assert {each.differ_at for each in found if each} == {1}


def test_losses_that_go_apart_part_where_they_do_within_two_windows() -> None:
    for seed in range(20):
        other = noisy(2 * seed + 1)
        other[200:] += 0.5
        found = parting(STEPS, noisy(2 * seed), STEPS, other)
        assert found is not None
        assert found.part_at is not None
        assert 196 <= found.part_at <= 206  # windows have 5 points


def test_runs_that_are_the_same_until_a_step_say_so() -> None:
    other = noisy(0)
    other[120:] += 0.3
    found = parting(STEPS, noisy(0), STEPS, other)
    assert found is not None
    assert (found.differ_at, found.part_at) == (121, 121)


def test_a_loss_that_is_not_finite_parts_them() -> None:
    other = noisy(1)
    other[300:] = np.inf
    found = parting(STEPS, noisy(0), STEPS, other)
    assert found is not None
    assert found.part_at == 301
    both = parting(STEPS, other, STEPS, other)
    assert both is not None
    assert both.part_at is None


def test_runs_logged_at_other_steps_are_compared_by_interpolation() -> None:
    straight = 10 - 0.01 * np.arange(1, 1001)
    found = parting(np.arange(10, 1001, 10), straight[9::10], np.arange(5, 1000, 10), straight[4::10])
    assert found is not None
    assert found.common == 99  # step 1000 lies beyond the second one's last
    assert found.part_at is None


@pytest.mark.parametrize("count", [0, 1])
def test_runs_without_a_common_step_cannot_be_compared(count: int) -> None:
    assert parting(STEPS[:count], noisy(0)[:count], STEPS[:0], noisy(0)[:0]) is None
