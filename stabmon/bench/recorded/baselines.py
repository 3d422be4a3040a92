"""The rules that are judged beside the detectors on recorded runs."""

from __future__ import annotations

from stabmon.bench.rules import Cusum, LossNotDecreasing, Patience, Rule, SixSigma, ZClip


def baselines() -> dict[str, Rule]:
    """A fresh one of each, by name."""
    return {
        "patience-100": Patience(),
        "6 sigma/128": SixSigma(),
        "ZClip z>2.5": ZClip(),
        "LossNotDecreasing(10)": LossNotDecreasing(),
        "CUSUM": Cusum(limit=5),
    }
