"""Any bytes are either read or refused."""

from __future__ import annotations

import json
import math
import random

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.readers.fuzz import attempt, mutated
from tests.readers.reading import read

FEW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

CELLS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.integers(), max_size=2)
)
NAMES = st.sampled_from(["step", "loss", "train_loss", "eval_loss", "epoch", "lr", "grad_norm", "time", "x"])


@FEW
@given(st.binary(max_size=2000))
@example(b"\x1f\x8b")
@example(b"\xff\xfe\n\0")
def test_any_bytes(content: bytes) -> None:
    attempt(content)


@FEW
@given(st.text(max_size=2000))
def test_any_text(text: str) -> None:
    attempt(text.encode("utf-8", "surrogatepass"))


@FEW
@given(st.lists(st.dictionaries(NAMES, CELLS), max_size=20))
def test_any_rows_of_json(rows: list[dict[str, object]]) -> None:
    attempt("\n".join(map(json.dumps, rows)).encode())
    attempt(json.dumps({"log_history": rows}).encode())
    attempt(json.dumps(rows).encode())


@FEW
@given(st.lists(NAMES, min_size=2, unique=True), st.lists(st.lists(CELLS, max_size=9), max_size=20))
def test_any_rows_of_a_table(columns: list[str], rows: list[list[object]]) -> None:
    attempt("\n".join(",".join(map(str, row)) for row in [columns, *rows]).encode("utf-8", "replace"))


@FEW
@given(st.integers(0, 2**32))
def test_files_of_every_format_with_something_done_to_them(seed: int) -> None:
    attempt(mutated(random.Random(seed)))


@FEW
@given(
    st.lists(
        st.tuples(st.integers(0, 10**9), st.floats(-1e30, 1e30)), min_size=1, max_size=30, unique_by=lambda p: p[0]
    )
)
def test_whatever_is_written_comes_back(pairs: list[tuple[int, float]]) -> None:
    """Steps in any order, losses of any size: float32 of each, in the file's order."""
    losses = read("".join(json.dumps({"step": step, "loss": loss}) + "\n" for step, loss in pairs)).losses
    assert [step for step, _ in losses] == [step for step, _ in pairs]
    assert all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-38) for (_, a), (_, b) in zip(losses, pairs, strict=True))
