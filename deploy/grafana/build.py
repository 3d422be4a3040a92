"""Writes Prometheus' alert rules as rules that Grafana evaluates itself: `python -m deploy.grafana.build`.

Two things differ. Grafana's templates have no `query`: step and loss come from queries of the rule's own, the worst
layers are on the dashboard. And Grafana takes `$name` in a provisioning file for a variable of the environment, in
some versions with `$$` as the way out: the texts have no dollar sign at all.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from deploy.build import DASHBOARDS, RUNBOOKS, USUAL, alerts, groups, text
from deploy.rules.remedies import OTHER, REMEDIES, choice
from deploy.rules.rule import LOSS, STEP, Rule, chosen_layers, latest

RULES = Path(__file__).parent / "provisioning" / "alerting" / "rules.yaml"
SOURCE = "stabmon-prometheus"
_MADE = "# Made by `python -m deploy.grafana.build` from the rules for Prometheus.\n"
_LOOK_BACK_SECONDS = 3600
_BESIDE = {"STEP": "stabmon_step", "LOSS": "stabmon_loss"}
"""Queries whose values stand in the texts."""
_TAG = re.compile(r"{{-?\s*(.*?)\s*-?}}", re.DOTALL)


def rules() -> list[dict[str, Any]]:
    """As Grafana's file provisioning takes them."""
    _, written = groups(USUAL, RUNBOOKS, DASHBOARDS)
    return [_rule(rule, one) for rule, one in zip(alerts(), written["rules"], strict=True)]


def _rule(rule: Rule, written: dict[str, Any]) -> dict[str, Any]:
    """`FIRES` is a number wherever the alert's own value, `A`, is there, be it NaN."""
    told = {"summary": rule.summary, "description": rule.description}
    beside = {name: f"max by (job, run) (last_over_time({metric}[15m]))" for name, metric in _BESIDE.items()}
    asked = {"A": rule.expr, "FIRES": f"timestamp(\n{rule.expr}\n)", **beside}
    return {
        "uid": rule.name.lower(),
        "title": rule.name,
        "condition": "CONDITION",
        "data": [*(_asked(name, expr) for name, expr in asked.items()), _condition()],
        "noDataState": "OK",
        "execErrState": "Error",
        "for": rule.hold,
        "keepFiringFor": rule.keep,
        "labels": written["labels"],
        "annotations": {name: grafanas(value) for name, value in {**written["annotations"], **told}.items()},
    }


def _asked(name: str, expr: str) -> dict[str, Any]:
    model: dict[str, Any] = {"refId": name, "expr": expr, "instant": True, "range": False}
    model["datasource"] = {"type": "prometheus", "uid": SOURCE}
    span = {"from": _LOOK_BACK_SECONDS, "to": 0}
    return {"refId": name, "relativeTimeRange": span, "datasourceUid": SOURCE, "model": model}


def _condition() -> dict[str, Any]:
    evaluator = {"evaluator": {"type": "gt", "params": [0]}}
    model: dict[str, Any] = {
        "refId": "CONDITION",
        "type": "threshold",
        "expression": "FIRES",
        "conditions": [evaluator],
    }
    model["datasource"] = {"type": "__expr__", "uid": "__expr__"}
    return {"refId": "CONDITION", "datasourceUid": "__expr__", "model": model}


def grafanas(template: str) -> str:
    """Prometheus' template in what Grafana's knows."""
    remedy = "".join(
        f'{{{{ {"else " if i else ""}if eq .Labels.detector "{name}" }}}}{one.first}'
        for i, (name, one) in enumerate(REMEDIES.items())
    )
    shown = {
        STEP: _beside("STEP", " at step ", "%.0f"),
        latest("stabmon_step", "Step "): _beside("STEP", "Step ", "%.0f"),
        LOSS: _beside("LOSS", " Loss ", "%.4g."),
        f"{choice()}\n": "",
        chosen_layers(): "",
        "{{ $remedy }}": f"{remedy}{{{{ else }}}}{OTHER}{{{{ end }}}}",
    }
    for old, new in shown.items():
        template = template.replace(old, new)
    plain = re.sub(r"\$value\b", ".Values.A.Value", template.replace("$labels.", ".Labels."))
    return _without_queries(plain).rstrip()


def _beside(name: str, before: str, form: str) -> str:
    value = f'{{{{ .Values.{name}.Value | printf "{form}" }}}}'
    return f"{{{{ if .Values.{name}.Labels }}}}{before}{value}{{{{ end }}}}"


def _without_queries(template: str) -> str:
    """Each `{{ with … | query }} … {{ end }}` taken out."""
    kept, end, depth = "", 0, 0
    for tag in _TAG.finditer(template):
        word = tag[1]
        if depth == 0 and not (word.startswith("with ") and word.endswith("| query")):
            continue
        if depth == 0:
            kept += template[end : tag.start()]
        depth += word.startswith(("with ", "if ", "range ")) - (word == "end")
        end = tag.end()
    return kept + template[end:]


def content() -> str:
    group = {"orgId": 1, "name": "stabmon", "folder": "stabmon", "interval": "15s", "rules": rules()}
    return _MADE + text({"apiVersion": 1, "groups": [group]}).split("\n", 1)[1]


if __name__ == "__main__":
    RULES.write_text(content(), encoding="utf-8")
