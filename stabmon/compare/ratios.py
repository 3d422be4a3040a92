"""Which statistics differ most between two runs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from stabmon.catalog import STATISTICS
from stabmon.compare.curves import Curves
from stabmon.records import Snapshot

STRETCHES = 20
"""The common steps are looked at in so many stretches: what differs for a moment alone is left out."""
_FEWEST = 3
_Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Ratio:
    """A statistic where two runs differ most in it: medians over the twentieth of the steps in which they do."""

    statistic: str
    site: str
    """"" is the whole model."""
    first_step: int
    last_step: int
    a: float
    b: float

    @property
    def ratio(self) -> float:
        """Of the second to the first."""
        return self.b / self.a


def ratios(a: Curves, b: Curves) -> list[Ratio]:
    """One for each statistic that both have, greatest ratio (or its inverse) first. Only what is positive and finite in
    both can be compared so.
    """
    places = sorted(_common(a, b))
    if not places:
        return []
    stretches = np.array_split(np.array(places), min(STRETCHES, len(places)))
    rows = [([a.rows[place] for place in span], [b.rows[place] for place in span]) for span in stretches]
    names = [name for name, row in STATISTICS.items() if row.exported]
    found = [most for name in names if (most := _most(name, rows)) is not None]
    return sorted(found, key=lambda each: -abs(np.log(each.ratio)))


def _common(a: Curves, b: Curves) -> set[int]:
    """Ranges of steps that both have, made wider until most of the shorter run's are: others log other steps."""
    if not (a.rows and b.rows) or min(a.last_step, b.last_step) < max(a.first_step, b.first_step):
        return set()
    width = max(a.width, b.width)
    while True:
        for curves in (a, b):
            curves.widen(width)
        common, fewer = a.rows.keys() & b.rows.keys(), min(len(a.rows), len(b.rows))
        if 2 * len(common) >= fewer or fewer < _FEWEST:
            return common
        width *= 2


def _most(statistic: str, rows: list[tuple[list[Snapshot], list[Snapshot]]]) -> Ratio | None:
    newest = [side[-1].layout.sites_of(statistic) for side in rows[-1]]
    there = {site.name for site in newest[1]}
    sites = [site.name for site in newest[0] if site.name in there]
    if not sites:
        return None
    medians = [[_median(statistic, sites, side) for side in span] for span in rows]
    both = np.array(medians)  # [stretch, run, site]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.abs(np.log(both[:, 1] / both[:, 0]))
    logs[~np.isfinite(logs)] = -1
    stretch, place = np.unravel_index(int(logs.argmax()), logs.shape)
    if logs[stretch, place] < 0:
        return None
    span = rows[int(stretch)][0]
    first, last = both[stretch, :, place]
    return Ratio(statistic, sites[int(place)], span[0].step, span[-1].step, float(first), float(last))


def _median(statistic: str, sites: list[str], snapshots: list[Snapshot]) -> _Floats:
    """float64[site]; NaN where it was not read."""
    places: dict[int, list[int]] = {}
    values = np.full((len(snapshots), len(sites)), np.nan)
    for row, snapshot in enumerate(snapshots):
        layout = snapshot.layout
        if id(layout) not in places:
            known = {site.name: place for place, site in enumerate(layout.sites_of(statistic))}
            places[id(layout)] = [known[site] for site in sites if site in known]
        if len(places[id(layout)]) == len(sites):  # the model did not change in between
            values[row] = snapshot[statistic][places[id(layout)]]
    with warnings.catch_warnings():  # a statistic that was not read in this stretch
        warnings.simplefilter("ignore", RuntimeWarning)
        found: _Floats = np.nanmedian(values, axis=0)
    return found
