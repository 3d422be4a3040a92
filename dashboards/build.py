"""Writes the dashboards beside it: `python -m dashboards.build`."""

from __future__ import annotations

import json
from pathlib import Path

from dashboards.boards import compare, exporter, layer, ranks, run, runs

FOLDER = Path(__file__).parent
BOARDS = (runs, run, layer, compare, ranks, exporter)


def texts() -> dict[str, str]:
    """File name -> text of each dashboard."""
    return {f"{b.UID}.json": json.dumps(b.board(), indent=2, ensure_ascii=False) + "\n" for b in BOARDS}


if __name__ == "__main__":
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
