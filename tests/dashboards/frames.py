"""What a panel is given: answers of Prometheus as frames, and those of Grafana's transformations that are used.

A frame is a mapping of column name -> values, in order. The columns of time series are named by their legend.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Frame = dict[str, list[Any]]
_PLACE = re.compile(r"{{(\w+)}}")


def time_series(answers: Sequence[Mapping[str, Any]], legend: str) -> list[Frame]:
    """A frame for each series."""
    frames = []
    for one in answers:
        points = one.get("values") or [one["value"]]
        times, values = [float(at) for at, _ in points], [_number(value) for _, value in points]
        frames.append({"Time": times, named(one["metric"], legend): values})
    return frames


def named(labels: Mapping[str, str], legend: str) -> str:
    if legend == "__auto":
        return ", ".join(f"{k}={v}" for k, v in labels.items()) or "Value"
    return _PLACE.sub(lambda found: labels.get(found[1], ""), legend)


def table(answers: Sequence[Mapping[str, Any]], value: str) -> list[Frame]:
    """One frame: time, every label, and the value under that name."""
    labels = sorted({label for one in answers for label in one["metric"]})
    frame: Frame = {"Time": [], **{label: [] for label in labels}, value: []}
    for one in answers:
        for at, found in one.get("values") or [one["value"]]:
            frame["Time"].append(float(at))
            for label in labels:
                frame[label].append(one["metric"].get(label))
            frame[value].append(_number(found))
    return [frame]


def _number(text: str) -> float:
    return float(text.replace("Inf", "inf"))


def transformed(frames: list[Frame], transformations: Sequence[Mapping[str, Any]]) -> list[Frame]:
    for step in transformations:
        frames = _KNOWN[step["id"]](frames, step["options"])
    return frames


def _join(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    """Rows whose key is in all frames; a name that comes twice is numbered."""
    key = options["byField"]
    assert options["mode"] == "inner"
    keys = [k for k in frames[0][key] if all(k in frame[key] for frame in frames[1:])] if frames else []
    joined: Frame = {key: keys}
    names = [name for frame in frames for name in frame if name != key]
    seen: dict[str, int] = {}
    for frame in frames:
        rows = [frame[key].index(k) for k in keys]
        for name, values in frame.items():
            if name != key:
                seen[name] = seen.get(name, 0) + 1
                joined[f"{name} {seen[name]}" if names.count(name) > 1 else name] = [values[i] for i in rows]
    return [joined]


def _group(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    """By one field, of the others the last; columns that are not named go."""
    (by,) = (name for name, how in options["fields"].items() if how["operation"] == "groupby")
    others = {name: how["aggregations"] for name, how in options["fields"].items() if name != by}
    assert all(how == ["last"] for how in others.values())
    made = []
    for frame in frames:
        last = {key: i for i, key in enumerate(frame[by])}
        made.append({by: list(last), **{f"{n} (last)": [frame[n][i] for i in last.values()] for n in others}})
    return made


def _sort(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    (by,) = options["sort"]
    made = []
    for frame in frames:
        order = sorted(range(len(frame[by["field"]])), key=frame[by["field"]].__getitem__, reverse=by["desc"])
        made.append({name: [values[i] for i in order] for name, values in frame.items()})
    return made


def _merge(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    """One row for each value of the columns that all frames with rows have."""
    filled = [frame for frame in frames if any(frame.values())] or frames[:1]
    keys = [name for name in filled[0] if all(name in frame for frame in filled)]
    names = list(dict.fromkeys(name for frame in frames for name in frame))
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for frame in frames:
        for i in range(len(frame[keys[0]])):
            row = {name: values[i] for name, values in frame.items()}
            rows.setdefault(tuple(row[key] for key in keys), {}).update(row)
    return [{name: [row.get(name) for row in rows.values()] for name in names}]


def _organize(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    index, renamed = options["indexByName"], options["renameByName"]
    made = []
    for frame in frames:
        kept = [name for name in frame if not options["excludeByName"].get(name)]
        kept.sort(key=lambda name: index.get(name, math.inf if index else 0))
        made.append({renamed.get(name, name): frame[name] for name in kept})
    return made


def _partition(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    """Of the first frame, one for each value of a column; the value then stands in front of the last column's name."""
    (by,) = options["fields"]
    made = []
    for value in dict.fromkeys(frames[0][by]):
        rows = [i for i, found in enumerate(frames[0][by]) if found == value]
        columns = [name for name in frames[0] if name != by]
        labels = [*columns[:-1], f"{value} {columns[-1]}"]
        made.append({label: [frames[0][n][i] for i in rows] for label, n in zip(labels, columns, strict=True)})
    return made


_KNOWN: dict[str, Callable[[list[Frame], Mapping[str, Any]], list[Frame]]] = {
    "joinByField": _join,
    "groupBy": _group,
    "sortBy": _sort,
    "merge": _merge,
    "organize": _organize,
    "partitionByValues": _partition,
}
