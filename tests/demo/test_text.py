import math
from collections import Counter

import pytest
import torch

from stabmon.demo.text import batches, entropies, read_text


def test_entropies_equal_those_counted_by_hand() -> None:
    data = read_text()[:5000]
    tokens = data.tolist()
    singles, firsts, pairs = Counter(tokens), Counter(tokens[:-1]), Counter(zip(tokens, tokens[1:], strict=False))
    unigram = -sum(n / 5000 * math.log(n / 5000) for n in singles.values())
    bigram = -sum(n / 4999 * math.log(n / firsts[first]) for (first, _), n in pairs.items())
    assert entropies(data) == pytest.approx((unigram, bigram), rel=1e-12)


def test_text_that_repeats_ab_has_unigram_entropy_ln_2_and_bigram_entropy_0() -> None:
    text = torch.tensor([97, 98] * 5000, dtype=torch.uint8)
    assert entropies(text) == pytest.approx((math.log(2), 0.0), abs=1e-12)


def test_targets_are_the_inputs_one_byte_on() -> None:
    inputs, targets = next(batches(read_text(), seed=0))
    assert inputs.shape == targets.shape == (16, 64)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_the_same_seed_gives_the_same_batches_whatever_torch_drew_before() -> None:
    text = read_text()
    first = next(batches(text, seed=3))[0]
    torch.rand(7)
    assert torch.equal(next(batches(text, seed=3))[0], first)
    assert not torch.equal(next(batches(text, seed=4))[0], first)
