"""What Grafana reads from files: data source, dashboards, and the rules that it evaluates itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from deploy.build import alerts
from deploy.grafana.build import RULES, content, grafanas
from tests.dashboards.reading import ROOT, UIDS

FOLDER = ROOT / "deploy" / "grafana"
PROVISIONING = FOLDER / "provisioning"


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert found["apiVersion"] == 1
    return found


def rules() -> list[dict[str, Any]]:
    (group,) = load(RULES)["groups"]
    assert (group["orgId"], group["name"], group["folder"], group["interval"]) == (1, "stabmon", "stabmon", "15s")
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_the_rules_are_those_of_prometheus() -> None:
    assert RULES.read_text(encoding="utf-8") == content()
    assert [rule["title"] for rule in rules()] == [rule.name for rule in alerts()]
    assert [rule["for"] for rule in rules()] == [rule.hold for rule in alerts()]
    assert [rule["labels"]["severity"] for rule in rules()] == [rule.severity for rule in alerts()]
    assert [rule["data"][0]["model"]["expr"] for rule in rules()] == [rule.expr for rule in alerts()]


def test_each_rule_is_whole() -> None:
    (source,) = load(PROVISIONING / "datasources" / "stabmon.yaml")["datasources"]
    uids = [rule["uid"] for rule in rules()]
    assert len(set(uids)) == len(uids)
    assert max(map(len, uids)) <= 40
    for rule in rules():
        *asked, condition = rule["data"]
        for query in asked:
            assert query["datasourceUid"] == query["model"]["datasource"]["uid"] == source["uid"]
            assert query["refId"] == query["model"]["refId"]
            promql_parser.parse(query["model"]["expr"])
        assert (condition["refId"], condition["datasourceUid"]) == (rule["condition"], "__expr__")
        assert condition["model"]["expression"] in {query["refId"] for query in asked}
        assert re.search(r"/d/([\w-]+)/", rule["annotations"]["dashboard_url"])[1] in UIDS  # type: ignore[index]


def test_the_texts_have_nothing_that_grafana_does_not_know() -> None:
    """It puts the environment in for `$name`, has no `query`, and knows the values of the rule's own queries alone."""
    for rule in rules():
        refs = {query["refId"] for query in rule["data"]}
        for text in rule["annotations"].values():
            assert "$" not in text
            assert "| query }}" not in text
            assert set(re.findall(r"\.Values\.(\w+)", text)) <= refs


def test_the_texts_are_templates_that_can_be_read(tmp_path: Path) -> None:
    """By promtool: both are Go's templates. `.Values` is Grafana's, but a template is only read here."""
    promtool = shutil.which("promtool")
    if promtool is None:
        assert os.environ.get("CI") != "true", "promtool is missing: install the Debian package prometheus"
        pytest.skip("promtool is not installed (Debian package prometheus)")

    def check(texts: list[dict[str, str]]) -> int:
        made = [{"alert": f"a{i}", "expr": "vector(1)", "annotations": one} for i, one in enumerate(texts)]
        path = tmp_path / "rules.yaml"
        path.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": made}]}))
        return subprocess.run([promtool, "check", "rules", path], capture_output=True, check=False).returncode

    assert check([rule["annotations"] for rule in rules()]) == 0
    assert check([{"summary": "{{ if }}"}]) != 0


def test_a_query_in_a_text_goes_with_all_that_it_holds() -> None:
    inner = '{{ with printf "up" | query }}a{{ range . }}{{ if eq .Value 1.0 }}b{{ end }}{{ end }}c{{ end }}'
    assert grafanas(f"{{{{ $labels.run }}}} is{inner} at {{{{ $value }}}}{inner}.") == (
        "{{ .Labels.run }} is at {{ .Values.A.Value }}."
    )


def test_the_step_of_the_run_is_in_every_summary_that_has_it_in_prometheus() -> None:
    had = [rule.name for rule in alerts() if "stabmon_step" in rule.summary]
    has = [rule["title"] for rule in rules() if "at step {{ .Values.STEP.Value" in rule["annotations"]["summary"]]
    assert had == has
    assert len(had) > 10


def test_slack_gets_its_address_from_the_environment_and_the_policies_are_an_example_only() -> None:
    slack = load(PROVISIONING / "alerting" / "slack.yaml")
    (point,) = slack["contactPoints"]
    (receiver,) = point["receivers"]
    assert receiver["settings"]["url"] == "${STABMON_SLACK}"
    defined = set(re.findall(r'define "([\w.]+)"', slack["templates"][0]["template"]))
    used = set(re.findall(r'template "([\w.]+)"', str(slack)))
    assert used <= defined
    assert "$" not in slack["templates"][0]["template"]
    (policy,) = load(FOLDER / "policies.example.yaml")["policies"]
    assert {policy["receiver"], *(route["receiver"] for route in policy["routes"])} == {point["name"]}
    assert not [path for path in PROVISIONING.rglob("*.yaml") if "policies" in load(path)]


def test_the_dashboards_are_read_from_a_folder_of_their_own() -> None:
    (provider,) = load(PROVISIONING / "dashboards" / "stabmon.yaml")["providers"]
    assert (provider["type"], provider["allowUiUpdates"], provider["folder"]) == ("file", False, "stabmon")
