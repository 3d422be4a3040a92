"""What a detector reads is what it says it needs: whoever leaves out statistics, or detectors, goes by that."""

from collections.abc import Iterable

import numpy as np
import pytest

from stabmon.catalog import STATISTICS, Array
from stabmon.detectors import Detector
from stabmon.records import Finding, Layout, Site, Snapshot
from tests.detectors.series import alerts_of, make_series, placed
from tests.detectors.test_conformance import Make, every_detector, noisy_run, sick_loss, sick_run

ASKED: set[str] = set()
"""By name, of what is recorded below."""


class _Asked(Snapshot):
    """Notes each statistic whose values are asked for."""

    def __getitem__(self, statistic: str) -> Array:
        ASKED.add(statistic)
        return super().__getitem__(statistic)

    def scalar(self, statistic: str) -> float:
        ASKED.add(statistic)
        return super().scalar(statistic)


class _Placed(Layout):
    """Notes each statistic whose sites are: where norms sit is read off the sites of a norm's."""

    def slots(self, statistic: str) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        ASKED.add(statistic)
        return super().slots(statistic)

    def sites_of(self, statistic: str) -> tuple[Site, ...]:
        ASKED.add(statistic)
        return super().sites_of(statistic)


def stored(statistics: Iterable[str]) -> set[str]:
    """Those that they follow from: who needs a ratio may read its parts."""
    return {part for name in statistics for part in (stored(STATISTICS[name].of) if STATISTICS[name].of else {name})}


def asked_by(detector: Detector, run: list[Snapshot]) -> set[str]:
    """Stored statistics."""
    layout = _Placed(run[0].layout.columns, run[0].layout.sites)
    noted: list[Snapshot] = [_Asked(s.step, s.time, s.values, layout) for s in run]
    ASKED.clear()
    alerts_of(detector, noted)
    return stored(ASKED)


@every_detector
def test_it_reads_no_statistic_that_it_does_not_name_as_a_need(make: Make) -> None:
    runs = [sick_run(), sick_run(stalled=False), sick_loss(), make_series(noisy_run(200))]
    runs += [placed(run, placement) for run in runs[:2] for placement in ("pre", "post")]
    asked = set().union(*(asked_by(make(), run) for run in runs))
    assert asked - stored(make().needs) == set()


class _Secret:
    """Reads the learning rate, and does not say so."""

    name = "secret"
    needs: tuple[str, ...] = ("update_ratio",)

    def score(self, snapshot: Snapshot) -> Array:
        snapshot.scalar("learning_rate")
        return 0 * snapshot["update_ratio"]

    def explain(self, site: int) -> Finding:
        raise AssertionError("no score is that high")


def test_one_that_reads_more_is_found() -> None:
    run = make_series({name: np.full(3, 0.1) for name in ("learning_rate", "intended_update_sq", "weight_sq")})
    assert asked_by(_Secret(), run) - stored(_Secret.needs) == {"learning_rate"}


@pytest.mark.parametrize(
    ("asked", "parts"), [("update_ratio", {"intended_update_sq", "weight_sq"}), ("loss", {"loss"})]
)
def test_a_ratio_is_asked_for_with_its_parts(asked: str, parts: set[str]) -> None:
    assert stored([asked]) == parts
