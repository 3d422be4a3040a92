"""Every query of every dashboard against a real Prometheus that scrapes real trainings at level deep."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dashboards.live import LEARNING, STALLED, Prometheus, chosen, put_in, scraped_trainings
from tests.dashboards.reading import UIDS, Query, annotations, of_panel, panels

SECONDS = 60.0


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with scraped_trainings(tmp_path_factory.mktemp("live")) as found:
        yield found


def answers(prometheus: Prometheus, query: Query, values: dict[str, str], now: float) -> list[dict[str, Any]]:
    expr = put_in(query.expr, values, SECONDS)
    return prometheus.instant(expr, now) if query.instant else prometheus.range(expr, now - SECONDS, now, 1.0)


def values_of(prometheus: Prometheus, uid: str) -> dict[str, str]:
    """As Grafana chooses, but for the run that stalls, on two ranks, and its layer that has experts as well."""
    several = uid in ("stabmon-runs", "stabmon-compare", "stabmon-exporter")
    own = {} if several else {"run": STALLED, **({"layer": "003"} if uid == "stabmon-layer" else {})}
    return chosen(prometheus, uid) | own


@pytest.mark.parametrize("uid", UIDS)
def test_every_query_has_an_answer_and_every_legend_its_labels(
    uid: str, prometheus: Prometheus, record_property: Any
) -> None:
    values, now = values_of(prometheus, uid), time.time()
    for panel in panels(uid):
        for query in of_panel(uid, panel):
            found = answers(prometheus, query, values, now)
            record_property(f"{uid} / {query.panel} / {query.legend}", len(found))
            assert found, f"nothing for {query}"
            labels = set().union(*(one["metric"] for one in found))
            assert set(re.findall(r"{{(\w+)}}", query.legend)) <= labels, query


@pytest.mark.parametrize("uid", UIDS)
def test_annotations_tell_of_the_stall_and_the_rule_that_fires(uid: str, prometheus: Prometheus) -> None:
    values, now = values_of(prometheus, uid), time.time()
    alerts, rules, restarts = (answers(prometheus, query, values, now) for query in annotations(uid))
    assert "context_stall" in {one["metric"]["detector"] for one in alerts}
    assert {one["metric"]["run"] for one in rules} == {STALLED}
    assert restarts == []


def test_the_choice_of_a_run_begins_with_the_newest(prometheus: Prometheus) -> None:
    assert chosen(prometheus, "stabmon-run") == {"job": "(stabmon)", "run": LEARNING}
    assert chosen(prometheus, "stabmon-layer")["layer"] == "000"
