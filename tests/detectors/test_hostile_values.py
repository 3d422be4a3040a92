"""Whatever a run that breaks may hold, at any step, no detector fails, sets off a warning of numpy, or says NaN."""

import re
import warnings

import numpy as np
import pytest

from stabmon.catalog import STATISTICS
from stabmon.detectors import default_detectors
from stabmon.detectors.alarm import Alarm
from stabmon.records import BATCH_SIZE, RESUME, Alert, Event, Layout, Site, Snapshot

STORED = [name for name, row in STATISTICS.items() if row.formula is None]
BAD = np.array([np.nan, np.inf, -np.inf, 0, -1, 1e38, 3.4e38, -3e38, 1e-38, 1e-45, 1], np.float32)
PLACEMENTS = ("pre", "post", "sandwich", "inner")


def layout(layers: int, missing: float, rng: np.random.Generator) -> Layout:
    """Every stored statistic but for a share of them."""
    columns, sites = [], {}
    for name in STORED:
        if rng.random() < missing:
            continue
        scope = STATISTICS[name].scope
        for i in range(1 if scope == "model" else layers):
            placement = PLACEMENTS[i % 4] if scope == "norm" else ""
            site = Site("") if scope == "model" else Site(f"{scope}.{i}", i, "block", placement)
            columns.append((name, site.name))
            sites[site.name] = site
    return Layout(tuple(columns), tuple(sites.values()))


def hostile_run(seed: int, layers: tuple[int, ...], steps: int = 100) -> list[tuple[Snapshot, list[Event]]]:
    """A layout that changes in mid-run, steps that jump and repeat, trends, and bad values at a rate of its own."""
    rng = np.random.default_rng(seed)
    rate, missing = rng.choice([0.003, 0.03, 0.3, 1.0]), rng.choice([0.0, 0.3])
    found, step = [], 0
    for i in range(steps):
        if i in (0, steps // 2):
            shape = layout(int(rng.choice(layers)), missing, rng)
            level, trend = rng.normal(0, 0.3, len(shape.columns)), rng.normal(0, 0.05, len(shape.columns))
        step += int(rng.choice([0, 1, 10, 1000], p=[0.05, 0.8, 0.1, 0.05]))
        values = np.exp(level + trend * i + rng.normal(0, 0.1, len(level))).astype(np.float32)
        bad = rng.random(len(values)) < rate
        values[bad] = rng.choice(BAD, bad.sum())
        values[rng.random(len(values)) < rng.choice([0.0, 0.9])] = np.nan
        kinds = [kind for kind in (RESUME, BATCH_SIZE) if rng.random() < 0.02]
        found.append((Snapshot(step, 1e9 + i, values, shape), [Event(step, 1e9 + i, kind, {}) for kind in kinds]))
    return found


@pytest.mark.parametrize(
    ("seed", "layers", "steps"), [*((seed, (0, 1, 3, 12), 100) for seed in range(12)), (0, (200,), 30)]
)
def test_no_value_at_any_step_makes_a_detector_fail_or_say_nan(seed: int, layers: tuple[int, ...], steps: int) -> None:
    alerts: list[Alert] = []
    alarms = [Alarm(detector, "run") for detector in default_detectors()]
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # as in the pipeline
        warnings.simplefilter("error")
        for snapshot, events in hostile_run(seed, layers, steps):
            for alarm in alarms:
                for event in events:
                    alarm.notice(event)
                alerts += alarm.judge(snapshot)
    for alert in alerts:
        assert np.isfinite(alert.score)
        assert alert.detector == "nonfinite" or not re.search(r"\b(nan|inf)\b", alert.message), alert.message
