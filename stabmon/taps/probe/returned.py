"""What a model returned for the probe: its output, its loss, which positions count and whether it predicts classes.

Shapes: N positions (tokens, images, pixels), V values at each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon.taps.probe.calls import Call, tensors_in

IGNORE_INDEX = -100
_NO_CLASSES = ("regression", "multi_label_classification")
"""Of `config.problem_type` in Hugging Face models: outputs that no softmax is taken of."""


def named(returned: Any, name: str) -> Any:
    """What the model called so; None: nothing."""
    return returned.get(name) if isinstance(returned, Mapping) else getattr(returned, name, None)


def returned_output(returned: Any, targets: Tensor | None = None) -> Tensor | None:
    """`.logits`, else the first floating tensor with more than one dimension; not what has no values to choose from at
    a position, as the log-probabilities [B, T] of `targets` that TRL's models return."""
    logits = named(returned, "logits")
    found = (t for t in tensors_in((logits, returned)) if t.is_floating_point() and t.ndim > 1)
    if logits is None and isinstance(returned, Mapping):
        return next((t for t in found if not _one_each(t.shape, targets)), None)
    return next(found, None)


def _one_each(output: torch.Size, targets: Tensor | None) -> bool:
    """Whether it is a number for each of the targets [B, T], or for each but one in a row, which has no next token."""
    if targets is None or targets.is_floating_point() or not len(output) == targets.ndim == 2 < targets.numel():
        return False
    return output[0] == len(targets) and 0 <= targets.shape[1] - output[1] <= 1 < targets.shape[1]


def output_of(returned: Any, targets: Tensor | None = None) -> Tensor | None:
    """What was returned as [..., V]. `targets`: those of it, as far as known."""
    output = returned_output(returned, targets)
    return None if output is None else output.movedim(axis_of_classes(output.shape, targets), -1)


def axis_of_classes(output: torch.Size, targets: Tensor | None) -> int:
    """-1 or 1, of an output with more than one dimension: where torch's cross entropy has them is 1. What the targets
    fit tells; else the last, but of images."""
    if targets is not None:
        fitting = [axis for axis in (-1, 1) if targets.shape == _without(output, axis)]
        if len(fitting) == 1:
            return fitting[0]
    return 1 if len(output) > 3 else -1


def last_classes(output: torch.Size, targets: Tensor | None) -> torch.Size:
    """The shape of such an output as [..., V]."""
    axis = axis_of_classes(output, targets)
    return torch.Size((*_without(output, axis), output[axis]))


def _without(shape: torch.Size, axis: int) -> torch.Size:
    return shape[:-1] if axis == -1 else torch.Size((*shape[:axis], *shape[axis + 1 :]))


def loss_of(returned: Any, output: Tensor | None, targets: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The model's own loss by name, else cross entropy with the given targets, else a scalar that was returned.

    With it, of a cross entropy, a scalar bool: whether it is one (see `_cross_entropy`).
    """
    own = named(returned, "loss")
    if own is None and output is not None and targets is not None:
        # The targets that the loop gave are surer than an unnamed scalar, which may be a part of a loss.
        given = _cross_entropy(output, targets)
        if given is not None:
            return given
    # A mapping's unnamed scalars may be parts of a loss; a tuple's first one is the loss (HF tuples, nanoGPT).
    found = (own,) if own is not None or isinstance(returned, Mapping) else returned
    scalars = (t for t in tensors_in(found) if t.is_floating_point() and t.ndim < 2 and t.numel() == 1)
    return next((t.reshape(()) for t in scalars), None), None


def predicts_classes(model: nn.Module, call: Call, targets: Tensor | None, returned: Any, output: Tensor) -> bool:
    """Whether the output [..., V] is what a softmax is taken of.

    It is where the targets are whole numbers. Where they are not known: an output called `logits`, or one for each of
    the integers that went in, as in a language model. Nothing else is, so a KL divergence is not invented.
    """
    if output.shape[-1] == 1 or getattr(getattr(model, "config", None), "problem_type", None) in _NO_CLASSES:
        return False
    labels = targets if targets is not None else call.named("labels")
    if labels is not None:
        return not (labels.is_floating_point() or labels.is_complex())
    aligned = any(not t.is_floating_point() and t.shape == output.shape[:-1] for t in call.tensors)
    return named(returned, "logits") is not None or aligned


def counted(model: nn.Module, call: Call, output: Tensor) -> Tensor | None:
    """float32[N]: 1 for a position that counts, 0 for padding; None: the call has no mask for the output [..., V]."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        labels = call.named("labels")
        masks = [call.named("decoder_attention_mask"), None if labels is None else labels != IGNORE_INDEX]
    else:
        padded = (call.named("src_key_padding_mask"), call.named("key_padding_mask"))
        masks = [call.named("attention_mask"), *(~m for m in padded if m is not None and m.dtype == torch.bool)]
    fitting = (m for m in masks if m is not None and m.shape == output.shape[:-1])
    return next(((m > 0).reshape(-1).float() for m in fitting), None)


def _cross_entropy(output: Tensor, targets: Tensor) -> tuple[Tensor, Tensor] | None:
    """Mean over the targets that are not negative, and whether there is one, all of them being below V: where some are
    not, the output is not what they are classes of. None where targets and output [..., V] do not belong together."""
    flat = output.reshape(-1, output.shape[-1])
    flattened = targets.numel() == len(flat) and (targets.ndim == 1 or output.ndim == 2)
    if targets.is_floating_point() or flat.shape[-1] == 1:
        return None
    if not (flattened or targets.shape == output.shape[:-1]):
        return None
    wanted = targets.reshape(-1).long()
    counts, known = wanted >= 0, wanted < flat.shape[-1]
    # On a GPU a class that there is not ends the process: no such target may reach the kernel.
    safe = torch.where(counts & known, wanted, IGNORE_INDEX)
    loss = F.cross_entropy(flat.to(torch.promote_types(flat.dtype, torch.float32)), safe, ignore_index=IGNORE_INDEX)
    return loss, counts.any() & known.all()
