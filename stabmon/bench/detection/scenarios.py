"""What is trained: every scenario of the benchmark. What came of a run is read from its loss, not from here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from stabmon.bench.detection.faults import (
    Fault,
    FrozenBlock,
    KeptGradients,
    LargerBatch,
    OddBatch,
    OtherTokenizer,
    Rate,
    SameBatch,
    Sharper,
    ShuffledLabels,
)
from stabmon.bench.detection.networks import Shape

Family = Literal[
    "stall",
    "delayed",
    "healthy",
    "floor",
    "abrupt",
    "blow_up",
    "attention",
    "spike",
    "data",
    "implementation",
    "schedule",
]
Level = Literal["light", "standard", "deep"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One training, but for its seed."""

    name: str
    family: Family
    """What it was meant to be."""
    shape: Shape
    data: str = "text"
    """One of data.SOURCES."""
    lr: float = 1e-3
    warmup: int = 0
    optimizer: str = "adam"
    """One of optimizers.OPTIMIZERS."""
    steps: int = 300
    batch: int = 8
    level: Level = "light"
    drop_at: int = 0
    """Step at which the learning rate falls to a tenth; 0 = never."""
    resume_at: int = 0
    """Step at which stabmon is stopped and made anew; 0 = never."""
    fault: Fault | None = None
    control: str = ""
    """The scenario that is the same without the fault."""

    @property
    def fault_at(self) -> int | None:
        """The first step that the fault touches."""
        return self.fault.at if self.fault else None


def run_name(scenario: str, seed: int) -> str:
    """What the run of the scenario of that name is called."""
    return f"{scenario}-s{seed}"


def _many(family: Family, given: Iterable[Scenario]) -> tuple[Scenario, ...]:
    return tuple(replace(scenario, family=family, name=f"{family}-{scenario.name}") for scenario in given)


def _of(name: str, shape: Shape, data: str, lr: float, **more: Any) -> Scenario:
    batch = 32 if data in ("masked", "digits") else 8  # a quarter of masked text is targets: as many as of text
    whole = replace(shape, causal=data not in ("masked", "digits") and shape.causal)
    return Scenario(name, "healthy", whole, data=data, lr=lr, **{"batch": batch, **more})


_POST, _PRE = Shape("post"), Shape("pre")
_DEEP: dict[str, Level] = {"level": "deep"}
_STANDARD: dict[str, Level] = {"level": "standard"}

STALL = _many(
    "stall",
    (
        _of("text", _POST, "text", 3e-3),
        _of("markov", _POST, "markov", 3e-3),
        _of("text-8", Shape("post", layers=8), "text", 2e-3),
        _of("markov-4", Shape("post", layers=4), "markov", 1e-2),
        _of("text-wide", Shape("post", width=96), "text", 3e-3),
        _of("text-narrow", Shape("post", width=48), "text", 4e-3),
        _of("text-12", Shape("post", layers=12, width=48), "text", 2e-3),
        _of("text-fused", Shape("post", fused=True), "text", 4e-3),
        _of("markov-adamw", _POST, "markov", 3e-3, optimizer="adamw"),
        _of("text-slow-adam", _POST, "text", 3e-3, optimizer="slow_adam"),
        _of("text-warm", Shape("post", layers=8), "text", 5e-3, warmup=50),
        _of("text-gpt2", Shape("post", init="gpt2"), "text", 5e-3),
        _of("masked", _POST, "masked", 3e-3),
        _of("digits", _POST, "digits", 3e-3),
        _of("text-edge", _POST, "text", 2e-3, steps=400),
    ),
)

DELAYED = _many(
    "delayed",
    (
        _of("text", _POST, "text", 1e-3),
        _of("text-8", Shape("post", layers=8), "text", 5e-4, steps=400),
        _of("text-edge", _POST, "text", 1.5e-3, steps=400),
        _of("text-warm", _POST, "text", 2e-3, warmup=100, steps=400),
        _of("text-fused", Shape("post", fused=True), "text", 1e-3),
        _of("markov", _POST, "markov", 1e-3),
        _of("markov-12", Shape("post", layers=12, width=48), "markov", 5e-4, steps=900),
        _of("markov-radam", _POST, "markov", 1e-3, optimizer="radam"),
        _of("markov-warm", _POST, "markov", 2e-3, warmup=150),
        _of("masked", _POST, "masked", 5e-4, steps=900),
        _of("digits", _POST, "digits", 5e-4),
    ),
)

HEALTHY = _many(
    "healthy",
    (
        _of("text", _PRE, "text", 1e-3, steps=600, **_DEEP),
        _of("text-hot", _PRE, "text", 1e-2, steps=400, **_STANDARD),
        _of("text-adamw", Shape("pre", init="gpt2"), "text", 2e-3, optimizer="adamw", **_STANDARD),
        _of("text-sgd", _PRE, "text", 0.1, optimizer="sgd"),
        _of("text-12", Shape("pre", layers=12, width=48), "text", 2e-3),
        _of("text-deepnorm", Shape("deepnorm", layers=8), "text", 1e-3, **_STANDARD),
        _of("text-peri", Shape("peri"), "text", 2e-3, **_DEEP),
        _of("text-scaled", Shape("scaled"), "text", 2e-3, **_STANDARD),
        _of("text-qk-norm", Shape("pre", qk_norm=True), "text", 3e-3, steps=600, **_DEEP),
        _of("markov", _PRE, "markov", 3e-3, steps=400, **_DEEP),
        _of("markov-plain", _PRE, "markov", 1e-3, steps=500),
        _of("markov-warm-hot", _PRE, "markov", 1e-2, warmup=100, steps=400),
        _of("markov-wide", Shape("pre", layers=4, width=128), "markov", 1e-3, **_DEEP),
        _of("markov-peri", Shape("peri", layers=8), "markov", 1e-3, steps=400),
        _of("markov-deepnorm", Shape("deepnorm"), "markov", 3e-3),
        _of("markov-post", Shape("post", layers=3), "markov", 5e-4),
        _of("masked", _PRE, "masked", 2e-3, **_STANDARD),
        _of("digits", _PRE, "digits", 1e-3, **_DEEP),
        _of("digits-deepnorm", Shape("deepnorm", causal=False), "digits", 1e-3),
    ),
)

FLOOR = _many(
    "floor",
    (
        _of("pre", _PRE, "independent", 1e-3, **_STANDARD),
        _of("pre-hot", _PRE, "independent", 5e-3),
        _of("post", _POST, "independent", 3e-3),
        _of("post-warm", _POST, "independent", 1e-3, warmup=100),
        _of("deepnorm", Shape("deepnorm"), "independent", 2e-3),
    ),
)

ABRUPT = _many(
    "abrupt",
    (
        _of("copy", Shape("pre", layers=4), "copy", 1e-3, steps=500, **_DEEP),
        _of("copy-hot", Shape("pre", layers=4), "copy", 3e-3, steps=500),
        _of("copy-peri", Shape("peri", layers=4), "copy", 2e-3, steps=500, **_STANDARD),
    ),
)

_RAMP = Rate(100, growth=1.02)
_SLOW = Rate(100, growth=1.015)

BLOW_UP = _many(
    "blow_up",
    (
        _of("text-ramp", _PRE, "text", 1e-3, steps=460, fault=_RAMP),
        _of("text-slow-ramp", _PRE, "text", 2e-3, steps=500, fault=_SLOW),
        _of("text-ramp-12", Shape("pre", layers=12, width=48), "text", 1e-3, steps=460, fault=_RAMP),
        _of("text-ramp-adamw", _PRE, "text", 1e-3, optimizer="adamw", steps=460, fault=_RAMP, **_STANDARD),
        _of("text-ramp-scaled", Shape("scaled"), "text", 1e-3, steps=460, fault=_RAMP),
        _of("markov-ramp", _PRE, "markov", 1e-3, steps=460, fault=_RAMP, **_STANDARD),
        _of("markov-slow-ramp", _PRE, "markov", 2e-3, steps=500, fault=_SLOW, **_STANDARD),
        _of("markov-ramp-peri", Shape("peri"), "markov", 1e-3, steps=460, fault=_RAMP),
        _of("markov-ramp-post", _POST, "markov", 1e-3, warmup=50, steps=460, fault=Rate(200, growth=1.02)),
        _of("text-jump", _PRE, "text", 1e-3, steps=300, fault=Rate(150, times=100), **_STANDARD),
        _of("markov-jump-sgd", _PRE, "markov", 0.1, optimizer="sgd", steps=300, fault=Rate(150, times=30)),
    ),
)

_SHARP: dict[str, Any] = {"level": "deep", "steps": 400}
_LONG: dict[str, Any] = {"level": "deep", "steps": 600}
"""On text sharper attention costs .3 nats only some 300 steps after it begins to sharpen."""
_PLAIN = "healthy-markov-plain"
_QK_NORM = Shape("pre", qk_norm=True)

ATTENTION = _many(
    "attention",
    (
        _of("markov-fast", _PRE, "markov", 1e-3, fault=Sharper(150, 1.03), control=_PLAIN, **_SHARP),
        _of("markov-slow", _PRE, "markov", 1e-3, fault=Sharper(100, 1.02), control=_PLAIN, **_SHARP),
        _of("markov-slower", _PRE, "markov", 1e-3, fault=Sharper(100, 1.015), control=_PLAIN, level="deep", steps=500),
        _of("text-fast", _PRE, "text", 1e-3, fault=Sharper(100, 1.03), control="healthy-text", **_LONG),
        _of(
            "copy",
            Shape("pre", layers=4),
            "copy",
            3e-3,
            fault=Sharper(250, 1.03),
            control="abrupt-copy-hot",
            **_SHARP,
        ),
        _of("text-qk-norm", _QK_NORM, "text", 3e-3, fault=Sharper(100, 1.03), control="healthy-text-qk-norm", **_LONG),
        _of(
            "markov-peri",
            Shape("peri", layers=8),
            "markov",
            1e-3,
            fault=Sharper(150, 1.03),
            control="healthy-markov-peri",
            **_SHARP,
        ),
    ),
)

SPIKE = _many(
    "spike",
    (
        _of("markov-10", _PRE, "markov", 1e-3, fault=Rate(200, times=30, steps=10), steps=350, **_STANDARD),
        _of("text-10", _PRE, "text", 1e-3, fault=Rate(200, times=30, steps=10), steps=350),
        _of("markov-1", _PRE, "markov", 1e-3, fault=Rate(200, times=100, steps=1), steps=350),
        _of("text-odd", _PRE, "text", 1e-3, fault=OddBatch(200), steps=350, **_STANDARD),
        _of("markov-repeats", _PRE, "markov", 1e-3, fault=OddBatch(200, period=4, steps=3), steps=350),
    ),
)

DATA = _many(
    "data",
    (
        _of("text-shuffled", _PRE, "text", 1e-3, fault=ShuffledLabels(200), **_STANDARD),
        _of("markov-shuffled", _PRE, "markov", 1e-3, fault=ShuffledLabels(200)),
        _of("markov-post-shuffled", _POST, "markov", 1e-3, steps=400, fault=ShuffledLabels(250)),
        _of("text-tokenizer", _PRE, "text", 1e-3, fault=OtherTokenizer(200)),
        _of("markov-tokenizer", _PRE, "markov", 1e-3, fault=OtherTokenizer(200), **_STANDARD),
        _of("text-same", _PRE, "text", 1e-3, fault=SameBatch(200)),
    ),
)

IMPLEMENTATION = _many(
    "implementation",
    (
        _of("no-residual", Shape("pre", residual=False), "text", 1e-3, control="healthy-text"),
        _of("no-residual-post", Shape("post", residual=False), "markov", 1e-3, control="healthy-markov-plain"),
        _of("no-final-norm", Shape("pre", final_norm=False), "markov", 1e-3, control="healthy-markov-plain"),
        _of("init-x4", Shape("pre", init_scale=4), "text", 1e-3, control="healthy-text", **_STANDARD),
        _of("init-x4-post", Shape("post", init_scale=4), "markov", 1e-3, control="healthy-markov-plain"),
        _of("frozen", _PRE, "text", 1e-3, fault=FrozenBlock(2), control="healthy-text"),
        _of("uncorrected", _PRE, "text", 1e-3, optimizer="uncorrected", control="healthy-text", **_STANDARD),
        _of("kept-gradients", _PRE, "text", 1e-3, fault=KeptGradients(), control="healthy-text"),
        _of("acausal", Shape("pre", causal=False), "text", 1e-3, control="healthy-text"),
        _of("acausal-markov", Shape("pre", causal=False), "markov", 1e-3, control="healthy-markov-plain"),
    ),
)

SCHEDULE = _many(
    "schedule",
    (
        _of("warm-end", _PRE, "text", 3e-3, warmup=150, **_STANDARD),
        _of("drop", _PRE, "text", 3e-3, drop_at=200, **_DEEP),
        _of("drop-markov", _PRE, "markov", 5e-3, drop_at=150),
        _of("larger-batch", _PRE, "markov", 2e-3, fault=LargerBatch(150), **_STANDARD),
        _of("resume", _PRE, "text", 1e-3, resume_at=150, **_STANDARD),
        _of("resume-post", _POST, "markov", 1e-3, resume_at=60),
    ),
)

SCENARIOS: tuple[Scenario, ...] = (
    *STALL,
    *DELAYED,
    *HEALTHY,
    *FLOOR,
    *ABRUPT,
    *BLOW_UP,
    *ATTENTION,
    *SPIKE,
    *DATA,
    *IMPLEMENTATION,
    *SCHEDULE,
)
