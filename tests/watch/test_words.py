"""Numbers, curves and hostile text."""

import math

import pytest

from stabmon.watch.words import age, factor, number, plain, seconds, spark


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"), (math.inf, "not finite"), (2.3149, "2.31"), (0.0, "0"), (12_400.0, "12,400"), (1234.6, "1,235"),
        (2.88e-6, "2.88e-6"), (3.2e38, "3.20e38"), (-0.5, "-0.5"), (150_000.5, "1.50e5"),
    ],
)  # fmt: skip
def test_a_number_has_three_digits(value: float | None, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3.6, "×3.6"),
        (0.5, "÷2"),
        (1.0, "×1"),
        (1 / 220, "÷220"),
        (2.2e5, "×2.2e5"),
        (math.inf, "!"),
        (None, ""),
        (0, ""),
    ],
)
def test_a_factor_says_its_direction(value: float | None, shown: str) -> None:
    assert factor(value) == shown


def test_a_curve_goes_from_low_to_high_and_shows_what_was_not_read_and_not_finite() -> None:
    assert spark([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert spark([1.0, None, math.inf, math.nan, 8.0], 5) == "▁ !!█"
    assert spark([2.0, 2.0], 5) == "▁▁"
    assert spark([], 5) == ""
    assert spark([math.inf], 5) == "!"


def test_a_long_curve_keeps_its_highest_values() -> None:
    values = [1.0] * 1000
    values[357] = 9.0
    drawn = spark(values, 10)
    assert (len(drawn), drawn.index("█")) == (10, 3)


def test_a_wide_range_is_logarithmic() -> None:
    # 1 to 1e7 in even factors: even steps.
    assert spark([10.0**i for i in range(8)], 8) == "▁▂▃▄▅▆▇█"


def test_names_cannot_steer_the_terminal() -> None:
    assert plain("a\x1b[2Jb\nc\u202ed\x9b") == "a\ufffd[2Jb c\ufffdd\ufffd"
    assert plain("\U0001f525 \U0001f468\u200d\U0001f52c h.0.ln") == "\U0001f525 \U0001f468\u200d\U0001f52c h.0.ln"


def test_a_clock_that_was_set_back_tells_of_no_future() -> None:
    assert (age(-30.0), age(40.0), age(None)) == ("0 s ago", "40 s ago", "")


def test_a_step_takes_ms_or_s() -> None:
    assert (seconds(0.0032), seconds(1.25), seconds(None)) == ("3.2 ms", "1.2 s", "–")
