"""Reads files of every format with bytes changed, cut, doubled and mixed; anything but a recording or a ReadError is a
failure. `python -m tests.readers.fuzz --minutes 10`
"""

from __future__ import annotations

import argparse
import gzip
import io
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable
from math import isfinite

from stabmon.readers import ReadError, opened
from tests.readers.makers import MAKERS

_WORDS = [b"NaN", b"inf", b"-1", b"1e999", b"9" * 400, b'"', b"{", b"}", b"[", b"]", b",", b"\0", b"\r", b"\xff\xfe"]
_WORDS += [b"\x1b[3", b"[rank1]: ", b"step", b"loss", b"null", b"\n\n", b";", b"\t", b"|", b": ", b"\xe2\x80\xa8"]
_SLOW_SECONDS = 20.0

Mutation = Callable[[random.Random, bytes], bytes]


def _changed(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]


def _worded(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.choice(_WORDS) + content[at + rng.choice((0, 1, 5)) :]


def _cut(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _without(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content) + 1)
    return content[:start] + content[start + rng.randrange(200) :]


def _repeated(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content) + 1)
    piece = content[start : start + rng.randrange(1, 300)]
    return content[:start] + piece * rng.randrange(2, 50) + content[start:]


def _mixed(rng: random.Random, content: bytes) -> bytes:
    other = rng.choice(MAKERS)().text.encode()
    return content[: rng.randrange(len(content) + 1)] + other[rng.randrange(len(other)) :]


def _encoded(rng: random.Random, content: bytes) -> bytes:
    return content.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-16-be", "utf-8-sig", "utf-7")))


def _packed(rng: random.Random, content: bytes) -> bytes:
    return gzip.compress(content)


_MUTATIONS: tuple[Mutation, ...] = (_changed, _worded, _cut, _without, _repeated, _mixed)
_LAST: tuple[Mutation, ...] = (_encoded, _packed)


def mutated(rng: random.Random) -> bytes:
    """A file of some format, with one to six things done to it."""
    content = rng.choice(MAKERS)().text.encode()
    for _ in range(rng.randrange(1, 7)):
        content = rng.choice(_MUTATIONS)(rng, content)
    if rng.random() < 0.2:
        content = rng.choice(_LAST)(rng, content)
        content = rng.choice(_MUTATIONS)(rng, content) if rng.random() < 0.5 else content
    return content


def attempt(content: bytes, **options: str) -> str:
    """What became of it: the format, or `refused`. Raises what a user must never see."""
    try:
        recording = opened(io.BytesIO(content), **options)
        for snapshot, events in recording.feeds():
            assert snapshot.step >= 0, "a step below 0"
            assert isfinite(snapshot.time), "a time that is no time"
            assert all(event.detail for event in events), "an event that tells nothing"
    except ReadError as error:
        said = str(error)
    else:
        return recording.format
    assert "\n" not in said, "a message of several lines"
    return "refused"


def main() -> int:
    """Number of failures, each printed with the seed that repeats it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    ended: Counter[str] = Counter()
    seed, failures = given.seed, 0
    while time.monotonic() < end:
        rng = random.Random(seed)
        began = time.process_time()
        try:
            ended[attempt(mutated(rng), **rng.choice(({}, {}, {}, {"loss": "loss"}, {"loss": "eval_loss"})))] += 1
            assert time.process_time() - began < _SLOW_SECONDS, "slow"
        except Exception:
            failures += 1
            print(f"seed {seed}:\n{traceback.format_exc()}", flush=True)
        seed += 1
    print(f"{seed - given.seed} files, {failures} failures. {dict(ended.most_common())}")
    return failures


if __name__ == "__main__":
    raise SystemExit(min(main(), 1))
