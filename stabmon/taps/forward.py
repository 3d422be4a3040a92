"""Watches the outermost module's forward: whether it is a training one, what it was given, what it returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from stabmon.taps.hooks import Hook
from stabmon.taps.probe import Call


class Forward:
    """The root is the first module of the model whose forward runs: the outermost one.

    `training` is True from the start of a training forward of the root to the start of its next other one.
    """

    def __init__(self, model: nn.Module, failed: Callable[[Exception], None]) -> None:
        self.training = False
        self.root: nn.Module | None = None
        self.last: Call | None = None
        """The latest training call."""
        self.loss_sum: Tensor | None = None
        """Sum of the losses that the root returned in this step's training calls (Hugging Face models)."""
        self.losses = 0
        self.output_width: int | None = None
        """Last dimension of the root's output: the vocabulary, for a language model."""
        self._model = model
        self._first: Call | None = None
        self._called = False
        self._pre = Hook(self._before, failed)
        self._post = Hook(self._after, failed)
        self._handles = {
            module: (
                module.register_forward_pre_hook(self._pre, with_kwargs=True),
                module.register_forward_hook(self._post),
            )
            for module in model.modules()
        }

    def settle(self) -> None:
        """After the first step the root is known: let go of all other modules."""
        for module in [m for m in self._handles if m is not self.root]:
            for handle in self._handles.pop(module):
                handle.remove()

    def take_first(self) -> Call | None:
        """The first training call, once: it is let go of, since it holds a whole batch."""
        call, self._first = self._first, None
        return call

    def new_step(self) -> None:
        """Forget the finished step's losses."""
        self.loss_sum, self.losses = None, 0

    def mean_loss(self) -> Tensor | None:
        """The step's loss from what the root returned: the micro-batches' sum where each was already divided by the
        number of items in the whole batch (`num_items_in_batch`), else their mean. None if it returns no loss."""
        if self.loss_sum is None or self.last is None:
            return None
        return self.loss_sum if self.last.kwargs.get("num_items_in_batch") is not None else self.loss_sum / self.losses

    def detach(self) -> None:
        """Remove the hooks."""
        for handles in self._handles.values():
            for handle in handles:
                handle.remove()
        self._handles.clear()
        self.training, self._first, self.last, self.loss_sum = False, None, None, None

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self.root is None:
            self.root = module
        if module is not self.root or in_backward():
            return
        self.training = module.training and torch.is_grad_enabled()
        if self.training:
            self.last = Call(args, dict(kwargs), None if module is self._model else module)
            if not self._called:
                self._called, self._first = True, self.last

    def _after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if module is not self.root or not self.training or in_backward():
            return
        loss = _field(output, "loss")
        if isinstance(loss, Tensor) and loss.ndim == 0:
            loss = loss.detach().float()
            self.loss_sum = loss if self.loss_sum is None else self.loss_sum + loss
            self.losses += 1
        if self.output_width is None:
            logits = _field(output, "logits")
            logits = output if logits is None else logits
            self.output_width = logits.shape[-1] if isinstance(logits, Tensor) and logits.ndim >= 2 else None


def _field(output: Any, name: str) -> Any:
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)


def in_backward() -> bool:
    """True in a forward that activation checkpointing repeats inside the backward pass.

    Compiled graphs hold no such repetition of a hook, and asking would break them.
    """
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
