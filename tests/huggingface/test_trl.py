"""What TRL's trainers do, in a Trainer that does it: the model returns log-probabilities of the labels, and no logits;
the loss is worked out of them, and may be of another kind than theirs."""

from __future__ import annotations

import math
from functools import wraps
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import Trainer
from transformers.utils import ModelOutput

from stabmon.taps.model.scale import WITHIN
from tests.huggingface.test_losses import entries, losses, parts
from tests.test_huggingface import Keep, model


class Fused(Trainer):  # type: ignore[misc]  # transformers is not followed
    """SFTTrainer: -log p of the tokens that count, over their number."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        plain = self.model.forward

        @wraps(type(self.model).forward)  # by which the Trainer knows what it takes
        def forward(network: Any, *args: Any, fused_lm_head: bool = False, labels: Any = None, **rest: Any) -> Any:
            if not fused_lm_head:
                return plain(*args, labels=labels, **rest)
            log_p = plain(*args, **rest).logits[:, :-1].log_softmax(-1)
            found = log_p.gather(-1, labels[:, 1:].unsqueeze(-1)).squeeze(-1)
            return ModelOutput(loss=-found.mean(), log_probs=found, entropy=-(log_p.exp() * log_p).sum(-1).detach())

        self.model.forward = MethodType(forward, self.model)

    def compute_loss(self, network: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        return self.of(network(**inputs, fused_lm_head=True).log_probs)

    def of(self, log_probs: Tensor) -> Tensor:
        return -log_probs.mean()


class Plain(Trainer):  # type: ignore[misc]
    """The same loss, of logits."""

    def compute_loss(self, network: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        logits = network(**inputs).logits[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1), inputs["labels"][:, 1:].flatten())


def test_log_probabilities_of_labels_are_not_taken_for_an_output_of_as_many_classes(tmp_path: Path) -> None:
    fused, plain = Keep(), Keep()
    running = Fused(**parts(tmp_path, fused))
    running.train()
    Plain(**parts(tmp_path, plain)).train()
    for name in ("uniform_loss", "unigram_loss", "bigram_loss"):
        np.testing.assert_array_equal(*([s.scalar(name) for s in kept.snapshots] for kept in (fused, plain)), name)
    for name in ("output_change_kl", "total_output_change_ratio", "output_change_context_ratio", "probe_loss"):
        found, wanted = ([s.scalar(name) for s in kept.snapshots] for kept in (fused, plain))
        assert np.isfinite(wanted).all(), name
        np.testing.assert_allclose(found, wanted, rtol=1e-3, err_msg=name)
    np.testing.assert_allclose(losses(fused), entries(running), atol=1e-4)
    assert fused.snapshots[0].scalar("uniform_loss") == np.float32(np.log(64)), "not of the 11 labels of a row"


def test_training_is_bit_identical_where_the_model_returns_log_probabilities(tmp_path: Path) -> None:
    final = []
    for watched in (False, True):
        given = parts(tmp_path, Keep(), model(dropout=0.1))
        running = Fused(**given if watched else {**given, "callbacks": []})
        running.train()
        final.append([p.detach().clone() for p in running.model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*final, strict=True))


class Nameless(Fused):
    """The trainer makes the labels itself, so that its batch has none under that name."""

    def compute_loss(self, network: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        inputs.pop("labels")
        return super().compute_loss(network, {**inputs, "labels": inputs["input_ids"]})


class Preferences(Nameless):
    """DPOTrainer, in what its loss begins at: ln 2, the sixth part of what fresh weights score among 64 tokens."""

    def of(self, log_probs: Tensor) -> Tensor:
        better, worse = log_probs.sum(-1).chunk(2)
        return -F.logsigmoid(0.1 * (better - better.detach() - worse + worse.detach())).mean()


class Rewards(Nameless):
    """GRPOTrainer: the advantages of a group add up to 0, and so does the loss."""

    def of(self, log_probs: Tensor) -> Tensor:
        advantages = torch.linspace(-1, 1, len(log_probs)).unsqueeze(1)
        return -((log_probs - log_probs.detach()).exp() * advantages).mean()


@pytest.mark.parametrize("kind", [Preferences, Rewards])
def test_losses_of_preferences_and_rewards_have_no_baselines_and_are_no_pretrained_weights(
    tmp_path: Path, kind: type[Fused], caplog: pytest.LogCaptureFixture
) -> None:
    kept = Keep()
    with caplog.at_level("INFO", "stabmon"):
        running = kind(**parts(tmp_path, kept))
        running.args.max_steps = 12
        running.train()
    np.testing.assert_allclose(losses(kept), entries(running), atol=1e-4)
    assert losses(kept)[0] == pytest.approx(math.log(2) if kind is Preferences else 0.0, abs=1e-6)
    assert np.isfinite([s.scalar("output_change_kl") for s in kept.snapshots]).all()
    assert np.isnan([s.scalar("unigram_loss") for s in kept.snapshots[6:]]).all(), "after five readings"
    assert not any(s.scalar("pretrained") for s in kept.snapshots)
    said = [record.message for record in caplog.records if "loss" in record.message]
    assert ["of another kind" in message for message in said] == [True], said


def test_after_a_resume_a_loss_of_another_kind_still_has_no_baselines(tmp_path: Path) -> None:
    kept = Keep()
    for steps, resume in ((WITHIN + 2, False), (WITHIN + 6, True)):
        running = Preferences(**parts(tmp_path, kept))
        running.args.max_steps, running.args.save_strategy, running.args.save_steps = steps, "steps", WITHIN + 2
        running.train(resume_from_checkpoint=resume)
    assert [s.step for s in kept.snapshots][-4:] == [WITHIN + n for n in (3, 4, 5, 6)]
    assert np.isnan([s.scalar("unigram_loss") for s in kept.snapshots[6:]]).all()
