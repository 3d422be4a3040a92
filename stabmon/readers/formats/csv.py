"""Any table that has a column which looks like a loss, or the one that the user named."""

from stabmon.readers import names, table
from stabmon.readers.format import Format, Head
from stabmon.readers.reading import Asked


def _fits(head: Head, asked: Asked) -> bool:
    columns, _ = table.header(head)
    rows = len(table.head_rows(head)) if columns else 0
    if 2 * rows < len(head.lines) - 1 or not (rows or (columns and head.whole)):
        return False
    if asked.loss is not None:
        return asked.loss in columns
    return any(names.loss(column) is not None or names.eval_loss(column) is not None for column in columns)


CSV = Format("CSV", _fits, table.readings)
