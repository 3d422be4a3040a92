"""Families of one run: every sample has its run and rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from stabmon.records import Run

Samples = Mapping[tuple[str, ...], float]
"""Label values (those after run and rank) -> value."""


class Families:
    """Makes them, by name without `stabmon_`."""

    def __init__(self, run: Run) -> None:
        self._who = run.name, str(run.rank)

    def gauge(self, name: str, text: str, labels: Iterable[str], samples: Samples) -> Metric:
        return self._filled(GaugeMetricFamily(f"stabmon_{name}", text, labels=("run", "rank", *labels)), samples)

    def counter(self, name: str, text: str, labels: Iterable[str], samples: Samples) -> Metric:
        return self._filled(CounterMetricFamily(f"stabmon_{name}", text, labels=("run", "rank", *labels)), samples)

    def histogram(self, name: str, text: str, bounds: Sequence[float], counts: Iterable[int], total: float) -> Metric:
        """`counts`: of values up to each bound, and last of all values."""
        family = HistogramMetricFamily(f"stabmon_{name}", text, labels=("run", "rank"))
        names = [floatToGoString(bound) for bound in (*bounds, float("inf"))]  # type: ignore[no-untyped-call]
        family.add_metric(self._who, list(zip(names, counts, strict=True)), total)
        return family

    def _filled(self, family: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> Metric:
        for labels, value in samples.items():
            family.add_metric((*self._who, *labels), value)
        return family
