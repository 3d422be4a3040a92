"""A JSON schema with what occurs in it more than once written once, and without descriptions."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

SHORT = 80
"""Characters up to which a repetition is left as it is."""


def bare(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            k: bare(v) for k, v in node.items() if not (k in ("description", "default") and not isinstance(v, dict))
        }
    return [bare(item) for item in node] if isinstance(node, list) else node


def text(node: Any) -> str:
    return json.dumps(node, sort_keys=True, separators=(",", ":"))


def count(node: Any, found: Counter[str]) -> None:
    if isinstance(node, dict):
        if is_schema(node):
            found[text(node)] += 1
        for value in node.values():
            count(value, found)
    elif isinstance(node, list):
        for item in node:
            count(item, found)


def is_schema(node: dict[str, Any]) -> bool:
    return isinstance(node.get("type"), str) or "anyOf" in node or isinstance(node.get("enum"), list)


def named(node: Any, names: dict[str, str], top: bool = False) -> Any:
    if isinstance(node, dict):
        if not top and (name := names.get(text(node))):
            return {"$ref": f"#/definitions/{name}"}
        return {key: named(value, names) for key, value in node.items()}
    return [named(item, names) for item in node] if isinstance(node, list) else node


if __name__ == "__main__":
    whole = bare(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    found: Counter[str] = Counter()
    count(whole, found)
    often = [piece for piece, times in found.items() if times > 1 and len(piece) > SHORT]
    names = {piece: f"d{number}" for number, piece in enumerate(often)}
    definitions = {
        **whole.pop("definitions", {}),
        **{n: named(json.loads(p), names, top=True) for p, n in names.items()},
    }
    json.dump(
        {**named(whole, names, top=True), "definitions": definitions}, sys.stdout, separators=(",", ":"), sort_keys=True
    )
    sys.stdout.write("\n")
