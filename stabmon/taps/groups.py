"""Parameters by block, and the sum of squares of one tensor per parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from stabmon.records import Site
from stabmon.taps.ranks.sharding import is_shared, local, parts, replicated, summands

LARGE = 1 << 16


class Groups:
    """Parameters by block: sums one number per parameter into one per block, on the device.

    Of parameters that are spread over ranks this rank's part counts as often as there are parts, so that the mean over
    the ranks is the whole.
    """

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], groups: Mapping[Site, Sequence[str]], readable: bool = True
    ) -> None:
        """`readable`: False where a wrapper hides what is in the parameters; every sum is NaN then."""
        self.sites = tuple(groups)
        self.names = [name for names in groups.values() for name in names]
        self.parameters = [parameters[name] for name in self.names]
        self.device = local(self.parameters[0]).device
        self.readable = readable
        self._scattered = any(local(p).device != self.device for p in self.parameters)
        self._shared = any(is_shared(p) for p in self.parameters)
        self._block_of = [i for i, names in enumerate(groups.values()) for _ in names]
        self._index: dict[tuple[tuple[int, ...], tuple[float, ...]], tuple[Tensor, Tensor, Tensor | None]] = {}
        self._replicated = [i for i, p in enumerate(self.parameters) if replicated(p)]

    @property
    def tensors(self) -> list[Tensor]:
        """What this rank holds of the parameters, without their autograd."""
        return [local(p.detach()) for p in self.parameters] if self._shared else [p.detach() for p in self.parameters]

    @property
    def block_of(self) -> Mapping[int, int]:
        """id of a parameter -> number of its block."""
        return {id(p): block for p, block in zip(self.parameters, self._block_of, strict=True)}

    @cached_property
    def partial(self) -> frozenset[Site]:
        """Blocks of which one rank alone cannot tell the sums."""
        spread = {i for i, p in enumerate(self.parameters) if parts(p) > 1}
        return frozenset(self.sites[self._block_of[i]] for i in spread | set(self._replicated))

    @property
    def unsummed(self) -> Sequence[tuple[int, int]]:
        """(block, number of elements) of each parameter whose gradient the ranks may have yet to add up."""
        return [(self._block_of[i], self.parameters[i].numel()) for i in self._replicated]

    def sum_of_squares(self, tensors: Sequence[Tensor | None]) -> Tensor:
        """float32[block] of one tensor per parameter; Inf where a value is not finite, NaN where a block has none."""
        present = [(i, _dense(self._part(t))) for i, t in enumerate(tensors) if t is not None]
        if not present or not self.readable:
            return torch.full((len(self.sites),), torch.nan, dtype=torch.float32, device=self.device)
        norms = _norms([t for _, t in present])
        if self._scattered:
            norms = tuple(norm.to(self.device) for norm in norms)
        squares = torch.stack(norms).square()
        squares = torch.where(squares.isfinite(), squares, torch.inf)
        counted = tuple(self._count(i, tensors[i]) for i, _ in present) if self._shared else ()
        blocks, empty, counts = self._blocks(tuple(i for i, _ in present), counted)
        return empty.index_add(0, blocks, squares if counts is None else squares * counts)

    def of_gradients(self, gradients: Sequence[Tensor | None]) -> Tensor:
        """float32[block + elements]: sums of squares of all gradients but those that ranks have yet to add up
        (DTensor: Partial); of those, x|x| of each element of `unsummed`, times the number of summands squared.

        x|x| is scaled as the squares are. The mean of x over the ranks, squared, is what the blocks lack.
        """
        if not self._replicated or not self.readable:
            return self.sum_of_squares(gradients)
        rest, elements = list(gradients), []
        for i in self._replicated:
            gradient = gradients[i]
            count = 1 if gradient is None else summands(gradient)
            if gradient is None or count == 1:
                elements.append(torch.zeros(self.parameters[i].numel(), dtype=torch.float32, device=self.device))
                continue
            x = local(gradient).detach().float().reshape(-1).to(self.device) * count
            elements.append(x * x.abs())
            rest[i] = torch.zeros(1, dtype=torch.float32, device=self.device)
        return torch.cat((self.sum_of_squares(rest), *elements))

    def _part(self, tensor: Tensor) -> Tensor:
        if not self._shared:
            return tensor
        if is_shared(tensor) and summands(tensor) > 1:
            raise ValueError("a gradient that is sharded and has yet to be added up over ranks cannot be read")
        held = local(tensor)
        return held if held.numel() else held.new_zeros(1)

    def _count(self, parameter: int, tensor: Tensor | None) -> float:
        """In how many parts it lies: a gradient may be spread otherwise than its parameter."""
        spread = tensor if tensor is not None and is_shared(tensor) else self.parameters[parameter]
        return float(parts(spread))

    def _blocks(self, present: tuple[int, ...], counts: tuple[float, ...]) -> tuple[Tensor, Tensor, Tensor | None]:
        """Block of each present parameter, what to add to (0 where a block has one, NaN elsewhere), and how often each
        counts (None: once)."""
        if (present, counts) not in self._index:
            blocks = [self._block_of[i] for i in present]
            empty = [0.0 if i in set(blocks) else float("nan") for i in range(len(self.sites))]
            several = torch.tensor(counts, dtype=torch.float32).to(self.device) if max(counts, default=1) > 1 else None
            self._index[present, counts] = (
                torch.tensor(blocks).to(self.device),
                torch.tensor(empty, dtype=torch.float32).to(self.device),
                several,
            )
        return self._index[present, counts]


def _norms(tensors: list[Tensor]) -> list[Tensor] | tuple[Tensor, ...]:
    """float32 scalars. Halves are added up in float32; torch refuses that for what is wider."""
    if any(t.dtype == torch.float64 or t.is_complex() for t in tensors):
        return [torch.linalg.vector_norm(t).float() for t in tensors]
    return torch._foreach_norm([_by_rows(t) for t in tensors], 2, dtype=torch.float32)


def _by_rows(tensor: Tensor) -> Tensor:
    """The norms of a large tensor's rows, which have its norm: a CPU adds up one long float32 sum with an error of
    7e-4 at 16 million values, rows and then their norms with 1e-7."""
    if tensor.device.type != "cpu" or tensor.numel() < LARGE or tensor.ndim < 2:
        return tensor
    rows: Tensor = torch.linalg.vector_norm(tensor, dim=-1, dtype=torch.float32)
    return rows


def _dense(tensor: Tensor) -> Tensor:
    return tensor.coalesce().values() if tensor.is_sparse else tensor
