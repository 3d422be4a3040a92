"""Which models are trained in which loops and precisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.util import find_spec

from stabmon.bench.exact.families import Family
from stabmon.bench.exact.plan import PRECISIONS, Loop, Plan, Precision
from stabmon.bench.exact.trainers import in_accelerate, in_huggingface, in_lightning
from stabmon.bench.exact.watched import Train, checkpointed, compiled, plain

_FULL: Precision = "fp32"
_MIXED: Precision = "bf16 autocast"
_HALF: Precision = "fp16 autocast"


@dataclass(frozen=True)
class Case:
    """One way to train, the precisions it is shown in, and what it needs."""

    loop: Loop
    train: Train
    precisions: Sequence[Precision]
    package: str = ""
    models: Sequence[str] = ("*",)
    """Patterns of the families' names."""


_SEVERAL = ("GPT, Pre-LN", "GPT, Post-LN, dropout", "GPT-2", "Llama", "T5", "BERT, classes")
_TRAINERS = ("GPT, Pre-LN", "GPT-2", "Llama", "T5", "ViT")
_CHECKPOINTED = ("GPT, Pre-LN", "GPT, Post-LN, dropout", "GPT-2", "Llama")
_COMPILED = ("GPT, Pre-LN", "GPT-2", "Llama", "ViT")

CASES = (
    Case(Loop("plain"), plain, PRECISIONS),
    Case(Loop("accumulation", micro_batches=2), plain, (_FULL, _MIXED), models=(*_SEVERAL, "nn.*")),
    Case(Loop("clipping", clip=True, evaluates=True), plain, (_FULL,), models=_SEVERAL),
    Case(Loop("loss scaler", scaler=True, clip=True), plain, (_HALF,), models=_SEVERAL),
    Case(Loop("two optimizers", optimizers=2), plain, (_FULL,), models=_SEVERAL),
    Case(Loop("checkpointing"), checkpointed(False), (_FULL, _MIXED), models=_CHECKPOINTED),
    Case(Loop("re-entrant checkpointing"), checkpointed(True), (_FULL,), models=_CHECKPOINTED),
    Case(Loop("torch.compile", compiled=True), compiled, (_FULL,), models=_COMPILED),
    Case(
        Loop("Hugging Face", micro_batches=2, clip=True, counted=True),
        in_huggingface,
        (_FULL, _MIXED),
        "transformers",
        _TRAINERS,
    ),
    Case(
        Loop("Lightning", micro_batches=2, clip=True, inside="net"),
        in_lightning,
        (_FULL, _MIXED),
        "lightning",
        _TRAINERS,
    ),
    Case(
        Loop("Accelerate", micro_batches=2, clip=True),
        in_accelerate,
        (_FULL, _MIXED),
        "accelerate",
        _TRAINERS,
    ),
)
QUICK = (
    ("GPT, Pre-LN", "plain", "fp32"),
    ("GPT, Pre-LN", "plain", "pure bf16"),
    ("GPT, Pre-LN", "accumulation", "bf16 autocast"),
    ("GPT, Post-LN, dropout", "clipping", "fp32"),
    ("GPT, Post-LN, dropout", "loss scaler", "fp16 autocast"),
    ("GPT, Post-LN, dropout", "re-entrant checkpointing", "fp32"),
    ("ResNet, BatchNorm", "plain", "fp32"),
    ("U-Net, GroupNorm", "plain", "fp32"),
    ("GPT-2", "Hugging Face", "fp32"),
    ("Gemma 2", "plain", "fp32"),
    ("Mixtral", "plain", "fp32"),
    ("T5", "accumulation", "fp32"),
)
"""(model, loop, precision) of the part that takes half a minute."""


def chosen(families: Sequence[Family], only: str, quick: bool) -> Iterator[tuple[Plan, Train]]:
    """The trainings whose "model / loop / precision" fits the pattern `only`, or holds it."""
    for family in families:
        for case in CASES:
            if case.package and find_spec(case.package) is None:
                continue
            if not any(fnmatchcase(family.name, pattern) for pattern in case.models):
                continue
            for precision in case.precisions:
                names = (family.name, case.loop.name, precision)
                if (names in QUICK or not quick) and fnmatchcase(" / ".join(names), f"*{only}*"):
                    yield Plan(family, case.loop, precision), case.train


def missing() -> list[str]:
    """Loops that are left out because their package is not there, in words."""
    absent = sorted({case.package for case in CASES if case.package and find_spec(case.package) is None})
    return [f"{package} is not installed, so trainings in its loop are left out" for package in absent]
