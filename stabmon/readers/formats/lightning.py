"""Lightning's CSVLogger: the header is the union of all metrics; rows of a step have other cells filled each."""

from stabmon.readers import names, table
from stabmon.readers.format import Format, Head
from stabmon.readers.reading import Asked


def _fits(head: Head, asked: Asked) -> bool:
    columns = table.header(head)[0]
    if not {"epoch", "step"} <= set(columns) or len(columns) < 3:
        return False
    shifted = any(column.endswith(("_step", "_epoch")) or column.startswith("lr-") for column in columns)
    return shifted and any(names.loss(column) is not None for column in columns)


LIGHTNING = Format("Lightning metrics.csv", _fits, table.readings)
