"""Writes the generated files of this folder: `python -m deploy.build`, from the root of the repository.

`--runbooks` and `--dashboards` put your own addresses into the alerts; `--into` writes another folder.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from deploy.rules import judged, monitor, runs, values
from deploy.rules.recorded import RECORDED
from deploy.rules.rule import Rule, Timing

HERE = Path(__file__).parent
BOARDS = HERE.parent / "dashboards"
RUNBOOKS = "http://127.0.0.1:7466/runbook"
"""A training, or `stabmon serve`, on the machine of whoever reads the alert."""
DASHBOARDS = "http://127.0.0.1:3000"
USUAL = Timing()
HEAD = "# Made by `python -m deploy.build`; its tables are in deploy/rules.\n"


def alerts(timing: Timing = USUAL) -> list[Rule]:
    """All of them, worst first."""
    return [*judged.rules(timing), *values.rules(timing), *runs.rules(timing), *monitor.rules(timing)]


def groups(timing: Timing, runbooks: str = RUNBOOKS, dashboards: str = DASHBOARDS) -> list[dict[str, Any]]:
    """The rule groups, as Prometheus and the operator's PrometheusRule take them."""
    recorded = [{"record": name, "expr": expr} for name, expr in RECORDED.items()]
    written = [_written(rule, runbooks.rstrip("/"), dashboards.rstrip("/")) for rule in alerts(timing)]
    return [{"name": "stabmon.recorded", "rules": recorded}, {"name": "stabmon.alerts", "rules": written}]


def files(timing: Timing = USUAL, runbooks: str = RUNBOOKS, dashboards: str = DASHBOARDS) -> dict[str, str]:
    """Name, below this folder -> content."""
    made = groups(timing, runbooks, dashboards)
    labels = {"app.kubernetes.io/name": "stabmon"}
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "stabmon", "labels": labels},
        "spec": {"groups": made},
    }
    return {
        "prometheus/rules.yaml": text({"groups": made}),
        "kubernetes/prometheusrule.yaml": text(resource),
        "kubernetes/dashboards.yaml": HEAD + "---\n".join(map(_config_map, sorted(BOARDS.glob("*.json")))),
    }


def text(content: object) -> str:
    """YAML as people write it: longer texts as blocks, keys in our order."""
    return HEAD + yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


def _written(rule: Rule, runbooks: str, dashboards: str) -> dict[str, Any]:
    dashboard = f"{dashboards}/d/{rule.dashboard}/{rule.dashboard}?var-run={{{{ $labels.run | urlquery }}}}"
    page = f"{rule.page}#{rule.name.lower()}" if rule.page == "alerts" else rule.page
    lasting = {"for": rule.hold, "keep_firing_for": rule.keep}
    return {
        "alert": rule.name,
        "expr": rule.expr,
        **{name: value for name, value in lasting.items() if value != "0s"},
        "labels": {"severity": rule.severity, "component": "stabmon"},
        "annotations": {
            "summary": rule.summary,
            "description": rule.description,
            "runbook_url": f"{runbooks}/{page}",
            "dashboard_url": dashboard,
        },
    }


def _config_map(board: Path) -> str:
    """For the sidecar of Grafana's chart, which takes what has this label."""
    labels = {"app.kubernetes.io/name": "stabmon", "grafana_dashboard": "1"}
    content = json.dumps(json.loads(board.read_text(encoding="utf-8")), separators=(",", ":"))
    resource = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": board.stem, "labels": labels},
        "data": {board.name: content},
    }
    return text(resource).removeprefix(HEAD)


class _Dumper(yaml.SafeDumper):
    pass


def _string(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _string)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runbooks", default=RUNBOOKS, help="where the runbooks are served, such as %(default)s")
    parser.add_argument("--dashboards", default=DASHBOARDS, help="your Grafana, such as %(default)s")
    parser.add_argument("--scrape-seconds", type=int, default=15, help="your scrape interval: windows follow it")
    parser.add_argument("--hang-seconds", type=int, default=300, help="no step for so long is a hang")
    parser.add_argument("--into", type=Path, default=HERE, help="folder to write")
    wanted = parser.parse_args(given)
    timing = Timing(wanted.scrape_seconds, wanted.hang_seconds)
    for name, content in files(timing, wanted.runbooks, wanted.dashboards).items():
        path = wanted.into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
