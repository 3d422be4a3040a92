"""What each sub-layer adds to the residual stream, beside the stream that it is added to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from stabmon.catalog import Combine
from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.branches.residual import Add, find_adds
from stabmon.taps.branches.timeline import Point, Recorder, first_tensor, replayed, returned
from stabmon.taps.compiled import compiled_inside, tracing
from stabmon.taps.forward import in_backward
from stabmon.taps.hooks import Hook, spent
from stabmon.taps.model.anatomy import is_norm
from stabmon.taps.model.kinds import spread
from stabmon.taps.model.places import sublayer_sites
from stabmon.taps.notices import Notice
from stabmon.taps.parts import Parts
from stabmon.taps.readings import Place, Readings

STATISTICS = ("branch_msq", "trunk_msq", "branch_cosine", "swamped_share")
_HOW: Sequence[Combine] = ["mean"] * len(STATISTICS)
MOST = 1 << 22
"""Values of each tensor that are looked at: tokens spread over the batch, 4,096 of width 1,024."""


class Branches:
    """Looks through each block's first call for the sums of the residual stream; reads them from the second step on.

    A sum is found by arithmetic, not by names: pre- and post-norm, sandwich and parallel blocks, and multipliers, are
    seen alike. The branch is what was added, after dropout, layer scale or norm. Where that is no module's output
    (functional dropout) it is the difference of the stream after and before, which has lost what was swamped:
    swamped_share is not read then. Not seen: sums in a block whose modules pass tensors of other shapes, sums of more
    than two branches, and branches that are 0, or gated by another tensor, in the first step. A compiled model is
    looked through before its first call, by an eager one of few tokens; one that is compiled together with its loss is
    so after the first step, and is compiled anew.
    """

    name = "branches"

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._due = Due(layers=True)
        self._error: Exception | None = None
        guard = partial(Hook, failed=self._fail)
        self._recorder: Recorder | None = Recorder(parts.model, parts.blocks, lambda: parts.forward.training, guard)
        self._places: dict[str, int] = {}
        self._held: list[Held] = []
        self._told = torch.tensor([s != "swamped_share" for s in STATISTICS], device=parts.device)
        """Which statistics a difference of two sums can tell: what was swamped is no longer in it."""
        self._readings = Readings(0, _HOW, parts.device)
        self._handles: list[RemovableHandle] = []
        parts.forward.entering.append(self._prepare)

    def columns(self) -> Sequence[tuple[str, Site]]:
        self._settle()
        sites = sublayer_sites(self._places, self._parts.blocks, self._parts.norm_tap.sites).values()
        return [(statistic, site) for statistic in STATISTICS for site in sites]

    def arm(self, due: Due) -> None:
        self._due = due
        self._readings.clear()
        for held in self._held:
            held.trunk = None

    def read(self) -> Tensor:
        self._settle()
        if self._error is not None:
            raise self._error
        return self._readings.values().T.reshape(-1)

    def weights(self) -> Tensor:
        return self._readings.weights().T.reshape(-1)

    def detach(self) -> None:
        if self._recorder is not None:
            self._recorder.detach()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _fail(self, error: Exception) -> None:
        self._error = error

    def _prepare(self) -> None:
        """A graph is about to be made: what is hooked from here on is in it."""
        if self._recorder is not None and (tracing.near or compiled_inside(self._parts.model)):
            try:
                self._settle()
            except Exception as error:  # the other taps go on
                self._error = error

    def _settle(self) -> None:
        """The first step is over: find the sums, and hook what they are made of in place of everything."""
        if self._recorder is None:
            return
        recorder, self._recorder = self._recorder, None
        if not tracing.seen:
            recorder.detach()
        model, blocks = self._parts.model, self._parts.blocks
        timelines = recorder.finish() or replayed(model, blocks, self._parts.forward.last)
        modules = dict(model.named_modules())
        parametric = {name for name, m in modules.items() if not is_norm(m) and any(p.ndim > 1 for p in m.parameters())}
        adds = {timeline.block: find_adds(timeline, parametric) for timeline in timelines}
        if blind := [block for block in blocks if not adds.get(block)]:
            self._parts.notices.say(
                Notice(
                    f"what is added to the residual stream was not seen in {', '.join(blind)}",
                    what=f"what is added to the residual stream in {', '.join(blind)}",
                    why="No sum of a stream and a branch was found in its forward.",
                )
            )
        watched = [(add, self._placed(add)) for found in adds.values() for add in found]
        self._readings = Readings(len(self._places), _HOW, self._parts.device)
        for add, numbers in watched:
            self._watch(add, [self._readings.places[number] for number in numbers])

    def _placed(self, add: Add) -> list[int]:
        """Places of its branches, the last one's first."""
        numbers = []
        for branch in reversed(add.branches):
            name = branch.sublayer if branch.sublayer not in self._places else branch.points[0].module
            numbers.append(self._places.setdefault(name, len(self._places)))
        return numbers

    def _watch(self, add: Add, places: Sequence[Place]) -> None:
        held = Held()
        self._held.append(held)
        self._hook(add.trunk[0], held.take)
        for place, branch in zip(places, reversed(add.branches), strict=True):
            read = partial(self._read, held, place, add, branch.factor, place is places[0])
            self._hook(branch.points[0] if add.exact else add.total[0], read)

    def _hook(self, point: Point, do: Callable[[Tensor], None]) -> None:
        def see(value: Any) -> None:
            unread = not self._parts.forward.training or not self._due.layers or in_backward()
            if unread or not isinstance(value, Tensor) or not value.numel():
                return
            with torch.no_grad(), nullcontext() if torch.compiler.is_compiling() else spent:
                do(value.detach())

        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            see(first_tensor((*args, *kwargs.values())))

        def leave(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            see(returned(output))

        module = self._parts.model.get_submodule(point.module)
        if point.output:
            self._handles.append(module.register_forward_hook(Hook(leave, self._fail)))
        else:
            self._handles.append(module.register_forward_pre_hook(Hook(enter, self._fail), with_kwargs=True))

    def _read(self, held: Held, place: Place, add: Add, factor: float, last: bool, value: Tensor) -> None:
        trunk = held.trunk
        if last:
            held.trunk = None
        if trunk is None or trunk.numel() != value.numel():
            return
        if not add.exact and held.overwritten(trunk):
            return
        eps = torch.finfo(torch.promote_types(trunk.dtype, value.dtype)).eps
        weights = self._parts.forward.weights_of(trunk) if trunk.ndim <= 3 else None
        weight_N = None if weights is None else _rows(weights.unsqueeze(-1).expand_as(trunk))[:, 0]
        x_ND, f_ND = _rows(trunk).float(), _rows(value.reshape(trunk.shape)).float()
        f_ND = f_ND if add.exact else f_ND - x_ND
        row, weight = measure(x_ND * add.factor, f_ND * factor, eps, weight_N)
        self._readings.add(place, row if add.exact else torch.where(self._told, row, torch.nan), weight)


class Held:
    """The stream before a sum, from when it is seen to when the last branch is."""

    def __init__(self) -> None:
        self.trunk: Tensor | None = None
        self._version = 0

    def take(self, value: Tensor) -> None:
        self.trunk = value
        if not torch.compiler.is_compiling():
            self._version = value._version

    def overwritten(self, trunk: Tensor) -> bool:
        """Whether the sum was written in its place."""
        return not torch.compiler.is_compiling() and trunk._version != self._version


def measure(x_ND: Tensor, f_ND: Tensor, eps: float, weight_N: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """float32 [branch_msq, trunk_msq, branch_cosine, swamped_share] of trunk x and branch f, and the tokens' weight.

    eps: the relative distance of numbers in the sum's dtype. Where 0 < |f| < eps/4 |x| (2^-9 |x| in bfloat16, 2^-12 in
    float16, 2^-25 in float32) the sum is x, whatever the last digits of x are: f is swamped. What dropout has set to 0
    is not.
    """
    weight_N = x_ND.new_ones(x_ND.shape[0]) if weight_N is None else weight_N
    lengths_N = torch.linalg.vector_norm(x_ND, dim=-1) * torch.linalg.vector_norm(f_ND, dim=-1)
    cosine_N = (x_ND * f_ND).sum(-1) / lengths_N.clamp_min(torch.finfo(torch.float32).tiny)
    swamped_N = ((f_ND != 0) & (f_ND.abs() < eps / 4 * x_ND.abs())).float().mean(-1)
    rows = torch.stack((f_ND.square().mean(-1), x_ND.square().mean(-1), cosine_N, swamped_N))
    total = weight_N.sum()
    found = (torch.where(weight_N > 0, rows, 0) * weight_N).sum(-1) / total
    return found, total


def _rows(x: Tensor) -> Tensor:
    """[N, D]: tokens of [B, T, D] or [N, D]; of what has more dimensions, whole samples."""
    rows = x.reshape(-1, x.shape[-1]) if x.ndim <= 3 else x.flatten(1)
    return spread(rows, max(MOST // rows.shape[-1], 1))
