"""AlgoPerf's measurements.csv. A gradient norm or loss that was NaN is an empty cell."""

from stabmon.readers import table
from stabmon.readers.format import Format, Head
from stabmon.readers.reading import Asked

_COLUMNS = {"global_step", "loss", "accumulated_submission_time"}


def _fits(head: Head, asked: Asked) -> bool:
    return set(table.header(head)[0]) >= _COLUMNS


ALGOPERF = Format("AlgoPerf measurements.csv", _fits, table.readings)
