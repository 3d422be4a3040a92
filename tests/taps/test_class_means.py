"""The nearest class mean against a computation from all examples, and against what can be known of a task."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from stabmon.taps.class_means import ClassMeans

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


def examples(steps: int, apart: float, size: int = 32, classes: int = 4) -> list[tuple[Labels, Floats]]:
    """Of classes whose means lie `apart` standard deviations from 0 in five features each, of 20."""
    rng = np.random.default_rng(0)
    means = np.kron(np.eye(classes), np.full(20 // classes, apart))
    found = []
    for _ in range(steps):
        labels = rng.integers(0, classes, size)
        found.append((labels, means[labels] + rng.normal(size=(size, 20))))
    return found


def losses(steps: list[tuple[Labels, Floats]], shares: Floats) -> Floats:
    means = ClassMeans.of(len(shares), steps[0][1])
    assert means is not None
    return np.array([means.observe(labels, x, shares) for labels, x in steps])


def even(classes: int) -> Floats:
    return np.full(classes, 1 / classes)


def naive(steps: list[tuple[Labels, Floats]], shares: Floats) -> Floats:
    """From all examples before each step, one class after the other."""
    weights = np.array([1 / 12] * 6 + [1 / 2])
    found = []
    for number, (labels, x) in enumerate(steps):
        logs = np.zeros((len(x), len(shares)))
        if number:
            before, of = np.concatenate([x for _, x in steps[:number]]), np.concatenate([y for y, _ in steps[:number]])
            seen = np.unique(of)
            squares = before.var(0) + sum(((before[of == c] - before[of == c].mean(0)) ** 2).sum(0) for c in seen)
            variance = squares / (len(of) - len(seen) + 1)
            for c in range(len(shares)):
                count = (of == c).sum()
                mean = (before[of == c].sum(0) + before.mean(0)) / (count + 1)
                spread = variance * (1 + 1 / (count + 1))
                logs[:, c] = (-((x - mean) ** 2) / spread / 2 - np.log(spread / variance) / 2).sum(1)
        parts = []
        for temperature in 2.0 ** -np.arange(5, -1, -1)[::-1]:
            odds = shares * np.exp(temperature * (logs - logs.max(1, keepdims=True)))
            parts.append((odds / odds.sum(1, keepdims=True))[np.arange(len(x)), labels])
        mixed = weights @ np.array([*parts, shares[labels]])
        found.append(-np.log(mixed).mean())
        weights = weights**0.9 * np.exp(np.log([*parts, shares[labels]]).sum(1) + 60)
        weights /= weights.sum()
    return np.array(found)


def test_it_gives_the_numbers_of_a_computation_from_all_examples() -> None:
    steps, shares = examples(8, 0.5, size=8), np.array([0.4, 0.3, 0.2, 0.1])
    assert losses(steps, shares) == pytest.approx(naive(steps, shares), rel=1e-9)


def test_the_first_step_is_scored_before_it_is_counted() -> None:
    assert losses(examples(1, 9.0), even(4))[0] == pytest.approx(math.log(4), rel=1e-12)


def test_classes_that_lie_far_apart_are_known_within_three_steps() -> None:
    assert losses(examples(4, 5.0), even(4))[3] < 0.05


def test_it_comes_close_to_what_the_true_means_give() -> None:
    """Two classes, one feature, 2 standard deviations apart."""
    rng = np.random.default_rng(1)
    steps = [((y := rng.integers(0, 2, 64)), 2.0 * y[:, None] + rng.normal(size=(64, 1))) for _ in range(200)]
    true = np.mean([np.log1p(np.exp((1 - 2 * y) * 2 * (x[:, 0] - 1))).mean() for y, x in steps[100:]])
    assert losses(steps, even(2))[100:].mean() == pytest.approx(true, abs=0.01)


def test_features_that_go_together_do_not_make_it_too_sure() -> None:
    """One feature, sixteen times."""
    rng = np.random.default_rng(1)
    steps = [((y := rng.integers(0, 2, 64)), 2.0 * y[:, None] + rng.normal(size=(64, 1))) for _ in range(100)]
    copied = [(y, np.repeat(x, 16, axis=1)) for y, x in steps]
    assert losses(copied, even(2))[20:].mean() == pytest.approx(losses(steps, even(2))[20:].mean(), abs=0.02)


def test_no_gain_where_features_tell_nothing() -> None:
    """Ten classes, some of them rare, and at first fewer examples than features."""
    rng = np.random.default_rng(2)
    shares = np.array([0.3, 0.2] + [0.0625] * 8)
    steps = [(rng.choice(10, 16, p=shares), rng.normal(size=(16, 64))) for _ in range(200)]
    gains = np.array([-np.log(shares[y]).mean() for y, _ in steps]) - losses(steps, shares)
    medians = [np.median(gains[i : i + 9]) for i in range(191)]
    assert max(medians) < 0.02
    assert gains[50:].mean() == pytest.approx(0, abs=0.01)


def test_units_and_offsets_of_features_change_nothing() -> None:
    steps = examples(10, 1.0)
    moved = [(y, 1e-3 * x * np.arange(1, 21) + 1e3) for y, x in steps]
    assert losses(moved, even(4)) == pytest.approx(losses(steps, even(4)), rel=1e-5)


def test_a_feature_that_never_changes_and_examples_that_are_not_finite_change_nothing() -> None:
    steps = examples(5, 1.0)
    still = [(y, np.append(x, np.full((len(x), 1), 0.1), axis=1)) for y, x in steps]
    assert losses(still, even(4)) == pytest.approx(losses(steps, even(4)))
    dirty = [(np.append(y, [1, 7, -100]), np.append(x, [x[0] + np.nan, x[0], x[0]], axis=0)) for y, x in steps]
    assert losses(dirty, even(4)) == pytest.approx(losses(steps, even(4)))


def test_there_is_none_of_too_many_classes_without_features_or_with_other_ones() -> None:
    assert ClassMeans.of(1025, np.ones((4, 3))) is None
    assert ClassMeans.of(4, np.full((2, 3), np.nan)) is None
    means = ClassMeans.of(4, np.ones((4, 3)))
    assert means is not None
    assert math.isnan(means.observe(np.zeros(4, np.int64), np.ones((4, 5)), even(4)))
    assert math.isnan(means.observe(np.full(4, -100), np.ones((4, 3)), even(4)))


def test_of_a_thousand_classes_some_examples_are_scored_and_all_are_counted() -> None:
    means = ClassMeans.of(1000, np.ones((256, 3)))
    assert means is not None
    assert means.observe(np.arange(256), np.random.default_rng(0).normal(size=(256, 3)), even(1000)) > 0
    assert means.counts.sum() == 256


def test_a_loaded_one_goes_on_as_if_it_had_never_stopped() -> None:
    steps = examples(8, 1.0)
    whole = losses(steps, even(4))
    first = ClassMeans.of(4, steps[0][1])
    assert first is not None
    found = [first.observe(y, x, even(4)) for y, x in steps[:4]]
    loaded = ClassMeans.load(first.dump())
    assert [*found, *(loaded.observe(y, x, even(4)) for y, x in steps[4:])] == whole.tolist()
