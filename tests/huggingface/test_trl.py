"""What TRL's trainers do, in a Trainer that does it: the model returns log-probabilities of the labels, and no logits;
the loss is worked out of them, and may be of another kind than theirs."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import Trainer
from transformers.utils import ModelOutput

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
