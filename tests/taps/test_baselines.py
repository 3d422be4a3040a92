"""Which targets the baselines are of, and where a left neighbour says something of what there is to learn."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stabmon.taps.baselines import Baselines
from stabmon.taps.forward import Forward

CLASSES, ROWS, TIME = 8, 16, 33
STEPS = 40


class Returns(nn.Module):
    """Has a norm and a parameter, and returns what it is told to."""

    def __init__(self, output: Any, **config: Any) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.output = output
        if config:
            self.config = type("Config", (), config)()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.output


def walk(seed: int) -> Tensor:
    """Tokens [ROWS, TIME + 1], nine in ten the one before plus 1: a bigram is worth much, a unigram nothing."""
    generator = torch.Generator().manual_seed(seed)
    jumps = torch.randint(CLASSES, (ROWS, TIME + 1), generator=generator)
    steady = torch.rand(ROWS, TIME + 1, generator=generator) < 0.9
    return torch.where(steady, 1, jumps).cumsum(1) % CLASSES


def scored(model: nn.Module, batches: list[tuple[tuple[Any, ...], dict[str, Any], Tensor | None]]) -> Any:
    """float32[3]: uniform, unigram, bigram of the last step."""
    forward = Forward(model, ["norm"], pytest.fail)
    baselines = Baselines(forward)
    for args, kwargs, given in batches:
        model(*args, **kwargs)
        chosen = baselines.targets(given)
        found = baselines.score(None if chosen is None else chosen.numpy())
    forward.detach()
    return found


def tokens() -> list[Tensor]:
    return [walk(seed) for seed in range(STEPS)]


LOGITS = torch.zeros(ROWS, TIME, CLASSES)
UNIFORM = log(CLASSES)
BIGRAM = -(0.9125 * log(0.9125) + 0.0875 * log(0.0875 / 7))
"""Entropy of the walk: the next token is the expected one in 90 % of cases, and in an eighth of the rest."""


@pytest.mark.parametrize("flat", [False, True])
def test_next_tokens_given_to_step_have_a_bigram_also_flattened(flat: bool) -> None:
    targets = [t[:, 1:].reshape(-1) if flat else t[:, 1:] for t in tokens()]
    batches = [((t[:, :-1],), {}, y) for t, y in zip(tokens(), targets, strict=True)]
    uniform, unigram, bigram = scored(Returns(LOGITS), batches)
    assert (uniform, unigram) == pytest.approx((UNIFORM, UNIFORM), abs=0.02)
    assert bigram == pytest.approx(BIGRAM, abs=0.1)


@pytest.mark.parametrize(("rows", "length"), [(64, 128), (1, 8192)])
def test_a_batch_of_more_tokens_than_are_looked_at_has_a_bigram_all_the_same(rows: int, length: int) -> None:
    """A count from a random start in each row: known from its left neighbour, and from nothing else."""
    starts = torch.randint(CLASSES, (20, rows, 1), generator=torch.Generator().manual_seed(0))
    counts = [(torch.arange(length + 1) + start) % CLASSES for start in starts]
    batches: list[Any] = [((t[:, :-1],), {}, t[:, 1:]) for t in counts]
    assert scored(Returns(torch.zeros(rows, length, CLASSES)), batches)[1:] == pytest.approx((UNIFORM, 0.0), abs=0.02)


def test_inputs_are_those_of_the_last_of_several_micro_batches() -> None:
    batches: list[Any] = [((t[-4:, :-1],), {}, t[:, 1:]) for t in tokens()]
    assert scored(Returns(LOGITS), batches)[2] == pytest.approx(BIGRAM, abs=0.1)


def test_labels_that_are_the_inputs_have_a_bigram_also_where_some_do_not_count() -> None:
    masked = [torch.where(torch.arange(TIME + 1) < 10, -100, t) for t in tokens()]
    batches = [((), {"input_ids": t, "labels": y}, None) for t, y in zip(tokens(), masked, strict=True)]
    assert scored(Returns(torch.zeros(ROWS, TIME + 1, CLASSES)), batches)[2] == pytest.approx(BIGRAM, abs=0.12)


def test_labels_of_a_decoder_that_shifts_them_itself_have_a_bigram() -> None:
    sources = torch.zeros(ROWS, 5, dtype=torch.long)
    batches = [((), {"input_ids": sources, "labels": t}, None) for t in tokens()]
    model = Returns(torch.zeros(ROWS, TIME + 1, CLASSES), is_encoder_decoder=True)
    assert scored(model, batches)[2] == pytest.approx(BIGRAM, abs=0.1)
    assert np.isnan(scored(Returns(LOGITS), batches)[2]), "of any other model it isn't known"


def test_masked_tokens_have_a_unigram_alone() -> None:
    batches = []
    for seed, t in enumerate(tokens()):
        hidden = torch.rand(t.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
        batches.append(((), {"input_ids": torch.where(hidden, 7, t), "labels": torch.where(hidden, t, -100)}, None))
    uniform, unigram, bigram = scored(Returns(torch.zeros(ROWS, TIME + 1, CLASSES)), batches)
    assert (uniform, unigram) == pytest.approx((UNIFORM, UNIFORM), abs=0.02)
    assert np.isnan(bigram)


def test_tags_that_are_not_the_inputs_have_a_unigram_alone() -> None:
    batches = [((), {"input_ids": 7 - t, "labels": torch.zeros_like(t)}, None) for t in tokens()]
    uniform, unigram, bigram = scored(Returns(torch.zeros(ROWS, TIME + 1, CLASSES)), batches)
    assert uniform == pytest.approx(UNIFORM)
    assert unigram == pytest.approx(0.0, abs=0.01)
    assert np.isnan(bigram)


def test_classes_have_the_entropy_of_their_counts_and_no_bigram() -> None:
    share = torch.tensor([0.7, 0.1, 0.1, 0.1])
    generator = torch.Generator().manual_seed(0)
    classes = [torch.multinomial(share, 64, True, generator=generator) for _ in range(STEPS)]
    batches: list[Any] = [((torch.zeros(64, 3, 8, 8),), {}, y) for y in classes]
    uniform, unigram, bigram = scored(Returns(torch.zeros(64, 4)), batches)
    # Of the last batch alone, guessed with the shares of the whole.
    expected = float(-share.log()[classes[-1]].mean())
    assert uniform == pytest.approx(log(4))
    assert unigram == pytest.approx(expected, abs=0.02)
    assert np.isnan(bigram)


def test_pixels_have_no_bigram() -> None:
    images = [torch.arange(16).expand(4, 16, 16) // 4 for _ in range(3)]
    batches: list[Any] = [((torch.zeros(4, 3, 16, 16),), {}, y) for y in images]
    found = scored(Returns(torch.zeros(4, 4, 16, 16)), batches)
    assert np.isfinite(found[1])
    assert np.isnan(found[2])


def test_numbers_to_regress_on_have_none() -> None:
    batches: list[Any] = [((torch.zeros(4, 3),), {"labels": torch.rand(4)}, None)]
    assert np.isnan(scored(Returns(torch.zeros(4, 1)), batches)).all()


def test_two_classes_told_by_one_output_have_the_entropy_of_both() -> None:
    batches: list[Any] = [((torch.zeros(100, 3),), {}, torch.arange(100) % 2)] * 3
    assert scored(Returns(torch.zeros(100, 1)), batches)[:2] == pytest.approx((log(2), log(2)), abs=0.02)


def test_input_tokens_stand_for_targets_of_a_language_model_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "stabmon")
    batches: list[Any] = [((), {"attention_mask": torch.ones_like(t), "input_ids": t}, None) for t in tokens()]
    words = scored(Returns(torch.zeros(ROWS, TIME + 1, CLASSES)), batches)
    assert words[2] == pytest.approx(BIGRAM, abs=0.1)
    assert sum("stand for them" in r.message for r in caplog.records) == 1
    pooled = scored(Returns(torch.zeros(ROWS, CLASSES)), batches)
    assert np.isnan(pooled).all(), "one output a sample: its targets are not known"


def test_no_targets_left_in_a_batch() -> None:
    batches: list[Any] = [((torch.zeros(0, 5, dtype=torch.long),), {}, torch.zeros(0, 5, dtype=torch.long))]
    assert np.isnan(scored(Returns(torch.zeros(0, 5, CLASSES)), batches)).all()
