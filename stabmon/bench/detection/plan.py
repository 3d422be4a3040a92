"""Which trainings a tier is made of. Thresholds are chosen on calibration seeds; test seeds are only judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stabmon.bench.detection.scenarios import SCENARIOS, Scenario

TIERS = ("small", "full")
SEEDS: Mapping[str, Sequence[int]] = {"calibration": (0, 1), "test": (240, 241, 250, 251, 260, 261)}
"""Of the full tier, by part."""
MORE_SEEDS: Mapping[str, Sequence[int]] = {"calibration": (), "test": (242, 252, 262)}
MORE_FOR = ("stall", "delayed", "healthy")
"""Families whose rates must be known best: a stall that is missed, and a run that is called one."""
SMALL_SEEDS: Mapping[str, Sequence[int]] = {"calibration": (0,), "test": (200,)}
"""Of the small tier: it runs with every change, so it has test seeds of its own."""

SMALL: Mapping[str, int] = {
    "stall-text": 150,
    "stall-markov": 150,
    "stall-text-8": 150,
    "stall-markov-adamw": 150,
    "stall-text-fused": 150,
    "delayed-markov": 0,
    "delayed-markov-warm": 0,
    "healthy-text-deepnorm": 200,
    "healthy-text-sgd": 200,
    "healthy-markov-peri": 200,
    "healthy-markov-deepnorm": 200,
    "healthy-markov-plain": 0,
    "healthy-digits-deepnorm": 200,
    "floor-pre": 200,
    "floor-post": 200,
    "blow_up-markov-ramp": 450,
    "blow_up-text-ramp": 450,
    "attention-markov-fast": 0,
    "spike-markov-10": 0,
    "spike-text-odd": 320,
    "data-text-shuffled": 240,
    "data-markov-tokenizer": 240,
    "schedule-drop-markov": 200,
    "schedule-larger-batch": 200,
}
"""Scenarios of the small tier, and the steps they are cut to; 0: not cut."""

Run = tuple[Scenario, int]
"""With its seed."""


def plan(tier: str, part: str) -> list[Run]:
    """Longest first, so that no worker is left with a long one at the end.

    ValueError: another tier or part.
    """
    if tier not in TIERS:
        raise ValueError(f"tier is {tier!r}; give one of {', '.join(TIERS)}")
    if part not in SEEDS:
        raise ValueError(f"seeds is {part!r}; give one of {', '.join(SEEDS)}")
    runs = _full(part) if tier == "full" else [(s, seed) for seed in SMALL_SEEDS[part] for s in small()]
    return sorted(runs, key=lambda run: -run[0].steps * run[0].shape.layers)


def _full(part: str) -> list[Run]:
    more = [(s, seed) for seed in MORE_SEEDS[part] for s in SCENARIOS if s.family in MORE_FOR]
    return [(s, seed) for seed in SEEDS[part] for s in SCENARIOS] + more


def small() -> tuple[Scenario, ...]:
    """A cut run has a name of its own: in a folder of recordings it is another than the whole one."""
    by_name = {scenario.name: scenario for scenario in SCENARIOS}
    return tuple(_cut(by_name[name], steps) for name, steps in SMALL.items())


def _cut(scenario: Scenario, steps: int) -> Scenario:
    return replace(scenario, name=f"{scenario.name}-{steps}", steps=steps) if steps else scenario
