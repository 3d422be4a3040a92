"""Watches the outermost module's forward: whether it is a training one, what it was given, what it returned."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from stabmon.taps.compiled import settled_by_tracing, tracing
from stabmon.taps.hooks import Hook
from stabmon.taps.mode import Mode
from stabmon.taps.model.tokens import Tokens, parameters_of
from stabmon.taps.notices import Notices
from stabmon.taps.probe.calls import Call, tensors_in
from stabmon.taps.probe.undisturbed import device_of
from stabmon.taps.ranks.sharding import beside, local


class Forward:
    """The root is the first module with norm layers whose training forward runs: the outermost one that is called.

    `training` is True from the start of a training forward of the root to the start of its next other one. A forward
    in eval mode counts as training while none in training mode has been seen: some train so, without dropout; and again
    after a step that had no other.
    """

    def __init__(
        self,
        model: nn.Module,
        norms: Iterable[str],
        failed: Callable[[Exception], None],
        stacks: Collection[str] = (),
        notices: Notices | None = None,
    ) -> None:
        """`norms`: names of all norm layers, watched or not; `stacks`: of the modules that hold the lists of blocks."""
        tracing.forget()
        self.training = False
        self.root: nn.Module | None = None
        self.last: Call | None = None
        """The latest training call."""
        self._losses = torch.zeros(2, dtype=torch.float32, device=device_of(model))
        """Sum and number of the losses that the root returned in this step's training calls (Hugging Face models)."""
        self.output_width: int | None = None
        """Last dimension of the root's output: the vocabulary, for a language model."""
        self.whole = True
        """Whether all that is trained was called inside the root; False: a loop that calls the model in pieces."""
        self.returned: list[Callable[[Any], None]] = []
        """Each is called with what a training call of the root has returned."""
        self.entering: list[Callable[[], None]] = []
        """Each is called before a training call of the root, where that is not inside a graph."""
        self.forget: Callable[[], object] = lambda: None
        """Called when what was taken for training until now was an evaluation."""
        self._lenient = True
        self._mode = Mode(notices or Notices())
        self._model = model
        self._first: Call | None = None
        self._called = self._running = False
        self._tokens = Tokens(model)
        self._handles: dict[nn.Module, list[RemovableHandle]] = {}
        self._attach(_holders(norms), failed)
        self._inside = [
            module.register_forward_pre_hook(Hook(self._stack_hook(parameters_of(module)), failed), with_kwargs=True)
            for name, module in model.named_modules()
            if name in stacks
        ]

    def weights_of(self, x: Tensor, first: bool = False) -> Tensor | None:
        """How much each token of the current call counts in means: float32 of x's shape without its last dimension,
        0 for padding and, unless `first` is asked for, for the first of a sequence of token ids, else 1. None: all
        count (see Tokens)."""
        return beside(self._tokens.weights_of(x, first), x)

    @property
    def counted(self) -> str:
        """Which tokens of the current call count in means, in words."""
        return self._tokens.words

    def settle(self) -> None:
        """After the first step the root is known: let go of all other modules, unless graphs depend on their hooks."""
        if tracing.seen:
            return
        for module in [m for m in self._handles if m is not self.root]:
            for handle in self._handles.pop(module):
                handle.remove()

    def take_first(self) -> Call | None:
        """The first training call, once: it is let go of, since it holds a whole batch. None: called in pieces."""
        call, self._first = self._first, None
        if call is None and not self._called:  # in a graph the first one is not told from the others
            call, self._called = self.last, self.last is not None
        if call is not None and not all(tensor.numel() for tensor in tensors_in((call.args, call.kwargs))):
            self._called = False  # of an empty batch there is nothing to see: the next call
            return None
        return call if self.whole else None

    def prefer_latest(self) -> None:
        """`take_first` is to give the latest call instead, since targets that came beside them are of that one; not
        where the first brought its own."""
        if self._first is not None and self._first.named("labels") is None:
            self._first = self.last

    def new_step(self) -> None:
        """Forget the finished step's losses."""
        self._losses.zero_()
        if not self._lenient:
            self._mode.stepped()

    def mean_loss(self) -> Tensor | None:
        """The step's loss from what the root returned: the micro-batches' sum where each was already divided by the
        number of items in the whole batch (`num_items_in_batch`), else their mean. NaN if it returns no loss, Inf if
        one is not finite; None before the first call."""
        if self.last is None:
            return None
        total, count = self._losses.unbind()
        loss = total if self.last.kwargs.get("num_items_in_batch") is not None else total / count
        return torch.where(loss.isfinite(), loss, torch.inf).where(count > 0, torch.nan)

    def detach(self) -> None:
        """Remove the hooks."""
        for handle in [*self._inside, *(h for handles in self._handles.values() for h in handles)]:
            handle.remove()
        self._handles.clear()
        self._inside.clear()
        self.returned.clear()
        self.entering.clear()
        self._tokens.forget()
        self.training, self._first, self.last = False, None, None

    def _attach(self, holders: Collection[str], failed: Callable[[Exception], None]) -> None:
        """Watch every module that may be the root, and calls of the others outside it."""
        piece = Hook(self._piece, failed)
        for name, module in self._model.named_modules():
            if not any(p.requires_grad for p in module.parameters()):
                continue  # a loss, a metric, a frozen teacher
            if name in holders:
                gate = _Gate(self, module)
                pre, post = (
                    Hook(self._entering(gate, parameters_of(module)), failed),
                    Hook(partial(self._after, gate), failed),
                )
                around = module.register_forward_pre_hook(pre, with_kwargs=True), module.register_forward_hook(post)
                self._handles[module] = list(around)
            else:
                self._handles[module] = [module.register_forward_pre_hook(piece)]

    def _entering(self, gate: _Gate, parameters: Sequence[str]) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            if self._before(gate, module, args, kwargs):
                self._tokens.begin(parameters, args, kwargs)

        return hook

    def _stack_hook(self, parameters: Sequence[str]) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            if self.training and module is not self.root and not in_backward():
                self._tokens.enter(parameters, args, kwargs)

        return hook

    def _before(self, gate: _Gate, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether this is a training call of the root."""
        if in_backward() or _redirected(module):
            return False
        training = gate.open(torch.is_grad_enabled())
        if not gate.is_root():
            self._piece(module)
            return False
        if torch.is_grad_enabled() and module.training:
            self._mode.training = True
        elif torch.is_grad_enabled():
            self._mode.evaluating = True
        self.training = self._running = training
        if training:
            self.last = Call(args, dict(kwargs), None if module is self._model else module)
            if not torch.compiler.is_compiling():
                self._first = self._first if self._called else self.last
                self._called = True
                for prepare in self.entering:
                    prepare()
        return training

    def opened(self, module: nn.Module, grad: bool) -> bool:
        """Whether a call of the module is a training one; the first such call makes it the root."""
        if module.training and self._lenient:
            self._begin()
        taken = module.training or self._lenient or self._mode.in_eval
        training = taken and grad and not _exported()
        if self.root is None and training:
            self.root = module
        return training

    def _begin(self) -> None:
        """The first forward in training mode."""
        self._lenient = False
        if self.root is not None:
            self.root, self._called, self.training, self.whole = None, False, False, True
            self._losses.zero_()
            self.forget()

    def _after(self, gate: _Gate, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not gate.is_root() or not self.training or in_backward():
            return
        self._running = False
        loss = _loss(output)
        if loss is not None:
            loss = local(loss.detach()).float().to(self._losses.device, non_blocking=True)
            self._losses += torch.stack((loss, torch.ones_like(loss)))
        if (torch.compiler.is_compiling() or self.output_width is None) and self.whole:
            logits = _field(output, "logits")
            logits = output if logits is None else logits
            self.output_width = logits.shape[-1] if isinstance(logits, Tensor) and logits.ndim >= 2 else None
        for take in self.returned:
            take(output)

    def _piece(self, module: nn.Module, *_: Any) -> None:
        training = (module.training or self._lenient) and torch.is_grad_enabled()
        if training and not self._running and not in_backward():
            self.whole, self.output_width = False, None


class _Gate:
    """A module that may be the root. What it answers changes in the first step, and no graph depends on it."""

    def __init__(self, forward: Forward, module: nn.Module) -> None:
        self._forward = forward
        self._module = module

    @settled_by_tracing
    def open(self, grad: bool) -> bool:
        """Whether its coming call is a training one."""
        return self._forward.opened(self._module, grad)

    @settled_by_tracing
    def is_root(self) -> bool:
        """Known from its own call on."""
        return self._forward.root is self._module


def _holders(norms: Iterable[str]) -> set[str]:
    """Names of the norm layers and of all modules around them; "" is the model."""
    parts = [name.split(".") for name in norms]
    return {"", *(".".join(path[:depth]) for path in parts for depth in range(1, len(path) + 1))}


def _redirected(module: nn.Module) -> bool:
    """True in a call that Lightning and Fabric lead through a wrapper's forward into another method, such as
    `training_step`: what it is given is not what the network is given, which is called inside."""
    if torch.compiler.is_compiling():
        return False
    return getattr(vars(module).get("forward"), "__name__", "") == "wrapped_forward"


def _field(output: Any, name: str) -> Any:
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)


def _loss(output: Any) -> Tensor | None:
    """What a forward calls its loss, or returns as a scalar alone or before all else."""
    first = output[0] if isinstance(output, tuple) and output else output
    loss = first if isinstance(first, Tensor) and first.is_floating_point() else _field(output, "loss")
    return loss if isinstance(loss, Tensor) and loss.ndim == 0 else None


def _exported() -> bool:
    """True in a forward that is traced for use elsewhere: what we do in it would go there too."""
    return _is_tracing() or _is_exporting() or _tried_out()


def _tried_out() -> bool:
    """True in the forward by which a pipeline finds out shapes, on tensors of zeros, before the first step."""
    if torch.compiler.is_compiling() or "torch.distributed.pipelining" not in sys.modules:
        return False
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name in ("_forward_metadata_inference", "_shape_inference"):
            return True
        frame = frame.f_back
    return False


_is_tracing: Callable[[], bool] = torch.jit.is_tracing  # type: ignore[attr-defined]
_is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", _is_tracing)  # since torch 2.7


def in_backward() -> bool:
    """True in a forward that activation checkpointing repeats inside the backward pass.

    Compiled graphs hold no such repetition of a hook, and asking would break them.
    """
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
