"""Which targets the baselines are of, and where a left neighbour says something of what there is to learn."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stabmon.records import LEAK
from stabmon.taps import Due
from stabmon.taps.baselines import Baselines
from stabmon.taps.forward import Forward
from stabmon.taps.notices import Notices
from stabmon.taps.targets import features

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
    """float32[4]: uniform, unigram, bigram, class mean of the last step."""
    forward = Forward(model, ["norm"], pytest.fail)
    baselines = Baselines(forward)
    for args, kwargs, given in batches:
        model(*args, **kwargs)
        found = baselines.score([tensor.numpy() for tensor in baselines.targets(given)])
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
    uniform, unigram, bigram, _ = scored(Returns(LOGITS), batches)
    assert (uniform, unigram) == pytest.approx((UNIFORM, UNIFORM), abs=0.02)
    assert bigram == pytest.approx(BIGRAM, abs=0.1)


@pytest.mark.parametrize(("rows", "length"), [(64, 128), (1, 8192)])
def test_a_batch_of_more_tokens_than_are_looked_at_has_a_bigram_all_the_same(rows: int, length: int) -> None:
    """A count from a random start in each row: known from its left neighbour, and from nothing else."""
    starts = torch.randint(CLASSES, (20, rows, 1), generator=torch.Generator().manual_seed(0))
    counts = [(torch.arange(length + 1) + start) % CLASSES for start in starts]
    batches: list[Any] = [((t[:, :-1],), {}, t[:, 1:]) for t in counts]
    assert scored(Returns(torch.zeros(rows, length, CLASSES)), batches)[1:3] == pytest.approx((UNIFORM, 0.0), abs=0.02)


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


MASK = CLASSES


def masked(seed: int) -> tuple[Tensor, Tensor]:
    """A walk of which half the tokens are hidden: (inputs, labels)."""
    text = walk(seed)
    hidden = torch.rand(text.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    return torch.where(hidden, MASK, text), torch.where(hidden, text, -100)


def test_masked_tokens_have_a_bigram_of_the_input_to_their_left() -> None:
    """Where that is hidden as well, nothing is known of them: of half the targets."""
    batches = [((), {"input_ids": x, "labels": y}, None) for x, y in map(masked, range(STEPS))]
    _, unigram, bigram, _ = scored(Returns(torch.zeros(ROWS, TIME + 1, CLASSES + 1)), batches)
    inputs, labels = masked(STEPS - 1)
    known = float((inputs[:, :-1] != MASK)[labels[:, 1:] >= 0].float().mean())
    assert unigram == pytest.approx(UNIFORM, abs=0.02)
    assert bigram == pytest.approx(known * BIGRAM + (1 - known) * UNIFORM, abs=0.1)


def test_that_a_leak_cannot_be_seen_in_masked_text_is_told_once() -> None:
    model, notices = Returns(torch.zeros(ROWS, TIME + 1, CLASSES + 1)), Notices()
    forward = Forward(model, ["norm"], pytest.fail)
    baselines = Baselines(forward, notices)
    for inputs, labels in map(masked, range(3)):
        model(input_ids=inputs, labels=labels)
        baselines.score([tensor.numpy() for tensor in baselines.targets(None)])
    assert [notice["what"] for notice in notices.take()] == [LEAK]
    for text in tokens()[:3]:
        model(input_ids=text, labels=text)
        Baselines(forward, notices).score([tensor.numpy() for tensor in baselines.targets(None)])
    assert notices.take() == []


@pytest.mark.parametrize("share", [0.02, 1.0], ids=["a target a row", "nothing is visible"])
def test_text_with_too_few_targets_or_too_many_has_no_bigram(share: float) -> None:
    batches: list[Any] = []
    for t in tokens():
        hidden = torch.arange(TIME + 1).expand_as(t) >= (TIME + 1) * (1 - share)
        batches.append(((), {"input_ids": torch.where(hidden, MASK, t), "labels": torch.where(hidden, t, -100)}, None))
    assert np.isnan(scored(Returns(torch.zeros(ROWS, TIME + 1, CLASSES + 1)), batches)[2])


def test_tags_of_some_words_have_a_unigram_alone() -> None:
    some = torch.arange(TIME + 1) % 2 == 0
    batches = [((), {"input_ids": t, "labels": torch.where(some, (t + 3) % CLASSES, -100)}, None) for t in tokens()]
    assert np.isnan(scored(Returns(torch.zeros(ROWS, TIME + 1, CLASSES)), batches)[2])


def test_tags_that_are_not_the_inputs_have_a_unigram_alone() -> None:
    batches = [((), {"input_ids": 7 - t, "labels": torch.zeros_like(t)}, None) for t in tokens()]
    uniform, unigram, bigram, _ = scored(Returns(torch.zeros(ROWS, TIME + 1, CLASSES)), batches)
    assert uniform == pytest.approx(UNIFORM)
    assert unigram == pytest.approx(0.0, abs=0.01)
    assert np.isnan(bigram)


def test_classes_have_the_entropy_of_their_counts_and_no_bigram() -> None:
    share = torch.tensor([0.7, 0.1, 0.1, 0.1])
    generator = torch.Generator().manual_seed(0)
    classes = [torch.multinomial(share, 64, True, generator=generator) for _ in range(STEPS)]
    batches: list[Any] = [((torch.zeros(64, 3, 8, 8),), {}, y) for y in classes]
    uniform, unigram, bigram, _ = scored(Returns(torch.zeros(64, 4)), batches)
    # Of the last batch alone, guessed with the shares of the whole.
    expected = float(-share.log()[classes[-1]].mean())
    assert uniform == pytest.approx(log(4))
    assert unigram == pytest.approx(expected, abs=0.02)
    assert np.isnan(bigram)


def pictures(seed: int, told: float, side: int = 8) -> tuple[Tensor, Tensor]:
    """Of 4 classes, in noise of 1: each has a corner that is brighter by `told`."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randint(4, (64,), generator=generator)
    x = torch.randn(64, 3, side, side, generator=generator)
    for corner in range(4):
        half = side // 2
        top, left = (corner // 2) * half, (corner % 2) * half
        x[classes == corner, :, top : top + half, left : left + half] += told
    return x, classes


@pytest.mark.parametrize(("told", "side", "loss"), [(1.0, 8, 0.0), (1.0, 100, 0.0), (0.0, 8, log(4))])
def test_classes_of_pictures_have_a_class_mean_loss_that_tells_whether_pictures_tell_them(
    told: float, side: int, loss: float
) -> None:
    batches: list[Any] = [((x,), {}, y) for x, y in (pictures(seed, told, side) for seed in range(10))]
    _, unigram, bigram, mean = scored(Returns(torch.zeros(64, 4)), batches)
    assert unigram == pytest.approx(log(4), abs=0.05)
    assert np.isnan(bigram)
    assert mean == pytest.approx(loss, abs=0.05)


def test_classes_have_a_class_mean_loss_only_where_the_model_is_given_numbers_for_each() -> None:
    x, y = pictures(0, 1.0)
    for given in (torch.ones(64, 9, dtype=torch.long), x.byte(), x[:32], y.float(), x[:0]):
        batches: list[Any] = [((given,), {}, y)] * 3
        assert np.isnan(scored(Returns(torch.zeros(64, 4)), batches)[3]), given.shape
    named: list[Any] = [((), {"attention_mask": x.flatten(1)}, y)] * 3
    assert np.isnan(scored(Returns(torch.zeros(64, 4)), named)[3])


def test_class_means_are_read_when_layers_are() -> None:
    x, y = pictures(0, 1.0)
    model = Returns(torch.zeros(64, 4))
    baselines = Baselines(Forward(model, ["norm"], pytest.fail))
    model(x)
    baselines.arm(Due(layers=False))
    assert len(baselines.targets(y)) == 1
    baselines.arm(Due(layers=True))
    assert baselines.targets(y)[1].shape == (64, 48)


def test_features_are_the_means_of_parts_and_of_at_most_64() -> None:
    x = torch.arange(2 * 3 * 40 * 24.0).reshape(2, 3, 40, 24)
    parts = features(x, 1)
    assert parts.shape == (1, 48)
    # 40 pixels high is over 32, so every second row is read, 20 of them, in 4 parts.
    assert parts[0, 0] == pytest.approx(float(x[1, 0, 0:10:2, :6].mean()))
    assert parts[0, -1] == pytest.approx(float(x[1, 2, 30::2, 18:].mean()))
    assert (features(x[:, 0, 0], 2) == x[:, 0, 0]).all(), "24 numbers are few enough"
    assert features(torch.ones(2, 10_000), 2).shape == (2, 64)


def test_what_is_kept_goes_on_as_if_it_had_never_stopped() -> None:
    model = Returns(torch.zeros(64, 4))
    forward = Forward(model, ["norm"], pytest.fail)
    whole, first, second = Baselines(forward), Baselines(forward), Baselines(forward)
    found = []
    for seed in range(6):
        x, y = pictures(seed, 0.3)
        model(x)
        sent = [tensor.numpy() for tensor in whole.targets(y)]
        found.append(whole.score(sent))
        part = first if seed < 3 else second
        assert part.score(sent) == pytest.approx(found[-1], nan_ok=True)
        if seed == 2:
            second.load(dict(first.dump()).get)
    assert set(whole.dump()) == {"ladder", "class_means"}


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


def test_input_tokens_stand_for_targets_also_where_batches_are_of_other_lengths() -> None:
    model = Returns(None)
    forward = Forward(model, ["norm"], pytest.fail)
    baselines = Baselines(forward)
    for length in (TIME, 9, 21):
        model.output = torch.zeros(ROWS, length, CLASSES)
        model(walk(0)[:, :length])
        assert np.isfinite(baselines.score([tensor.numpy() for tensor in baselines.targets(None)])[1])


@pytest.mark.parametrize(("start", "unmoved"), [(0, True), (1, False)], ids=["the inputs", "the next"])
@pytest.mark.parametrize("own", [False, True])
def test_that_targets_are_the_inputs_themselves_is_known_on_the_host(start: int, unmoved: bool, own: bool) -> None:
    """Then cross entropy with them is not what the model is trained on, but where that is a loss of its own."""
    model = Returns({"logits": LOGITS} | ({"loss": LOGITS.sum()} if own else {}))
    baselines = Baselines(Forward(model, ["norm"], pytest.fail))
    model(walk(0)[:, :-1])
    scored = baselines.score([t.numpy() for t in baselines.targets(walk(0)[:, start : start + TIME])])
    assert np.isfinite(scored[2])
    assert baselines.unmoved is (unmoved and not own)


def test_no_targets_left_in_a_batch() -> None:
    batches: list[Any] = [((torch.zeros(0, 5, dtype=torch.long),), {}, torch.zeros(0, 5, dtype=torch.long))]
    assert np.isnan(scored(Returns(torch.zeros(0, 5, CLASSES)), batches)).all()
