"""Which detectors a recorded file has enough for."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from stabmon.catalog import STATISTICS
from stabmon.detectors import Detector, default_detectors, loss_detectors
from stabmon.records import Layout, Run, Snapshot

FROM_LEVEL = {"attention_blowup": "deep", "dead_units": "deep", "logit_drift": "standard"}
"""Detectors whose needs the level `light` does not read."""
_LEVELS = ("light", "standard", "deep")
FEW = 30
"""Losses from which on a jump to twice the loss is told at its second point."""


def levels(missing: Collection[str], run: Run) -> str:
    """What a higher level than that of a run log would have read for those, in a sentence; "" where none would."""
    level = run.settings.get("level", "light")
    higher = _LEVELS[_LEVELS.index(level) + 1 :] if level in _LEVELS else ()
    told = []
    for each in higher:
        if names := [name for name in missing if FROM_LEVEL.get(name) == each]:
            told.append(f'level="{each}" reads what {" and ".join(names)} {"needs" if len(names) == 1 else "need"}')
    return f'This run was recorded at level="{level}"; {", ".join(told)}.' if told else ""


def too_few(points: int) -> str:
    """What a log so short cannot show, in a sentence; "" where it is long enough."""
    counted = "1 point" if points == 1 else f"{points} points"
    return "" if points >= FEW else f"{counted} only; to tell a jump of the loss from its noise takes {FEW}."


def judges(layout: Layout) -> list[Detector]:
    """Fresh ones for a log of losses, worst failure first: those that are graded on such logs, and any other that has
    all its needs there. The rest would judge by what is left of theirs.
    """
    held = {name for name in STATISTICS if layout.sites_of(name)}
    graded = {detector.name for detector in loss_detectors()}
    return [each for each in default_detectors() if each.name in graded or held.issuperset(each.needs)]


class Seen:
    """Which statistics were read at least once."""

    def __init__(self) -> None:
        self._read: dict[Layout, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]] = {}
        self._layout: Layout | None = None

    def see(self, snapshot: Snapshot) -> None:
        if snapshot.layout is not self._layout:  # comparing layouts by value takes long
            self._layout = snapshot.layout
            self._now = self._read.setdefault(snapshot.layout, np.zeros(len(snapshot.values), dtype=np.bool_))
        self._now |= ~np.isnan(snapshot.values)

    def statistics(self) -> frozenset[str]:
        """Stored ones, and those that follow from them."""
        stored = {
            layout.columns[slot][0] for layout, read in self._read.items() for slot in np.flatnonzero(read).tolist()
        }
        return frozenset(name for name in STATISTICS if _follows(name, stored))


def _follows(name: str, stored: Collection[str]) -> bool:
    of = STATISTICS[name].of
    return all(_follows(part, stored) for part in of) if of else name in stored


def could_not_run(judging: Collection[Detector], read: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Of those that judge and of the default ones: which had not what they need, and what of it was not read.

    Enough is the first need, of one that judges at all.
    """
    names = {detector.name for detector in judging}
    others = [each for each in default_detectors() if each.name not in names]
    return {
        each.name: tuple(need for need in each.needs if need not in read)
        for each in (*judging, *others)
        if each in others or each.needs[0] not in read
    }
