import math

import pytest

from stabmon.demo.training import Plan, last_mean, patience


def test_patience_speaks_once_the_wait_is_over() -> None:
    losses = [3.0, 2.0, *[2.5] * 200]
    assert patience(losses, 100) == 102  # best at step 2


def test_patience_starts_again_at_every_new_best() -> None:
    losses = [3.0, *[3.1] * 99, 2.9, *[3.1] * 99]
    assert patience(losses, 100) is None
    assert patience([*losses, 2.9], 100) == 201  # equal is not better


def test_patience_counts_steps_without_a_finite_loss() -> None:
    assert patience([1.0, *[math.nan] * 3], 3) == 4


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("placement", "mid"),
        ("optimizer", "lion"),
        ("lr", 0.0),
        ("lr", math.nan),
        ("steps", 0),
        ("warmup", -1),
        ("device", "gpu"),
    ],
)
def test_a_bad_option_is_named_with_its_value(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{option} is {value!r}") as caught:
        Plan(**{option: value})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_last_mean_is_of_the_last_20_or_of_fewer_where_there_are_fewer() -> None:
    assert last_mean([100.0, *range(20)]) == 9.5
    assert last_mean([1.0, 2.0]) == 1.5
