"""Lines of text, whatever wrote them: encodings, colours, progress bars, lines that do not end."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

from stabmon.readers.reading import Notes

LONGEST = 4 << 20
"""Characters of a line. What is longer is not a line of a log."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line ends, changes of direction, halves of characters."""
_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins as that of UTF-16 does
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE = 1 << 16


def printable(name: str) -> str:
    """A name with all of it in one line that a terminal does not act on, and that UTF-8 can hold."""
    return _UNPRINTABLE.sub("\ufffd", name)


def encoding(head: bytes) -> str:
    """By its mark, by where its NULs are, or because it is no UTF-8."""
    for mark, name in _BOMS:
        if head.startswith(mark):
            return name
    sample = head[:_SAMPLE]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if len(sample) >= 4 and max(even, odd) > 0.4 * len(sample) / 2 and min(even, odd) < 0.05 * len(sample) / 2:
        return "utf-16-be" if even > odd else "utf-16-le"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def decoded(chunks: Iterable[bytes]) -> Iterator[str]:
    """Text of each chunk; "" for an empty one. What cannot be decoded is replaced."""
    decoder = None
    for chunk in chunks:
        if decoder is None and chunk:
            decoder = codecs.getincrementaldecoder(encoding(chunk))("replace")
        yield decoder.decode(chunk) if decoder and chunk else ""
    if decoder:
        yield decoder.decode(b"", True)


def lines(chunks: Iterable[bytes], notes: Notes, follow: bool = False) -> Iterator[str | None]:
    """Each line that has something in it, clean. A progress bar's returns end lines too. None: nothing new yet; a line
    that has no end yet waits for it.
    """
    rest = ""
    for text in decoded(chunks):
        if not text:
            if follow:
                yield None
            continue
        *whole, rest = (rest + _plain(text)).split("\n")
        for line in whole:
            if "\x1b" in line:
                line = _ESCAPES.sub("", line)
            if line and not line.isspace():
                yield line
        if len(rest) > LONGEST:
            notes.say(f"A line of more than {LONGEST >> 20} million characters was left out.")
            rest = ""
    rest = _ESCAPES.sub("", rest)
    if rest and not rest.isspace():
        yield rest


def _plain(text: str) -> str:
    if "\ufeff" in text:
        text = text.replace("\ufeff", "")
    if "\r" in text:
        text = text.replace("\r", "\n")
    return text
