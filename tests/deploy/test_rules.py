import subprocess
from math import exp
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import build
from deploy.rules.remedies import REMEDIES
from deploy.rules.rule import Timing
from stabmon.detectors import default_detectors
from stabmon.detectors.thresholds import blowup, loss, updates
from stabmon.records import RUNBOOKS
from tests.deploy.cases import CASES, Case
from tests.deploy.programs import program

RULES = build.HERE / "prometheus" / "rules.yaml"


def rules() -> dict[str, dict[str, Any]]:
    _, alerts = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for rule in alerts["rules"]}


@pytest.mark.parametrize("name", build.files())
def test_what_is_generated_is_what_is_there(name: str) -> None:
    assert (build.HERE / name).read_text(encoding="utf-8") == build.files()[name], "run: python -m deploy.build"


def test_promtool_finds_nothing_to_say_of_the_rules_and_something_of_a_double(
    tmp_path: Path,
) -> None:
    check = [program("promtool"), "check", "rules", "--lint=all", "--lint-fatal"]
    done = subprocess.run([*check, RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    content = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    content["groups"][1]["rules"] *= 2
    (tmp_path / "double.yaml").write_text(yaml.safe_dump(content))
    assert subprocess.run([*check, tmp_path / "double.yaml"], capture_output=True, check=False).returncode == 3


def test_every_alert_is_quiet_then_fires_with_its_words_then_is_over(tmp_path: Path) -> None:
    done = promtool_says(CASES, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for alert in rules():
        cases = [case for case in CASES if case.alert == alert]
        assert any([on for _, on in case.at][0 :: len(case.at) - 1] == [False, False] for case in cases if case.summary)


def test_promtool_would_have_noticed_other_words(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.alert == "StabmonRunStalled")
    wrong = Case(case.alert, case.series, case.at, case.summary + "!", case.description)
    assert promtool_says([wrong], tmp_path).returncode == 1


def promtool_says(cases: list[Case], folder: Path) -> subprocess.CompletedProcess[str]:
    """A file for each alert with that rule alone: promtool evaluates every rule of a file at every step."""
    files = []
    for alert in dict.fromkeys(case.alert for case in cases):
        group = {"name": alert, "rules": [rules()[alert]]}
        (folder / f"{alert}.rules.yaml").write_text(yaml.safe_dump({"groups": [group]}))
        tests = [_as_promtool_takes_it(case) for case in cases if case.alert == alert]
        content = {"rule_files": [f"{alert}.rules.yaml"], "evaluation_interval": "15s", "tests": tests}
        files.append(folder / f"{alert}.tests.yaml")
        files[-1].write_text(yaml.safe_dump(content))
    return subprocess.run([program("promtool"), "test", "rules", *files], capture_output=True, text=True, check=False)


def _as_promtool_takes_it(case: Case) -> dict[str, Any]:
    rule, first = rules()[case.alert], next((at for at, on in case.at if on), "")
    # The texts tell the step and the loss of the moment, so they are looked at once.
    told = {"summary": case.summary, "description": case.description, **_links(case)}
    alert = {"exp_labels": {**rule["labels"], "job": "stabmon", "run": "r1", **case.labels}, "exp_annotations": told}
    looks = [{"eval_time": at, "alertname": case.alert, "exp_alerts": [alert]} for at, _ in case.at if at == first]
    looks += [{"eval_time": at, "alertname": case.alert, "exp_alerts": []} for at, on in case.at if not on]
    firing = f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}})'
    one = [{"labels": "{}", "value": 1}]
    counted = [{"expr": firing, "eval_time": at, "exp_samples": one} for at, on in case.at if on]
    values = [{"series": name, "values": numbers} for name, numbers in case.series.items()]
    return {"interval": "15s", "input_series": values, "alert_rule_test": looks, "promql_expr_test": counted}


def _links(case: Case) -> dict[str, str]:
    rule = rules()[case.alert]["annotations"]
    page = rule["runbook_url"].replace("{{ $labels.detector }}", case.labels.get("detector", ""))
    return {"runbook_url": page, "dashboard_url": rule["dashboard_url"].replace("{{ $labels.run | urlquery }}", "r1")}


def test_every_detector_has_a_remedy_and_every_alert_a_runbook_and_a_dashboard() -> None:
    assert REMEDIES.keys() == {detector.name for detector in default_detectors()}
    for alert in rules().values():
        page = alert["annotations"]["runbook_url"].removeprefix(f"{build.RUNBOOKS}/")
        name, _, heading = page.partition("#")
        if name != "{{ $labels.detector }}":
            text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8").lower()
            assert not heading or f"\n## {heading}\n" in text, page


def test_thresholds_that_are_a_detectors_own_are_read_from_its_table() -> None:
    assert f"> {exp(updates.JUMP_ALONE):g}\n" in rules()["StabmonGradSpike"]["expr"]
    assert f"^ {blowup.EXPONENT:g}\n" in rules()["StabmonNormInputGrowth"]["expr"]
    assert f"> {updates.FIRST_CHANGE}\n" in rules()["StabmonUpdateTooLarge"]["expr"]
    assert f"> {exp(loss.DIVERGED_EARLY):.3g} *" in rules()["StabmonLossDiverging"]["expr"]


def test_windows_follow_the_scrape_interval_and_addresses_what_is_given() -> None:
    _, alerts = build.groups(Timing(60), "https://wiki.example/stabmon/", "https://grafana.example")
    critical = alerts["rules"][0]
    assert "[8m]" in critical["expr"]
    assert critical["keep_firing_for"] == "20m"
    assert critical["annotations"]["runbook_url"] == "https://wiki.example/stabmon/{{ $labels.detector }}"
    assert critical["annotations"]["dashboard_url"].startswith("https://grafana.example/d/stabmon-run/")
