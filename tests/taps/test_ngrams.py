"""The n-gram ladder against a second, naive computation and against entropies known in closed form."""

import math
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from stabmon.taps import ngrams
from stabmon.taps.ngrams import Ladder

Tokens = NDArray[np.int64]


def naive(steps: list[Tokens], vocabulary: int) -> list[tuple[float, float]]:
    """(unigram, bigram) per step, token by token from dictionaries: each row [B, T], no id left out."""
    tokens: Counter[int] = Counter()
    lefts: Counter[int] = Counter()
    pairs: Counter[tuple[int, int]] = Counter()
    concentrations = [4.0**i for i in range(8)]
    weights = [[2.0**-i for i in range(9)], [1 / 16] * 8 + [1 / 2]]
    found = []
    for step in steps:
        bits = [0.0, 0.0]
        evidence = [[0.0] * 9, [0.0] * 9]
        neighbours = [(a, b) for row in step.tolist() for a, b in zip(row, row[1:], strict=False)]
        for a, b in neighbours:
            base = 1 / vocabulary
            for level, (count, total) in enumerate(((tokens[b], tokens.total()), (pairs[a, b], lefts[a]))):
                parts = [(count + k * base) / (total + k) for k in concentrations] + [base]
                norm = sum(weights[level])
                base = sum(w * p for w, p in zip(weights[level], parts, strict=True)) / norm
                bits[level] -= math.log(base)
                evidence[level] = [e + math.log(p) for e, p in zip(evidence[level], parts, strict=True)]
        for level in (0, 1):
            logs = [0.9 * math.log(w) + e for w, e in zip(weights[level], evidence[level], strict=True)]
            weights[level] = [max(math.exp(x - max(logs)), 1e-300) for x in logs]
        tokens.update(step.ravel().tolist())
        lefts.update(a for a, _ in neighbours)
        pairs.update(neighbours)
        found.append((bits[0] / len(neighbours), bits[1] / len(neighbours)))
    return found


def zipf(vocabulary: int, seed: int = 0) -> NDArray[np.float64]:
    p = 1 / np.arange(1, vocabulary + 1)
    return np.asarray(p / p.sum())


def independent(steps: int, vocabulary: int = 256, seed: int = 0) -> list[Tokens]:
    rng = np.random.default_rng(seed)
    return [rng.choice(vocabulary, size=(16, 64), p=zipf(vocabulary)) for _ in range(steps)]


def markov(steps: int, seed: int = 0) -> list[Tokens]:
    """256 states, each followed by 4 others, equally likely: bigram entropy ln 4."""
    rng = np.random.default_rng(seed)
    after = rng.integers(0, 256, (256, 4))
    x = np.empty((steps, 16, 64), np.int64)
    x[..., 0] = rng.integers(0, 256, (steps, 16))
    for t in range(1, 64):
        x[..., t] = after[x[..., t - 1], rng.integers(0, 4, (steps, 16))]
    return list(x)


def test_it_gives_the_numbers_of_a_token_by_token_computation() -> None:
    steps = [batch[:2, :20] for batch in markov(4)]
    ladder = Ladder(256)
    given = [ladder.observe(step) for step in steps]
    np.testing.assert_allclose([b[1:] for b in given], naive(steps, 256), rtol=1e-9)


def test_the_first_step_is_scored_before_it_is_counted() -> None:
    assert Ladder(256).observe(markov(1)[0]) == pytest.approx([math.log(256)] * 3, rel=1e-12)


def test_no_gap_on_independent_tokens() -> None:
    ladder = Ladder(256)
    gaps = [b.unigram - b.bigram for b in map(ladder.observe, independent(100))]
    assert max(gaps) < 0.02
    assert np.abs(gaps[10:]).max() < 0.005


def test_no_gap_on_permuted_tokens_of_a_chain() -> None:
    tokens = np.random.default_rng(1).permutation(np.concatenate(markov(60)).ravel())
    ladder = Ladder(256)
    gaps = [b.unigram - b.bigram for b in map(ladder.observe, tokens.reshape(60, 16, 64))]
    assert max(gaps) < 0.02
    assert np.abs(gaps[10:]).max() < 0.005


def test_a_chain_shows_its_gap_within_three_thousand_tokens_and_its_entropies_later() -> None:
    ladder = Ladder(256)
    given = [ladder.observe(step) for step in markov(100)]
    assert given[3].unigram - given[3].bigram > 0.5  # scored with the counts of 3,072 tokens
    assert given[-1].bigram == pytest.approx(math.log(4), abs=0.03)
    assert given[-1].unigram == pytest.approx(5.4, abs=0.1)


def test_the_unigram_loss_approaches_the_entropy_of_independent_tokens() -> None:
    p = zipf(256)
    ladder = Ladder(256)
    last = [ladder.observe(step).unigram for step in independent(100)][-20:]
    assert np.mean(last) == pytest.approx(-(p * np.log(p)).sum(), abs=0.02)


def test_class_labels_have_no_bigram() -> None:
    ladder = Ladder(10)
    ladder.observe(np.zeros(50, np.int64))
    given = ladder.observe(np.zeros(50, np.int64))
    assert given.uniform == pytest.approx(math.log(10))
    assert given.unigram < 0.3
    assert math.isnan(given.bigram)


def test_an_unknown_vocabulary_is_the_largest_id_seen_and_learns_the_same_pairs() -> None:
    known, unknown = Ladder(256), Ladder()
    steps = markov(5)
    steps[0][0, 0] = 255
    given = [(known.observe(step), unknown.observe(step)) for step in steps]
    np.testing.assert_allclose([a for a, _ in given], [b for _, b in given], rtol=1e-12)
    assert unknown.vocabulary == 256


def test_ignored_and_impossible_ids_are_neither_scored_nor_counted() -> None:
    clean, dirty = Ladder(256), Ladder(256)
    for step in markov(3):
        padded = np.concatenate([step, np.tile([-100, -1, 256], (16, 1))], axis=1)
        assert dirty.observe(padded) == clean.observe(step)
    assert dirty.tokens.tolist() == clean.tokens.tolist()


def test_a_pair_is_two_neighbours_that_are_both_read() -> None:
    ladder = Ladder(8)
    ladder.observe(np.array([[1, 2, -100, 3], [4, -100, 5, 6]]))
    assert ladder.pairs.sum() == 2
    assert ladder.lefts.tolist() == [0, 1, 0, 0, 0, 1, 0, 0]
    assert ladder.tokens.tolist() == [0, 1, 1, 1, 1, 1, 1, 0]


def test_of_masked_text_pairs_are_counted_wherever_it_is_known_and_scored_where_a_target_has_an_input_to_its_left() -> (
    None
):
    """Text 1 2 3 4 2 3, in two rows of which a 7 hides some."""
    given = np.array([[1, 7, 3], [4, 7, 7]])
    targets = np.array([[-100, 2, -100], [-100, 2, 3]])
    ladder = Ladder(8)
    ladder.observe(targets, given)
    pairs = {(i // 8, i % 8): int(n) for i, n in enumerate(ladder.pairs) if n}
    assert pairs == {(1, 2): 1, (2, 3): 2, (4, 2): 1}
    assert ladder.tokens.tolist() == [0, 0, 2, 1, 0, 0, 0, 0]
    again = ladder.observe(targets, given)
    # By hand: after 1 and after 4 a 2 was seen once in once, after the mask nothing. Weights fade, nothing else yet.
    alone = [mixed(parts(count, 3, 1 / 8), [2.0**-i for i in range(9)]) for count in (2, 1)]
    after = mixed(parts(1, 1, alone[0]), [1 / 16] * 8 + [1 / 2])
    assert again.unigram == pytest.approx(-(2 * math.log(alone[0]) + math.log(alone[1])) / 3)
    assert again.bigram == pytest.approx(-(2 * math.log(after) + math.log(alone[1])) / 3)


def mixed(parts: list[float], prior: list[float]) -> float:
    faded = [weight**0.9 for weight in prior]
    return sum(w * p for w, p in zip(faded, parts, strict=True)) / sum(faded)


def parts(count: int, total: int, base: float) -> list[float]:
    """What smoothed counts say, by concentration, and their base."""
    return [(count + 4.0**i * base) / (total + 4.0**i) for i in range(8)] + [base]


def test_another_ignore_index_may_be_an_id() -> None:
    ladder = Ladder(8)
    ladder.observe(np.array([[0, 1, 0, 2]]), ignore_index=0)
    assert ladder.tokens.tolist() == [0, 1, 1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    "targets", [np.empty((0, 4), np.int64), np.full((2, 4), -100), np.zeros((2, 4), np.float32)], ids=str
)
def test_nothing_to_score_is_nan(targets: NDArray[np.int64]) -> None:
    assert np.isnan(Ladder(8).observe(targets)).all()


def test_a_full_table_does_not_invent_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """50,000 ids in 512 slots: nearly every pair finds its slot taken."""
    monkeypatch.setattr(
        ngrams.Ladder, "_slots", lambda self, left, right: (left * 50_000 + right + 1, (left * 31 + right) % 512)
    )
    ladder = Ladder(50_000)
    gaps = [b.unigram - b.bigram for b in map(ladder.observe, independent(60, 50_000))]
    assert max(gaps) < 0.02


def test_a_large_vocabulary_takes_a_table_of_fixed_size() -> None:
    ladder = Ladder(200_000)
    ladder.observe(np.array([[199_999, 0, 199_999, 5]]))
    assert len(ladder.pairs) == 1 << 22
    assert ladder.pairs.sum() == 3


@pytest.mark.parametrize("vocabulary", [256, None, 5_000])
def test_a_loaded_ladder_goes_on_as_if_it_had_never_stopped(vocabulary: int | None) -> None:
    steps = markov(12)
    whole, first = Ladder(vocabulary), Ladder(vocabulary)
    for step in steps[:6]:
        whole.observe(step)
        first.observe(step)
    loaded = Ladder.load(first.dump())
    for step in steps[6:]:
        assert loaded.observe(step) == whole.observe(step)


def test_a_dump_is_small() -> None:
    ladder = Ladder()
    for step in markov(12):
        ladder.observe(step)
    assert len(ladder.dump()) < 20_000


def test_targets_are_left_as_they_were() -> None:
    step = markov(1)[0]
    before = step.copy()
    Ladder(256).observe(step)
    assert (step == before).all()


def test_a_vocabulary_of_zero_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"vocabulary is 0; pass the number of classes"):
        Ladder(0)
