"""Detectors that a user gave, looked at before the training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from difflib import get_close_matches

from stabmon.catalog import STATISTICS
from stabmon.detectors import Detector, default_detectors

_KEEP = "to keep the default ones as well, pass [*stabmon.detectors.default_detectors(), yours]"


def detectors_of(given: Iterable[Detector] | None) -> list[Detector]:
    """Those that judge; None: the default ones. ValueError: what is no detector, and what to do."""
    if given is None:
        return default_detectors()
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(f"detectors={_shown(given)}: must be a list of detectors; {_KEEP}")
    detectors = list(given)
    for detector in detectors:
        _check(detector)
    twice = [name for name, count in Counter(detector.name for detector in detectors).items() if count > 1]
    if twice:
        raise ValueError(f"detectors: {twice[0]!r} is there twice; give each a name of its own, or leave one out")
    return detectors


def _check(detector: object) -> None:
    name, needs = getattr(detector, "name", None), getattr(detector, "needs", None)
    able = all(callable(getattr(detector, method, None)) for method in ("score", "explain"))
    if isinstance(detector, type) or not (isinstance(name, str) and isinstance(needs, tuple | list) and needs and able):
        raise ValueError(
            f"detectors=[{_shown(detector)}]: must be objects with name, needs (statistics), score and explain; {_KEEP}"
        )
    unknown = next((need for need in needs if need not in STATISTICS), None)
    if unknown is not None:
        near = get_close_matches(str(unknown), STATISTICS, n=1)
        guess = f"; did you mean {near[0]!r}?" if near else "; stabmon.catalog.STATISTICS has all"
        raise ValueError(f"detectors: {name} needs {unknown!r}, which is no statistic{guess}")


def _shown(value: object) -> str:
    if isinstance(value, str):
        return repr(value)
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
