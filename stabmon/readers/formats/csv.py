"""Any table that has a column which looks like a loss, or the one that the user named."""

from stabmon.readers import names, table
from stabmon.readers.format import Format, Head
from stabmon.readers.reading import Asked
from stabmon.readers.rows import counts


def _fits(head: Head, asked: Asked) -> bool:
    columns = table.header(head)[0]
    rows = table.head_rows(head) if columns else []
    told = sum(line[0] != "#" for line in head.lines)
    if 2 * len(rows) < told - 1 or not (rows or (columns and head.whole)):
        return False
    if len(columns) == 1 and (2 * counts(rows)[columns[0]] < told - 1 if rows else True):
        return False
    if asked.loss in columns:
        return True
    likely = [name for name in columns if names.loss(name) is not None or names.eval_loss(name) is not None]
    numbers = counts(rows)
    return any(2 * numbers[name] >= sum(row[name] != "" for row in rows) for name in likely if rows) or bool(
        likely and not rows
    )


CSV = Format("CSV", _fits, table.readings)
