import subprocess
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import build
from tests.deploy.programs import program

CONFIG = build.HERE / "alertmanager" / "alertmanager.yaml"


def config() -> Any:
    return yaml.safe_load(CONFIG.read_text(encoding="utf-8"))


def amtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("amtool"), *words], capture_output=True, text=True, check=False)


def test_amtool_accepts_the_configuration_and_refuses_one_without_a_receiver(tmp_path: Path) -> None:
    assert amtool("check-config", CONFIG).returncode == 0
    broken = config()
    broken["route"]["receiver"] = "pager"
    (tmp_path / "broken.yaml").write_text(yaml.safe_dump(broken))
    assert amtool("check-config", tmp_path / "broken.yaml").returncode == 1


@pytest.mark.parametrize("rule", build.alerts(), ids=lambda rule: rule.name)
def test_every_alert_goes_where_its_severity_says(rule: build.Rule) -> None:
    """Of those that are gone for good no end is told."""
    once = rule.name in ("StabmonRunVanished", "StabmonRunFailed")
    receiver = "slack-once" if once else {"info": "nobody"}.get(rule.severity, "slack")
    labels = (f"alertname={rule.name}", f"severity={rule.severity}", "component=stabmon", "run=r1", "job=stabmon")
    routed = ("config", "routes", "test", f"--config.file={CONFIG}")
    assert amtool(*routed, f"--verify.receivers={receiver}", *labels).returncode == 0
    assert amtool(*routed, "--verify.receivers=other", *labels).returncode == 1


def test_criticals_wait_seconds_for_their_cause_and_warnings_together() -> None:
    waits = {tuple(route["matchers"])[1]: route.get("group_wait") for route in config()["route"]["routes"]}
    assert waits['severity="critical"'] == "5s"
    assert waits['alertname=~"StabmonRunVanished|StabmonRunFailed"'] == "5s"
    assert waits['severity="warning"'] == "5m"


def test_inhibition_names_alerts_that_there_are() -> None:
    known = {rule.name for rule in build.alerts()}
    matchers = chain.from_iterable(r["source_matchers"] + r["target_matchers"] for r in config()["inhibit_rules"])
    named = [m.split('"')[1].split("|") for m in matchers if m.startswith("alertname")]
    assert set(chain.from_iterable(named)) <= known
    assert {"StabmonNonfinite", "StabmonRunVanished", "StabmonCriticalAlert"} <= set(chain.from_iterable(named))
