"""Finds the additions of the residual stream in what passed between a block's modules, by arithmetic alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from stabmon.taps.branches.timeline import Point, Timeline

_Matrix = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
_Terms = tuple[tuple[int, ...], _Matrix, bool]
"""Trunk and branches by number, their factors, and whether the branches are what modules returned."""

EXACT = 0.05
"""What may be left unexplained of a branch where it is what a module returned; bfloat16 rounds its sums by as much."""
ALIKE = 0.7
"""The same where something in between is not a module, such as functional dropout: the branch is then a difference."""
_WHOLE = 0.01
"""A factor this close to 1 is 1."""
_MOST = 100.0
_LEAST = 1e-12
"""Of the total's square; what is less may be the noise of this arithmetic, and fits anything."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One summand beside the trunk."""

    sublayer: str
    """The module that it is the work of."""
    points: tuple[Point, ...]
    """Where it can be seen, first first."""
    factor: float
    """What it is multiplied by before it is added."""


@dataclass(frozen=True, slots=True)
class Add:
    """total = factor * trunk + the branches, each times its factor."""

    trunk: tuple[Point, ...]
    factor: float
    branches: tuple[Branch, ...]
    total: tuple[Point, ...]
    exact: bool
    """Whether the branches are what modules returned; else the one branch is total - trunk, and `points` only say of
    whom."""


def find_adds(timeline: Timeline, parametric: Collection[str]) -> list[Add]:
    """The additions of one block, in order; `parametric`: names of the modules that may be a sub-layer."""
    if timeline.gram is None or timeline.same is None:
        return []
    work = _Work(timeline, parametric)
    values = _Values(timeline, work)
    found: dict[int, Add] = {}
    for terms_of in (values.exactly, values.at_all):
        for total in range(1, len(values.points)):
            terms = terms_of(total) if values.made[total] and total not in found else None
            add = None if terms is None else _add(values, work, total, terms)
            claimed = {branch.sublayer for other in found.values() for branch in other.branches}
            # What is only like a module's output is taken for it only where nothing else is known of the sub-layer.
            if add is not None and (add.exact or add.branches[0].sublayer not in claimed):
                found[total] = add
                values.sums.add(total)
    return [found[total] for total in sorted(found)]


def _add(values: _Values, work: _Work, total: int, terms: _Terms) -> Add:
    (trunk, *branches), factors, exact = terms
    after = values.began[total] > work.ended
    summands = (
        Branch(work.block if after else work.of(values.began[b]), values.points[b], float(f))
        for b, f in zip(branches, factors[1:], strict=True)
    )
    return Add(values.points[trunk], float(factors[0]), tuple(summands), values.points[total], exact)


class _Work:
    """Which of the modules that a block calls itself is at work, or was at work last."""

    def __init__(self, timeline: Timeline, parametric: Collection[str]) -> None:
        self._started: list[tuple[int, str]] = []
        self.block, self._points, self._parametric = timeline.block, timeline.points, parametric
        self.ended = len(timeline.points)
        depth = 0
        for time, point in enumerate(timeline.points):
            depth += -1 if point.output else 1
            if not point.output and depth == 2 and point.module in parametric:
                self._started.append((time, point.module))
            if depth == 0:
                self.ended = time
                break

    def is_of_leaf(self, time: int) -> bool:
        """Whether it is what a module returned that called no other."""
        point = self._points[time]
        return point.output and self._points[time - 1] == Point(point.module, False)

    def is_simple(self, time: int) -> bool:
        """The same, of a module that is no sub-layer."""
        return self.is_of_leaf(time) and self._points[time].module not in self._parametric

    def of(self, time: int) -> str:
        """The sub-layer that what appeared at that time is the work of; "" if none is known."""
        return next((name for started, name in reversed(self._started) if started <= time), "")


class _Values:
    """The distinct tensors of a timeline, in order of appearance."""

    def __init__(self, timeline: Timeline, work: _Work) -> None:
        assert timeline.gram is not None
        assert timeline.same is not None
        same = timeline.same.cpu().numpy()
        number = same.argmax(1)  # the first that is equal
        first = [i for i in range(len(same)) if number[i] == i and same[i, i]]
        at = [[timeline.seen[i] for i in range(len(same)) if number[i] == v and same[i, i]] for v in first]
        points = timeline.points
        often = Counter(points)
        self.eps = timeline.eps
        self.gram: _Matrix = timeline.gram.double().cpu().numpy()[np.ix_(first, first)]
        self.began = [times[0] for times in at]
        self.points = [tuple(points[t] for t in times if often[points[t]] == 1) for times in at]
        self.made = [not work.is_of_leaf(t) for t in self.began]
        """Whether it came about between modules."""
        value_at = {time: first.index(number[i]) for i, time in enumerate(timeline.seen) if number[i] in first}
        self._source = [value_at.get(t - 1) if work.is_simple(t) else None for t in self.began]
        """Of what a module without weight matrices (a norm, a dropout) returned: what it was given."""
        self.sums: set[int] = set()
        """Those that are known to be one."""
        returned = [any(points[t].output for t in times) for times in at]
        self._returned = [
            out and bool(p and work.of(times[0])) for out, p, times in zip(returned, self.points, at, strict=True)
        ]

    def exactly(self, total: int) -> _Terms | None:
        """The trunk and the branches whose sum the total is."""
        for branches in (1, 2):
            chosen, factors, left = self._best(total, branches)
            if left < EXACT:
                return chosen, factors, True
        return None

    def at_all(self, total: int) -> _Terms | None:
        """The same, or else the trunk whose difference to the total is much like what a module returned."""
        if (terms := self.exactly(total)) is not None or not self.points[total]:
            return terms
        found = self._by_difference(total)
        return None if found is None else (found[1:], np.ones(2), found[0])

    def _stream(self) -> set[int]:
        """The residual stream so far: the block's input, sums, and what norms make of them (the stream of Post-LN)."""
        sums = {0, *self.sums}
        return sums | {v for v, source in enumerate(self._source) if source in sums}

    def _trunks(self, total: int) -> list[int]:
        return [v for v in sorted(self._stream()) if v < total and self.points[v]]

    def _branches(self, total: int) -> list[int]:
        stream = self._stream()
        return [v for v in range(1, total) if self._returned[v] and v not in stream]

    def _best(self, total: int, branches: int) -> tuple[tuple[int, ...], _Matrix, float]:
        """The least share that is left of the smallest term, over all least-squares fits."""
        pairs = product(self._trunks(total), combinations(self._branches(total), branches))
        sets = [(trunk, *chosen) for trunk, chosen in pairs if trunk < chosen[0]]
        if not sets:
            return (), np.ones(0), np.inf
        index = np.array(sets)
        gram, along = self.gram[index[:, :, None], index[:, None, :]], self.gram[index, total]
        size = np.einsum("sii->si", gram)
        ridge = 1e-14 * size.sum(1)[:, None, None] * np.eye(1 + branches) + 1e-300 * np.eye(1 + branches)
        factors = np.linalg.solve(gram + ridge, along[:, :, None])[:, :, 0]
        factors = np.where(abs(factors - 1) < _WHOLE, 1.0, factors)
        left = self.gram[total, total] + np.einsum(
            "si,si->s", factors, np.einsum("sij,sj->si", gram, factors) - 2 * along
        )
        smallest = (factors**2 * size).min(1)
        with np.errstate(all="ignore"):
            share = np.sqrt(np.maximum(left, 0) / smallest)
        usable = np.isfinite(share) & (factors[:, 0] > 0) & (abs(factors) < _MOST).all(1)
        usable &= smallest > _LEAST * self.gram[total, total]
        best = int(np.where(usable, share, np.inf).argmin())
        return sets[best], factors[best], float(share[best]) if usable[best] else np.inf

    def _by_difference(self, total: int) -> tuple[bool, int, int] | None:
        """(exact, trunk, branch): the part of the stream whose difference to the total is most alike a module's output,
        and more than the total itself is; first of all where only rounding is between them."""
        found = []
        for trunk, branch in product(self._trunks(total), self._branches(total)):
            left = self._unlike(total, trunk, branch)
            if trunk < branch and left < min(ALIKE, self._unlike(total, None, branch)):
                found.append((not self._is_rounding(total, trunk, branch), left, trunk, branch))
        if not found:
            return None
        rough, _, trunk, branch = min(found)
        return not rough, trunk, branch

    def _is_rounding(self, total: int, trunk: int, branch: int) -> bool:
        """Whether total - trunk - branch is no more than a sum's rounding."""
        signs, index = np.array([1, -1, -1]), [total, trunk, branch]
        left = float(signs @ self.gram[np.ix_(index, index)] @ signs)
        return left <= (2 * self.eps) ** 2 * float(self.gram[total, total])

    def _unlike(self, total: int, trunk: int | None, branch: int) -> float:
        """sqrt(1 - cosine^2) between total - trunk and branch."""
        gram = self.gram
        size, along = gram[total, total], gram[total, branch]
        if trunk is not None:
            size, along = size + gram[trunk, trunk] - 2 * gram[total, trunk], along - gram[trunk, branch]
        if not size > _LEAST * gram[total, total]:
            return np.inf
        with np.errstate(all="ignore"):
            return float(np.sqrt(max(1 - along**2 / (size * gram[branch, branch]), 0)))
