"""What the server would answer, as JSON that a page can hold."""

from __future__ import annotations

import json
from typing import Any

from stabmon.server import answers, models
from stabmon.server.history import History

POINTS = 2000
"""Of a curve."""
COLUMNS = 300
"""Of a layer-by-step picture."""
CELLS = 400_000
"""Numbers of all pictures together, 3 MB or so: a model of many layers gets fewer columns."""
_FOREVER = 2**62


def stored(name: str, history: History, made: float) -> dict[str, Any]:
    """All that the page asks of a run. `made`: Unix seconds at which the report is; ages are as of then."""
    run = answers.run(name, history)
    whole, layered = ([taken for taken in run.statistics if taken.per_layer is each] for each in (False, True))
    columns = max(20, min(COLUMNS, CELLS // max(1, sum(taken.sites for taken in layered))))
    return {
        "run": {**_plain(run), "now": made, "as_of": made, "age": 0, "silent": False},
        "series": {each.name: _series(history, each.name) for each in whole},
        "layers": {each.name: _plain(answers.layers(history, each.name, 0, _FOREVER, columns)) for each in layered},
        "alerts": _plain(answers.alerts(history)),
        "events": _plain(answers.events(history)),
    }


def _series(history: History, statistic: str) -> dict[str, Any]:
    found = _plain(answers.series(history, statistic, [], 0, _FOREVER, POINTS))
    return {**found, "lines": [_line(line) for line in found["lines"]]}


def _line(line: dict[str, Any]) -> dict[str, Any]:
    """Lowest and highest once, where they are the same."""
    same = line["low"] == line["high"]
    return {"site": line["site"], "both": line["low"]} if same else line


def _plain(answer: models.Answer) -> dict[str, Any]:
    """As it would go over the wire."""
    found: dict[str, Any] = json.loads(answer.model_dump_json())
    return found
