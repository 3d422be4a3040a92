"""A statistic over the layers: as the model began, as it was, and as it is."""

from __future__ import annotations

import numpy as np

from stabmon.catalog import STATISTICS, Array
from stabmon.records import Site
from stabmon.server import models
from stabmon.server.history import History, Reading
from stabmon.server.numbers import numbers

_LENGTH = "norm_input_msq"
_TOLERANCE = 0.25
_BAND = (
    "Where a model like this one begins: its own lengths before the first update, 25 % to either side. A healthy run "
    "leaves it, mostly upwards; what counts is how fast it grows."
)


def profile(history: History, statistic: str, step: int | None = None) -> models.Profile:
    """At the first step read, at the newest reading up to `step`, and now."""
    row = STATISTICS[statistic]
    first, newest = history.first.get(statistic), history.newest.get(statistic)
    sites = newest.sites if newest else history.sites(statistic)
    at = history.reading(statistic, step) if step is not None else None
    return models.Profile(
        statistic=row.name,
        unit=row.unit,
        help=row.help,
        sites=[models.Place.model_validate(site) for site in sites],
        first_step=first.step if first else 0,
        first=numbers(_aligned(first, sites)),
        step=at.step if at else None,
        at=numbers(_aligned(at, sites)) if at else [],
        latest_step=newest.step if newest else 0,
        latest=numbers(_aligned(newest, sites)),
        band=_band(history, first, sites) if statistic == _LENGTH else None,
    )


def _band(history: History, first: Reading | None, sites: tuple[Site, ...]) -> models.Band | None:
    # The paper's band, 1 + l/2 to 1 + 3l/2 for Pre-LN and flat for Post-LN, holds for an embedding of mean square 1
    # and for its own gains. How the weights of this model were drawn is not recorded, but what follows from it is: step
    # 1 is read in the forward before the first update. So this band is around the model's own first lengths.
    began = first is not None and first.step == 1 and not history.latest.get("pretrained")
    if first is None or not began:
        return None
    lengths = _aligned(first, sites)
    with np.errstate(over="ignore"):  # a length near float32's end
        low, high = lengths * np.float32(1 - _TOLERANCE), lengths * np.float32(1 + _TOLERANCE)
    return models.Band(low=numbers(low), high=numbers(high), text=_BAND)


def _aligned(reading: Reading | None, sites: tuple[Site, ...]) -> Array:
    """float32[site]; NaN where it was not read."""
    known = {} if reading is None else dict(zip((site.name for site in reading.sites), reading.values, strict=True))
    return np.array([known.get(site.name, np.nan) for site in sites], dtype=np.float32)
