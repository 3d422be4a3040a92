"""Why something cannot be shown, for whoever reads the page."""

from __future__ import annotations

from pathlib import Path

from stabmon.runlog.encoding import as_text


def reason(error: Exception) -> str:
    """Without the folder: whoever reads the page need not know this machine's files."""
    words = [Path(word).name if word.startswith("/") else word for word in str(error).split(" ")]
    return as_text(" ".join(words))
