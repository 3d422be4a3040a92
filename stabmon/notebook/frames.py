"""Run logs as data frames of pandas, which is imported when the first is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stabmon.catalog import STATISTICS
from stabmon.runlog.tail import Chunk, Tail

if TYPE_CHECKING:
    import pandas as pd


def of_statistic(path: Path, statistic: str) -> pd.DataFrame:
    """float32; index `step`, a column for each site that it was read at, steps without a reading left out."""
    pandas, found = _pandas(), []
    for chunk in _chunks(path):
        values = chunk[statistic]
        if values.size:
            read = ~np.isnan(values).all(axis=0)
            names = [site.name or statistic for site in chunk.layout.sites_of(statistic)]
            found.append(pandas.DataFrame(values[:, read].T, _steps(chunk.steps[read]), names))
    frame = pandas.concat(found) if found else pandas.DataFrame(index=_steps([]))
    row = STATISTICS[statistic]
    frame.attrs = {"statistic": row.name, "unit": row.unit, "help": row.help}
    return frame


def of_model(path: Path, statistics: Sequence[str]) -> pd.DataFrame:
    """Index `step`; `time` and a column for each statistic, float32."""
    pandas, found = _pandas(), []
    for chunk in _chunks(path):
        columns: dict[str, Any] = {"time": pandas.to_datetime(chunk.times, unit="s", utc=True)}
        columns |= {name: values[0] for name in statistics if (values := chunk[name]).size}
        found.append(pandas.DataFrame(columns, _steps(chunk.steps)))
    return pandas.concat(found) if found else pandas.DataFrame(columns=["time", *statistics], index=_steps([]))


def of_records(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """A row each, times as UTC."""
    frame = _pandas().DataFrame(list(rows), columns=list(columns))
    frame["time"] = _pandas().to_datetime(frame["time"].astype(float), unit="s", utc=True)
    return frame


def _chunks(path: Path) -> Iterator[Chunk]:
    tail, more = Tail(path), True
    while more:
        news = tail.poll()
        yield from news.chunks
        more = news.more


def _steps(steps: Any) -> Any:
    return _pandas().Index(np.asarray(steps, dtype=np.int64), name="step")


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("data frames need pandas; pip install 'stabmon[notebook]', or pip install pandas") from error
    return pandas
