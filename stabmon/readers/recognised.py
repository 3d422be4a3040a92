"""What a file is, by its content; and what to say of one that is nothing we know."""

from __future__ import annotations

from stabmon.readers import table
from stabmon.readers.format import Format, Head
from stabmon.readers.formats import FORMATS, json_lists
from stabmon.readers.reading import Asked, Notes, ReadError
from stabmon.readers.source import HEAD, Source
from stabmon.readers.text import LONGEST, encoding

READABLE = (
    "trainer_state.json, Lightning's metrics.csv, W&B's CSV export, TensorBoard and MLflow folders, logs of nanoGPT, "
    "llm.c, Megatron, torchtitan, OLMo and the like, CSV, JSON lines and *.stabmon"
)
_KNOWN = (
    (0, b"PK\x03\x04", "a zip archive (or a PyTorch checkpoint)"),
    (0, b"\x28\xb5\x2f\xfd", "packed with zstd"),
    (0, b"\xfd7zXZ\0", "packed with xz"),
    (0, b"BZh", "packed with bzip2"),
    (0, b"\x1f\x8b", "packed twice with gz"),
    (0, b"SQLite format 3\0", "a database; a run log is read from a file, unpacked"),
    (0, b"\x89PNG", "a picture"),
    (0, b"\xff\xd8\xff", "a picture"),
    (0, b"%PDF", "a PDF"),
    (0, b"PAR1", "a Parquet table; save it as CSV"),
    (0, b"\x89HDF", "an HDF5 file"),
    (0, b"\x80\x02", "a Python pickle"),
    (257, b"ustar", "a tar archive; unpack it and give its folder"),
)
_FIRST = 1 << 16
_ODD = tuple(map(chr, (*range(1, 7), *range(14, 27))))


def without_loss(name: str, kind: str, notes: Notes) -> ReadError:
    """Of what looks like a recording and has no reading; `notes`: what was left out, and why."""
    left_out = [note.rstrip(".") for note in notes if "left out" in note]
    why = f": {'. '.join(left_out)}; name the columns or keys with --loss and --step" if left_out else ""
    return ReadError(
        f"{name} is {kind}, but holds no loss {'that can be read' if why else ''}".rstrip()
        + (why or "; nothing can be judged")
    )


def recognised(source: Source, asked: Asked) -> tuple[Format, Head]:
    """The format, and the head by which it was found: the first that is sure, as soon as there is enough of the file;
    those that guess only once there is no more to look at.
    """
    asked_at, growing = 0, True
    while growing:
        before = len(source.head)
        growing = source.look()
        size = len(source.head)
        if growing and (size == before or (size > _FIRST and size < 2 * asked_at and size < HEAD)):
            if source.stopped.is_set():
                break
            continue
        asked_at = size
        head = Head(source.head, whole=not growing)
        if is_binary(head.raw):
            break
        if found := _fitting(head, asked, sure=True) or (_fitting(head, asked, sure=False) if not growing else None):
            return found, head
        if source.follow and (found := _fitting(head, asked, sure=False)):
            return found, head
    raise ReadError(_unknown(source, asked))


def _fitting(head: Head, asked: Asked, sure: bool) -> Format | None:
    return next((form for form in FORMATS if form.sure is sure and form.fits(head, asked)), None)


def is_binary(raw: bytes) -> bool:
    """By its mark, or by characters that no text has."""
    if _kind(raw):
        return True
    sample = raw[:_FIRST]
    text = sample.decode(encoding(raw), "replace")
    return sum(map(text.count, _ODD)) > 0.02 * len(text)


def _kind(raw: bytes) -> str | None:
    """By its mark."""
    return next((kind for at, mark, kind in _KNOWN if raw.startswith(mark, at)), None)


def _unknown(source: Source, asked: Asked) -> str:
    raw = source.head
    if not raw.strip():
        return f"{source.name} is empty"
    if not raw.strip(b"\0 \r\n\t"):
        return f"{source.name} holds only zero bytes, as a file does whose disk or machine failed; give a copy of it"
    kind = _kind(raw)
    if kind or is_binary(raw):
        return f"{source.name} is {kind or 'binary'}, no log that stabmon reads; give one of {READABLE}"
    head = Head(raw, whole=True)
    if not head.lines or len(head.lines[0]) > LONGEST:
        return (
            f"{source.name} begins with a line of more than {LONGEST >> 20} million characters, as no log does; "
            f"stabmon reads {READABLE}"
        )
    first = head.lines[0].strip()[:60]
    hint = f"no line has {asked.loss!r}" if asked.loss else "name the loss with --loss if it is a table or JSON lines"
    hint = json_lists.misfit(head) or table.misfit(head) or hint
    return f"{source.name} begins with {first!r} and holds no losses that stabmon finds ({hint}); it reads {READABLE}"
