"""The rules of ARCHITECTURE.md, read off the source with `ast`."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 40

NOUNS = {"catalog", "records", "runlog", "settings"}
SIBLINGS = {"detectors", "sinks", "readers", "server"}
COMMANDS = {"demo", "bench"}
# A part is a folder or a file of the package. What each may import of the others; one not named here: nothing.
MAY_IMPORT: dict[str, set[str]] = {
    "": {"monitor", "notebook", "replays"},  # for type checkers alone: see test_import_stabmon_loads_nothing_heavy
    "catalog": set(),
    "records": {"catalog"},
    "settings": {"catalog", "records"},
    "runlog": {"catalog", "records"},
    **{part: NOUNS for part in SIBLINGS},
    "taps": NOUNS,
    "pipeline": NOUNS | SIBLINGS,
    "replays": NOUNS | {"detectors", "sinks", "readers", "pipeline"},
    "report": NOUNS | {"readers", "replays", "server"},
    "compare": NOUNS | {"readers", "replays"},
    "outputs": NOUNS | {"sinks"},
    "session": NOUNS | SIBLINGS | {"pipeline", "taps", "outputs"},
    "reaction": NOUNS,
    "meeting": NOUNS,
    "summary": NOUNS | {"sinks", "server", "taps"},
    "follower": NOUNS | {"taps", "meeting", "summary"},
    "monitor": NOUNS | SIBLINGS | {"pipeline", "taps", "outputs", "session", "reaction", "meeting", "follower"},
    **{part: NOUNS | SIBLINGS | {"pipeline", "monitor", "reaction"} for part in ("huggingface", "lightning", "demo")},
    "grafana": NOUNS,
    "watch": NOUNS | {"server"},
    "notebook": NOUNS | {"server", "readers", "replays"},
    "bench": NOUNS | SIBLINGS | {"pipeline", "taps", "monitor", "huggingface", "lightning", "demo"},
    "cli": NOUNS | SIBLINGS | {"pipeline", "grafana", "watch", "replays", "report", "compare"} | COMMANDS,
}
# Heavy or optional packages, and the parts that may import them.
THIRD_PARTY: dict[str, set[str]] = {
    "torch": {
        "taps",
        "outputs",
        "session",
        "reaction",
        "meeting",
        "follower",
        "monitor",
        "huggingface",
        "lightning",
        "demo",
        "bench",
    },
    "transformers": {"huggingface", "bench"},
    "accelerate": {"huggingface", "bench"},
    "lightning": {"lightning", "bench"},
    "pytorch_lightning": {"lightning"},
    "fastapi": {"server"},
    "starlette": {"server"},
    "uvicorn": {"server"},
    "prometheus_client": {"sinks"},
    "slack_sdk": {"sinks"},
    "apprise": {"sinks"},
    "grafana_api": {"grafana"},
    "requests": {"grafana"},
    "typer": {"cli"},
    "rich": {"bench", "cli", "demo", "watch"},
    "pandas": {"notebook"},
}


def part_of(path: Path) -> str:
    """`stabmon/taps/norms.py` -> `taps`, `stabmon/monitor.py` -> `monitor`, `stabmon/__init__.py` -> ``."""
    head = path.with_suffix("").parts[1]
    return "" if head == "__init__" else head


def imported(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, relative ones made absolute, `from a import b` as `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(path.parts[: len(path.parts) - node.level]) if node.level else []
            base += [node.module] if node.module else []
            yield from ((node.lineno, ".".join([*base, alias.name])) for alias in node.names)


def wrong_import(part: str, name: str) -> str | None:
    """Why that part may not import that name; None if it may."""
    top, *rest = name.split(".")
    if top == "stabmon":
        target = rest[0] if rest else ""
        allowed = MAY_IMPORT.get(part, set()) | {part, "__version__"}
        return None if target in allowed else f"{part or 'stabmon'} may not import stabmon.{target}"
    if part not in THIRD_PARTY.get(top, {part}):
        return f"{part or 'stabmon'} may not import {top}; only {', '.join(sorted(THIRD_PARTY[top]))} may"
    return None


def breaches(root: Path) -> list[str]:
    """Every broken rule in the package under `root`, as `file:line: what`."""
    found = []
    for file in sorted((root / "stabmon").rglob("*.py")):
        path = file.relative_to(root)
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
        for line, name in imported(path, tree):
            if reason := wrong_import(part_of(path), name):
                found.append(f"{path}:{line}: {reason}")
        if (lines := len(source.splitlines())) > MAX_FILE_LINES:
            found.append(f"{path}:1: {lines} lines, at most {MAX_FILE_LINES}")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    found.append(f"{path}:{node.lineno}: {node.name} has {lines} lines, at most {MAX_FUNCTION_LINES}")
    return found


def test_the_package_keeps_every_rule() -> None:
    found = breaches(ROOT)
    assert not found, "see ARCHITECTURE.md, Rules:\n" + "\n".join(found)


def test_every_part_has_its_rule() -> None:
    parts = {part_of(file.relative_to(ROOT)) for file in (ROOT / "stabmon").rglob("*.py")}
    assert parts - {""} <= set(MAY_IMPORT)


@pytest.mark.parametrize(
    ("file", "source", "breach"),
    [
        ("sinks/slack.py", "import torch.nn", "1: sinks may not import torch"),
        ("sinks/slack.py", "from stabmon.detectors.alarm import Alarm", "1: sinks may not import stabmon.detectors"),
        ("sinks/slack.py", "from ..detectors import alarm", "1: sinks may not import stabmon.detectors"),
        ("records.py", "from stabmon import runlog", "1: records may not import stabmon.runlog"),
        ("pipeline.py", "def f():\n    from stabmon.taps import Due", "2: pipeline may not import stabmon.taps"),
        ("monitor.py", "import stabmon.cli", "1: monitor may not import stabmon.cli"),
        ("server/app.py", "from stabmon import Monitor", "1: server may not import stabmon.Monitor"),
        ("monitor.py", "from transformers import Trainer", "1: monitor may not import transformers"),
        ("records.py", "x = 1\n" * 301, "1: 301 lines"),
        ("records.py", "def f():\n" + "    x = 1\n" * 40, "1: f has 41 lines"),
    ],
)
def test_a_breach_is_found(tmp_path: Path, file: str, source: str, breach: str) -> None:
    path = tmp_path / "stabmon" / file
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    (found,) = breaches(tmp_path)
    assert found.startswith(f"stabmon/{file}:{breach}")


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("taps/norms.py", "import torch\nfrom stabmon.records import Site\nfrom stabmon.taps.pack import Pack"),
        ("pipeline.py", "from stabmon import __version__\nfrom stabmon.detectors.alarm import Alarm"),
        ("records.py", "x = 1\n" * 300),
        ("records.py", "def f():\n" + "    x = 1\n" * 39),
    ],
)
def test_what_is_allowed_passes(tmp_path: Path, file: str, source: str) -> None:
    path = tmp_path / "stabmon" / file
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    assert breaches(tmp_path) == []


def test_import_stabmon_loads_nothing_heavy() -> None:
    code = "import stabmon, sys; print(*{'torch', 'numpy', 'pydantic', 'fastapi', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
