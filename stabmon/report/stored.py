"""What the server would answer, as JSON that a page can hold."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from stabmon.server import answers, models
from stabmon.server.history import History

POINTS = 2000
"""Of a curve."""
COLUMNS = 300
"""Of a layer-by-step picture."""
CELLS = 400_000
"""Numbers of all pictures together, some 3 MB: a model of very many layers gets fewer columns."""
_FOREVER = 2**62
_INSIDE = "inside the network"
_WHY, _TODO = "What {} need is not in the file.", "A training that stabmon watches reads it."


class Store:
    """The answers on some runs. Lists that many answers have in common, steps and sites, are held once, in `pool`."""

    def __init__(self, made: float) -> None:
        self._made = made
        """Unix seconds; ages are as of then."""
        self._runs: dict[str, Any] = {}
        self._places: dict[str, int] = {}
        self._pool: list[Any] = []

    def add(self, name: str, history: History, *, timed: bool = True, blind: str = "") -> None:
        """All that the page asks of a run.

        Not timed: without the times that its reader made up, a second a row. `blind`: detectors for which another
        tool's file holds too little.
        """
        run, alerts, events = (
            _plain(made) for made in (answers.run(name, history), answers.alerts(history), answers.events(history))
        )
        if blind:
            run["unseen"].append({"step": history.step, "what": _INSIDE, "why": _WHY.format(blind), "todo": _TODO})
            run["verdict"]["unseen"].append(_INSIDE)
        whole, layered = ([row for row in run["statistics"] if row["per_layer"] is each] for each in (False, True))
        columns = max(20, min(COLUMNS, CELLS // max(1, sum(row["sites"] for row in layered))))
        series = {row["name"]: answers.series(history, row["name"], (), 0, _FOREVER, POINTS) for row in whole}
        layers = {row["name"]: answers.layers(history, row["name"], 0, _FOREVER, columns) for row in layered}
        read = {name for name, answer in series.items() if answer.steps} | {n for n, a in layers.items() if a.sites}
        run["statistics"] = [row for row in run["statistics"] if row["name"] in read]
        if not timed:
            run |= dict.fromkeys(("started", "time", "since_time"))
            for row in (*alerts["alerts"], *events["events"]):
                row |= {name: None for name in ("time", "since_time") if name in row}
        self._runs[name] = {
            "run": {**run, "now": self._made, "as_of": self._made, "age": 0, "silent": False},
            "series": {each: self._series(answer, timed) for each, answer in series.items() if each in read},
            "layers": {each: self._kept(answer, timed) for each, answer in layers.items() if each in read},
            "profile": {each: self._kept(answers.profile(history, each, None)) for each in layers if each in read},
            "scores": self._series(answers.scores(history, (), 0, _FOREVER, POINTS), timed),
            "detectors": _plain(answers.detectors(history)),
            "alerts": alerts,
            "events": events,
        }

    def free(self, name: str) -> str:
        """That name, or with a number, if another run has it."""
        names = (name, *(f"{name} ({number})" for number in range(2, len(self._runs) + 2)))
        return next(each for each in names if each not in self._runs)

    def content(self) -> dict[str, Any]:
        """JSON types only."""
        return {"made": self._made, "runs": self._runs, "pool": self._pool}

    def runbooks(self) -> set[str]:
        """Names of those that the runs' pages link to."""
        rows: Iterable[dict[str, Any]] = (
            row for run in self._runs.values() for row in (*run["detectors"]["detectors"], *run["alerts"]["alerts"])
        )
        return {row["runbook"].removeprefix("runbook/") for row in rows if row.get("runbook")}

    def _series(self, answer: models.Answer, timed: bool) -> dict[str, Any]:
        found = self._kept(answer, timed)
        return {**found, "lines": [_line(line) for line in found["lines"]]}

    def _kept(self, answer: models.Answer, timed: bool = True) -> dict[str, Any]:
        found = _plain(answer)
        if "times" in found:
            found["times"] = [round(time, 2) for time in found["times"]] if timed else []
        return {
            name: self._pooled(value) if name in ("steps", "times", "sites") else value for name, value in found.items()
        }

    def _pooled(self, value: Any) -> int:
        """Its place in the pool."""
        place = self._places.setdefault(json.dumps(value), len(self._pool))
        if place == len(self._pool):
            self._pool.append(value)
        return place


def _line(line: dict[str, Any]) -> dict[str, Any]:
    """Lowest and highest once, where they are the same."""
    same = line["low"] == line["high"]
    return {"site": line["site"], "both": line["low"]} if same else line


def _plain(answer: models.Answer) -> dict[str, Any]:
    """As it would go over the wire."""
    found: dict[str, Any] = json.loads(answer.model_dump_json())
    return found
