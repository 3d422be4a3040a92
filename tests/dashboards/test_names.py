"""The names in the dashboards are those that are served, both ways."""

from __future__ import annotations

from stabmon.catalog import PEAKS, STATISTICS
from tests.dashboards.reading import UIDS, annotations, queries, selectors

USED = {s.name for uid in UIDS for query in (*queries(uid), *annotations(uid)) for s in selectors(query.expr)}


def test_every_exported_statistic_is_on_a_dashboard() -> None:
    exported = {row.metric for row in STATISTICS.values() if row.exported}
    assert exported - USED == set()


def test_every_maximum_of_the_last_minute_is_on_a_dashboard() -> None:
    assert {f"{STATISTICS[name].metric}_window_max" for name in PEAKS} - USED == set()
