"""What an installation of stabmon with all its extras brings, and what it must not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import urllib3
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
HIJACKERS = {"urllib3-future", "niquests", "grafana-client"}
"""They, or what they depend on, put another urllib3 over the real one, on disk, and leave it broken when they go."""


def declared() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def brought() -> set[str]:
    """Every installed package that a requirement of ours leads to, whatever its extra."""
    project = declared()
    extras = [wanted for group in project["optional-dependencies"].values() for wanted in group]
    names = {canonical(Requirement(text).name) for text in (*project["dependencies"], *extras)}
    waiting, found = set(names), set[str]()
    while waiting:
        name = waiting.pop()
        found.add(name)
        try:
            wanted = map(Requirement, importlib.metadata.requires(name) or ())
        except importlib.metadata.PackageNotFoundError:
            assert name not in names, f"{name} is an extra of ours, and not installed: its dependencies are not seen"
            continue
        needed = {canonical(w.name) for w in wanted if not w.marker or w.marker.evaluate({"extra": ""})}
        waiting |= needed - found
    return found


def test_all_extras_leave_urllib3_as_it_is() -> None:
    found = brought()
    assert {"grafana-api", "requests", "urllib3"} <= found
    assert found & HIJACKERS == set()
    assert urllib3.__version__ == importlib.metadata.version("urllib3")
    assert importlib.util.find_spec("urllib3_future") is None


def test_all_is_every_other_extra() -> None:
    extras = declared()["optional-dependencies"]
    (everything,) = map(Requirement, extras["all"])
    assert everything.name == declared()["name"]
    assert everything.extras == extras.keys() - {"all"}
