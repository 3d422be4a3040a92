"""Signal 3: gradients per block and in total, complete and before clipping."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.amp import grad_scaler
from torch.autograd import Variable
from torch.optim import Optimizer

from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.forward import in_backward
from stabmon.taps.groups import Groups
from stabmon.taps.hooks import Hook, spent
from stabmon.taps.notices import Notices
from stabmon.taps.rhythm import Rhythm


def _calling_scaler() -> grad_scaler.GradScaler | None:
    """The enabled GradScaler that is calling: it does not make itself known to the optimizer.

    Only its own frames' locals are looked at: those of a user's would be kept alive by looking (before Python 3.13).
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == grad_scaler.__file__:
            scaler = frame.f_locals.get("self")
            return scaler if isinstance(scaler, grad_scaler.GradScaler) and scaler.is_enabled() else None
        frame = frame.f_back
    return None


class Gradients:
    """Reads `.grad` when a backward pass has ended; what counts is the last one before each optimizer's own last step,
    so that a second optimizer's backward pass through the same parameters (a GAN) is not taken for the first one's.

    The end is seen by a callback that the autograd engine runs after everything; it is queued once more from within
    itself because DDP and FSDP finish their reductions in callbacks of the same kind.
    """

    name = "gradients"

    def __init__(
        self, groups: Groups, optimizers: Sequence[Optimizer], late: bool = False, notices: Notices | None = None
    ) -> None:
        """`late`: read before the optimizer steps instead, since a pipeline scales the gradients after all backward
        passes."""
        self._groups = groups
        self._late = late
        self._due = Due(layers=True)
        self._shares = _shares(groups, optimizers)
        self._latest: dict[int, Tensor] = {}
        """Share -> float32[block] of the last backward pass, at the loss's own scale."""
        self._taken: dict[int, Tensor] = {}
        """Share -> float32[block] that its optimizer stepped with."""
        self._scaler: weakref.ref[grad_scaler.GradScaler] | None = None
        self._scale: Tensor | None = None
        """That of the last backward pass, once a GradScaler is known."""
        self.unsummed = torch.zeros(sum(n for _, n in groups.unsummed), dtype=torch.float32, device=groups.device)
        """float32[element]: x|x| of what the ranks have yet to add up, of the step that was read."""
        self._rhythm = Rhythm(notices or Notices(), len(optimizers), not groups.readable)
        self._error: Exception | None = None
        self._first: Any = None
        """The parameter that this backward pass gave a gradient first."""
        self._waiting: weakref.ref[Callable[[], None]] | None = None
        """What the engine was given to call. It alone holds that, so of a backward pass that failed nothing is left."""
        hook = Hook(self._accumulated, self._fail)
        self._handles = [p.register_post_accumulate_grad_hook(hook) for p in groups.parameters if p.requires_grad]
        for optimizer in optimizers:
            self._handles += [
                optimizer.register_step_pre_hook(Hook(self._before_step, self._fail)),
                optimizer.register_step_post_hook(Hook(self._after_step, self._fail)),
            ]

    def columns(self) -> Sequence[tuple[str, Site]]:
        return [*(("grad_sq", site) for site in self._groups.sites), ("total_grad_sq", Site(""))]

    def arm(self, due: Due) -> None:
        self._due = due
        self._latest, self._taken = {}, {}

    def read(self) -> Tensor:
        if self._error is not None:
            raise self._error
        self._rhythm.called(bool(self._latest), self._scaler is not None or self._scale is not None)
        found = [self._taken[k] if k in self._taken else self._unscaled(squares) for k, squares in self._latest.items()]
        if not found:
            columns = len(self._groups.sites) + 1
            return torch.full((columns,), torch.nan, dtype=torch.float32, device=self._groups.device)
        squares, self.unsummed = torch.tensor_split(_added(found), (len(self._groups.sites),))
        total = squares.nansum().where(~squares.isnan().all(), torch.nan).reshape(1)
        return torch.cat((squares if self._due.layers else torch.full_like(squares, torch.nan), total))

    def weights(self) -> float:
        return 1.0

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._latest, self._taken, self._scale = {}, {}, None

    def _fail(self, error: Exception) -> None:
        self._error = error

    def _accumulated(self, parameter: Any) -> None:
        if torch.compiler.is_compiling() or not in_backward():
            return  # in a pipeline FSDP2 adds up gradients after the backward passes
        if self._waiting is None or self._waiting() is None:
            self._first = parameter
            self._rhythm.backward()
            self._queue(self._once_more)

    def _queue(self, do: Callable[[], None]) -> None:
        self._waiting = weakref.ref(do)
        Variable._execution_engine.queue_callback(do)

    def _once_more(self) -> None:
        self._queue(self._ended)

    def _ended(self) -> None:
        self._waiting = None
        try:
            with torch.no_grad(), spent:
                self._latest = {k: self._measure(k) for k in self._shares}
                if self._first.grad is None:  # freed meanwhile, as under LOMO: what is left is not all
                    self._latest = {k: torch.full_like(x, torch.nan) for k, x in self._latest.items()}
                scaler = self._scaler() if self._scaler else None
                self._scale = scaler._scale.clone() if scaler and scaler._scale is not None else None
        except Exception as error:  # it would come out of the user's backward()
            self._error = error

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not _closure(args, kwargs):  # else its backward is still to come
            self._take(optimizer)

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if _closure(args, kwargs):
            self._take(optimizer)
        self._rhythm.stepped(id(optimizer))

    @torch.no_grad()
    def _take(self, optimizer: Optimizer) -> None:
        """What the optimizer steps with, at the scale of the loss itself."""
        with spent:
            scaler = _calling_scaler()
            scale = None if scaler is None else scaler._scale
            squares = None if self._late else self._latest.get(id(optimizer))
            if squares is None:  # no end of a backward pass was seen (compiled autograd)
                squares, scale = self._measure(id(optimizer)), getattr(optimizer, "grad_scale", None)
            elif scaler is not None:
                self._scaler = weakref.ref(scaler)
            self._latest[id(optimizer)] = squares
            self._taken[id(optimizer)] = _divided(squares, scale)

    def _unscaled(self, squares: Tensor) -> Tensor:
        """Of an optimizer that did not step: a GradScaler left the step out, if one of the values is not finite."""
        if self._scale is not None:
            return _divided(squares, self._scale)
        # Of one that has not been met yet the scale isn't known.
        overflowed = squares.isinf()
        return torch.where(overflowed.any() & ~overflowed, torch.nan, squares)

    def _measure(self, share: int) -> Tensor:
        held = self._shares[share]
        return self._groups.of_gradients(
            [p.grad if mine else None for p, mine in zip(self._groups.parameters, held, strict=True)]
        )


def _shares(groups: Groups, optimizers: Sequence[Optimizer]) -> dict[int, list[bool]]:
    """Which parameters count with which optimizer, by its id: with the first one that holds them."""
    free = {id(p) for p in groups.parameters}
    shares = {}
    for optimizer in optimizers:
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]} & free
        free -= mine
        shares[id(optimizer)] = [id(p) in mine for p in groups.parameters]
    return shares


def _closure(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return any(callable(given) for given in (*args, *kwargs.values()))


def _divided(squares: Tensor, scale: Tensor | None) -> Tensor:
    if scale is None:
        return squares
    scale = scale.to(squares.device, non_blocking=True)
    return squares / scale / scale  # the square of a large one is not finite


def _added(shares: Sequence[Tensor]) -> Tensor:
    """Sum of float32[block] over the optimizers; NaN where none has a gradient in the block."""
    if len(shares) == 1:
        return shares[0]
    stacked = torch.stack(list(shares))
    return torch.where(stacked.isnan().all(0), torch.nan, stacked.nan_to_num(0.0, posinf=torch.inf).sum(0))
