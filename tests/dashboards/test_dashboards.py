"""The committed dashboards: made by the generator, valid to Grafana's types, and by the rules of dashboard-linter."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dashboards.build import BOARDS, texts
from tests.dashboards.reading import (
    FOLDER,
    UIDS,
    Query,
    annotations,
    load,
    panels,
    queries,
    selectors,
    used_variables,
    variables,
)

SCHEMA = Path(__file__).parent / "schema"
ALL_QUERIES = [query for uid in UIDS for query in (*queries(uid), *annotations(uid))]
OTHERS = {"ALERTS", "up", "scrape_duration_seconds", "scrape_samples_scraped"}
"""Series that Prometheus makes itself; they have no `run` or no `job` of ours."""


@cache
def listed(name: str) -> Any:
    return json.loads((SCHEMA / f"{name}.json").read_text(encoding="utf-8"))


def faults(dashboard: dict[str, Any]) -> list[str]:
    """What Grafana's types say against it. A panel is held against the type of its kind: the errors of all kinds
    would be told otherwise."""
    schema = listed("grafana.schema")
    kinds = {kind["properties"]["type"]["const"]: kind for kind in map(_resolved, _kinds(schema))}
    found = [f"no such kind: {p['type']}" for p in dashboard["panels"] if p["type"] not in kinds]
    for panel in (p for p in dashboard["panels"] if p["type"] in kinds):
        one = jsonschema.Draft7Validator({**kinds[panel["type"]], "definitions": schema["definitions"]})
        found += [f"{panel['title']} {list(e.absolute_path)}: {e.message[:200]}" for e in one.iter_errors(panel)]
    around = jsonschema.Draft7Validator(schema).iter_errors({**dashboard, "panels": []})
    return found + [f"{list(e.absolute_path)}: {e.message[:200]}" for e in around]


def _kinds(schema: dict[str, Any]) -> list[dict[str, Any]]:
    kinds: list[dict[str, Any]] = schema["properties"]["panels"]["items"]["anyOf"]
    return kinds


def _resolved(node: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (
        listed("grafana.schema")["definitions"][node["$ref"].split("/")[-1]] if "$ref" in node else node
    )
    return found


def test_the_files_are_what_the_generator_writes_and_no_others() -> None:
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")} == texts()
    assert tuple(board.UID for board in BOARDS) == UIDS


@pytest.mark.parametrize("uid", UIDS)
def test_grafanas_types_take_it(uid: str) -> None:
    assert faults(load(uid)) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"type": "trend", "options": {"xFeild": "step"}}, "xFeild"),
        ({"type": "tabel"}, "no such kind: tabel"),
        ({"gridPos": {"x": 0, "y": 0, "w": "12", "h": 8}}, "'12' is not of type 'number'"),
        ({"fieldConfig": {"defaults": {"custom": {"drawStyle": "lines"}}, "overrides": []}}, "drawStyle"),
    ],
)
def test_grafanas_types_refuse_slips(change: dict[str, Any], told: str) -> None:
    dashboard = load("stabmon-run")
    curves = next(i for i, panel in enumerate(dashboard["panels"]) if panel["type"] == "timeseries")
    dashboard["panels"][curves] |= change
    assert told in "\n".join(faults(dashboard))


@pytest.mark.parametrize("uid", UIDS)
def test_units_and_transformations_are_known_to_grafana(uid: str) -> None:
    """An unknown unit is shown as a suffix, an unknown transformation is left out: both in silence."""
    text = json.dumps(load(uid))
    units = set(re.findall(r'"unit": "([^"]*)"', text)) | set(re.findall(r'"id": "unit", "value": "([^"]*)"', text))
    assert units - set(listed("units")) == set()
    used = {t["id"] for panel in panels(uid) for t in panel["transformations"]}
    assert used - set(listed("transformations")) == set()


@pytest.mark.parametrize("uid", UIDS)
def test_panels_have_their_own_id_and_place(uid: str) -> None:
    everything = load(uid)["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    places = [(p["gridPos"], p["title"]) for p in everything]
    assert [title for at, title in places if at["x"] < 0 or at["x"] + at["w"] > 24] == []
    assert [(a[1], b[1]) for a, b in combinations(places, 2) if _overlap(a[0], b[0])] == []
    for panel in panels(uid):
        references = [target["refId"] for target in panel["targets"]]
        assert references, panel["title"]
        assert len(set(references)) == len(references)


def _overlap(a: dict[str, int], b: dict[str, int]) -> bool:
    return all(a[at] < b[at] + b[size] and b[at] < a[at] + a[size] for at, size in (("x", "w"), ("y", "h")))


@pytest.mark.parametrize("uid", UIDS)
def test_what_dashboard_linter_asks_of_a_dashboard(uid: str) -> None:
    dashboard = load(uid)
    assert (dashboard["uid"], dashboard["editable"], dashboard["schemaVersion"]) == (uid, False, 39)
    assert len(uid) <= 40
    source, *others = variables(uid)
    assert (source["type"], source["name"], source["query"]) == ("datasource", "datasource", "prometheus")
    assert others[0]["name"] == "job"
    for variable in others:
        assert variable["refresh"] == 2, "the choice follows the time range"
        assert variable["datasource"]["uid"] == "${datasource}"
        assert variable["label"]
        assert re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
    known = {variable["name"] for variable in variables(uid)}
    assert used_variables(dashboard) - known == set()
    for link in dashboard["links"]:
        assert (link["includeVars"], link["keepTime"]) == (True, True)
        assert link["url"].removeprefix("/d/") in {*UIDS, ""}


@pytest.mark.parametrize("uid", UIDS)
def test_what_dashboard_linter_asks_of_panels(uid: str) -> None:
    for panel in panels(uid):
        title = panel["title"]
        assert title, uid
        assert panel["fieldConfig"]["defaults"]["unit"], title
        for holder in (panel, *panel["targets"]):
            assert holder["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, title
        names = {s.name for q in panel["targets"] for s in selectors(q["expr"])}
        text, _, told = re.split(r" (Metrics?: )", panel["description"])
        assert text.endswith("."), title
        assert set(re.findall(r"`(\w+)`", told)) == names, title


@pytest.mark.parametrize("query", ALL_QUERIES, ids=str)
def test_what_dashboard_linter_asks_of_queries(query: Query) -> None:
    for found in selectors(query.expr):
        if found.name in OTHERS:
            assert found.labels & {"job", "alertname"}
        else:
            assert {"job", "run"} <= found.labels
        assert found.over in ("", "$__rate_interval", "$__range")
        if found.name.endswith(("_total", "_bucket", "_sum", "_count")):
            assert found.under[-1] in ("rate", "increase"), f"{found.name} only ever grows"
        if found.under[-1:] in (("rate",), ("increase",)):
            assert found.name.endswith(("_total", "_bucket", "_sum", "_count")), f"{found.name} is a gauge"


def test_heatmaps_can_be_sorted_by_layer() -> None:
    """Grafana sorts rows by number if all names are numbers, and takes format `heatmap` for a histogram."""
    found = [(uid, panel) for uid in UIDS for panel in panels(uid) if panel["type"] == "heatmap"]
    assert len(found) >= 6
    for _, panel in found:
        (target,) = panel["targets"]
        assert (target["format"], target["legendFormat"], panel["options"]["calculate"]) == (
            "time_series",
            "{{layer}}",
            False,
        )
        assert 'layer!=""' in target["expr"]
