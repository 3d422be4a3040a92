"""LLaMA-Factory's trainer_log.jsonl."""

from stabmon.readers.format import Format, Head
from stabmon.readers.formats.json_lines import JSON_LINES, head_rows
from stabmon.readers.reading import Asked


def _fits(head: Head, asked: Asked) -> bool:
    return any({"current_steps", "total_steps"} <= row.keys() for row in head_rows(head)[:5])


LLAMAFACTORY = Format("LLaMA-Factory trainer_log.jsonl", _fits, JSON_LINES.readings)
