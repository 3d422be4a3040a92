"""Every query of every dashboard against a real Prometheus that scrapes real trainings at level deep."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.dashboards.given import answers, choices, frames_of
from tests.dashboards.live import LEARNING, STALLED, Prometheus, chosen, scraped_trainings
from tests.dashboards.reading import UIDS, annotations, of_panel, panels


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with scraped_trainings(tmp_path_factory.mktemp("live")) as found:
        yield found


@pytest.mark.parametrize("uid", UIDS)
def test_every_query_has_an_answer_and_every_legend_its_labels(uid: str, prometheus: Prometheus) -> None:
    several, now = choices(prometheus, uid), time.time()
    empty = []
    for panel in panels(uid):
        for query in of_panel(uid, panel):
            found = [one for values in several for one in answers(prometheus, query, values, now)]
            labels = {label for one in found for label in one["metric"]}
            if not found or not set(re.findall(r"{{(\w+)}}", query.legend)) <= labels:
                empty.append(f"{query} has {labels}")
    assert empty == []


@pytest.mark.parametrize("uid", UIDS)
def test_annotations_tell_of_the_alert_and_the_rule_that_fires(uid: str, prometheus: Prometheus) -> None:
    values, now = choices(prometheus, uid)[0], time.time()
    alerts, rules, restarts = (answers(prometheus, query, values, now) for query in annotations(uid))
    assert STALLED in {one["metric"]["run"] for one in alerts}
    assert STALLED in {one["metric"]["run"] for one in rules}
    assert restarts == []


@pytest.mark.parametrize("uid", UIDS)
def test_every_panel_has_rows_after_its_transformations(uid: str, prometheus: Prometheus) -> None:
    several, now = choices(prometheus, uid), time.time()
    for panel in panels(uid):
        given = [frames for values in several if (frames := frames_of(prometheus, panel, values, now))]
        rows = [len(column) for frames in given for frame in frames for column in frame.values()]
        assert rows, panel["title"]
        assert min(rows) > 0, panel["title"]
        if panel["type"] == "trend":
            steps = given[0][0]["step"]
            assert steps == sorted(set(steps)), "the panel refuses an x that does not ascend"
            assert len(steps) > 5


def test_the_choice_of_a_run_begins_with_the_newest(prometheus: Prometheus) -> None:
    assert chosen(prometheus, "stabmon-run") == {"job": "(stabmon)", "run": LEARNING}
    assert chosen(prometheus, "stabmon-layer")["layer"] == "000"
