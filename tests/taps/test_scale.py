"""What the loss is a multiple of: told once, and only of weights that have learnt nothing yet."""

from __future__ import annotations

from math import e, inf, isnan, log, nan
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon import Monitor
from stabmon.records import NOT_SEEN, PRETRAINED
from stabmon.taps.model.scale import READINGS, WITHIN, LossScale
from stabmon.taps.notices import Notices
from tests.trainings import Keep, watched

V = 64
UNIFORM = log(V)
FRESH = [UNIFORM + excess for excess in (0.02, 0.01, -0.01, -0.06, -0.1)]
"""What weights from scratch score on the probe in their first steps."""


def scale(
    losses: list[float], scored: list[float], start: int = 1, uniform: float = UNIFORM, callback: bool = False
) -> tuple[float, list[str]]:
    """The factor, and what was said."""
    notices = Notices(callback)
    found = LossScale(notices)
    for step, pair in enumerate(zip(losses, scored, strict=True), start):
        found.see(step, pair[0], uniform, pair[1])
    return found.factor, [notice["why"] + " " + notice["todo"] for notice in notices.take()]


@pytest.mark.parametrize(
    ("times", "factor", "said"),
    [
        (1 / 4, 4, "The loss is 1/4 of what the network scores"),
        (1 / 2, 2, "here loss * 2."),
        (1 / 64, 64, "here loss * 64."),
        (4, 1 / 4, "The loss is 4 times what the network scores"),
        (256, 1 / 256, "here loss / 256."),
        (log(e, 2), log(2), "as a loss in bits is"),
    ],
)
def test_a_multiple_of_what_fresh_weights_score_is_told_once_with_the_number(
    times: float, factor: float, said: str
) -> None:
    noise = [1.004, 0.997, 1.0, 1.006, 0.995]
    found, told = scale([s * times * n for s, n in zip(FRESH, noise, strict=True)] * 2, FRESH * 2)
    assert found == pytest.approx(factor)
    assert len(told) == 1
    assert said in told[0]


@pytest.mark.parametrize("times", [1.0, 1.04, 0.97, 1.2, 1 / 2.4, 1 / 1.6, 1.3])
def test_the_loss_itself_and_one_with_parts_of_its_own_say_nothing(times: float) -> None:
    """Dropout and smoothing of labels make 1.0x of it, an auxiliary loss anything."""
    assert scale([s * times for s in FRESH], FRESH) == (1.0, [])


def test_a_ratio_that_moves_says_nothing() -> None:
    assert scale([UNIFORM / k for k in (1.7, 1.9, 2.0, 2.2, 2.6)], FRESH) == (1.0, [])


OTHERS = {
    "preferences, which begin at ln 2": [log(2), 0.66, 0.71, 0.6, 0.68],
    "rewards, which begin at 0": [-7e-9, 3e-9, 0.0, 2e-4, -0.05],
    "probabilities times their logarithms": [0.064, 0.063, 0.068, 0.071, 0.06],
}


@pytest.mark.parametrize("losses", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("callback", [False, True])
def test_a_loss_of_another_kind_has_no_baselines_and_nobody_is_told_to_multiply_it(
    losses: list[float], callback: bool
) -> None:
    factor, said = scale(losses, FRESH, callback=callback)
    assert isnan(factor)
    assert len(said) == 1
    assert "is of another kind than their cross entropy" in said[0]
    assert "loss *" not in said[0]


def test_preferences_that_look_like_a_sixth_are_no_micro_batches_under_a_trainer() -> None:
    """ln 64 is six times ln 2. A loop of one's own may divide by six, a trainer does not."""
    same = [log(2) * s / UNIFORM for s in FRESH]
    assert scale(same, FRESH)[0] == 6
    factor, (said,) = scale(same, FRESH, callback=True)
    assert isnan(factor)
    assert "is of another kind" in said


@pytest.mark.parametrize(("times", "other"), [(1 / 4, True), (-0.01, True), (1 / 2.5, False), (1 / 0.68, False)])
def test_under_a_trainer_also_weights_that_have_learnt_tell_a_loss_of_another_kind(times: float, other: bool) -> None:
    learnt = [0.5 * s for s in FRESH]
    factor, said = scale([s * times for s in learnt], learnt, callback=True)
    assert (isnan(factor), len(said)) == (other, int(other))


@pytest.mark.parametrize(
    ("losses", "factor"), [([s / 4 for s in FRESH], 1.0), (OTHERS["rewards, which begin at 0"], nan)]
)
def test_after_a_resume_a_loss_of_another_kind_is_one_still_and_one_in_another_unit_may_have_been_mended(
    losses: list[float], factor: float
) -> None:
    notices = Notices()
    before, after = LossScale(notices), LossScale(Notices())
    for step, pair in enumerate(zip(losses, FRESH, strict=True), 1):
        before.see(step, pair[0], UNIFORM, pair[1])
    assert before.factor != 1
    after.resume(told["what"] for told in notices.take())
    assert after.factor == pytest.approx(factor, nan_ok=True)


def test_under_a_trainer_nobody_is_told_what_to_give_to_step() -> None:
    factor, (said,) = scale([4 * s for s in FRESH], FRESH, callback=True)
    assert factor == 1 / 4
    assert "The loss is 4 times what the network scores" in said
    assert "Give step" not in said


@pytest.mark.parametrize("times", [1 / 4, 1 / 1.48])
def test_of_weights_that_have_learnt_the_probe_is_no_measure(times: float) -> None:
    """A pretrained network scores the probe's few tokens at two thirds of the loss, in every step."""
    learnt = [0.5 * s for s in FRESH]
    assert scale([s * times for s in learnt], learnt) == (1.0, [])


def test_too_few_readings_late_ones_and_none_say_nothing() -> None:
    quarter = [s / 4 for s in FRESH]
    assert scale(quarter[:-1], FRESH[:-1]) == (1.0, [])
    assert scale(quarter, FRESH, start=WITHIN) == (1.0, [])
    for unread in (nan, inf, 0.0):
        assert scale(quarter, [unread] * READINGS) == (1.0, [])
    assert scale(quarter, FRESH, uniform=nan) == (1.0, [])


# ---------------------------------------------------------------------- whole trainings


class Next(nn.Module):
    """A language model of one block."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(V, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True, norm_first=True)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, V)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        logits: Tensor = self.head(self.norm(self.block(self.embedding(tokens), causal, is_causal=True)))
        return logits


def text(seed: int) -> Tensor:
    """[8, 17] of a few common tokens, so that the unigram loss is far below the uniform one."""
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(torch.arange(V, 0, -1.0) ** 6, 8 * 17, True, generator=generator).reshape(8, 17)


def trained(folder: Path, micro: int, times: float, unmoved: bool = False, learn: int = 0) -> tuple[Keep, Next]:
    """Twelve steps, after `learn` without a Monitor."""
    model, kept = Next(), Keep()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    monitor = None
    for step in range(learn + 12):
        if step == learn:
            for group in optimizer.param_groups:
                group["lr"] = 1e-4
            monitor = Monitor(model, optimizer, **watched(folder, kept))
        for part in range(micro):
            tokens = text(micro * step + part)
            inputs, targets = tokens[:, :-1], tokens[:, 1:]
            loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            (loss / micro).backward()
        optimizer.step()
        optimizer.zero_grad()
        if monitor is not None:
            monitor.step(loss * times, targets=inputs if unmoved else targets)
    assert monitor is not None
    monitor.close()
    return kept, model


def told(kept: Keep) -> list[str]:
    return [str(event.detail["why"]) for event in kept.events if event.kind == NOT_SEEN]


def test_a_loss_over_micro_batches_is_no_pretrained_weights_and_has_no_baselines(tmp_path: Path) -> None:
    kept, _ = trained(tmp_path, micro=4, times=1 / 4)
    assert [why[:45] for why in told(kept)] == ["The loss is 1/4 of what the network scores on"]
    assert not any(snapshot.scalar("pretrained") for snapshot in kept.snapshots)
    unigram = [snapshot.scalar("unigram_loss") for snapshot in kept.snapshots]
    assert sum(value == value for value in unigram) == READINGS - 1, "until it is known"
    assert kept.snapshots[0].scalar("loss") < unigram[READINGS - 2] - 0.5, "what the rule took for pretrained"


@pytest.mark.parametrize("micro", [1, 4])
def test_a_loss_as_it_should_be_is_left_alone(tmp_path: Path, micro: int) -> None:
    kept, _ = trained(tmp_path, micro, times=1)
    assert told(kept) == []
    assert all(snapshot.scalar("unigram_loss") > 0 for snapshot in kept.snapshots)
    assert not any(snapshot.scalar("pretrained") for snapshot in kept.snapshots)


def test_of_several_micro_batches_the_probe_is_the_one_that_the_targets_are_of(tmp_path: Path) -> None:
    kept, _ = trained(tmp_path, micro=4, times=1)
    model, last = Next().eval(), text(3)
    expected = F.cross_entropy(model(last[:, :-1]).flatten(0, 1), last[:, 1:].flatten())
    assert kept.snapshots[0].scalar("probe_loss") == pytest.approx(expected.item(), rel=1e-5)


def counting(seed: int) -> Tensor:
    """[8, 17]: each row goes on by 1 from a random start, so that weights can learn far more than a unigram."""
    starts = torch.randint(V, (8, 1), generator=torch.Generator().manual_seed(seed))
    return (starts + torch.arange(17)) % V


@pytest.mark.parametrize("unmoved", [False, True], ids=["targets", "the inputs as targets"])
@pytest.mark.parametrize(("micro", "times"), [(1, 1.0), (4, 1.0), (4, 0.25)])
def test_pretrained_weights_are_still_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, micro: int, times: float, unmoved: bool
) -> None:
    monkeypatch.setitem(globals(), "text", counting)
    kept, _ = trained(tmp_path, micro, times, unmoved, learn=120)
    assert kept.snapshots[-1].scalar("pretrained") == 1
    assert sum(event.kind == PRETRAINED for event in kept.events) == 1
    assert told(kept) == []
