"""What the pages say is so."""

import ast
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from stabmon import __version__
from stabmon.catalog import STATISTICS
from stabmon.detectors import default_detectors, loss_detectors
from stabmon.detectors.given import detectors_of
from stabmon.settings import Settings
from tests.detectors.series import alerts_of, make_series

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text of README under that heading."""
    return README.split(f"## {title}\n")[1].split("\n## ")[0]


def in_backticks(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_]+)`", text))


def test_the_table_of_signals_has_every_exported_statistic_and_no_other() -> None:
    table = "\n".join(line for line in section("What it measures").splitlines() if line.startswith("|"))
    assert in_backticks(table) == {name for name, row in STATISTICS.items() if row.exported}


def test_the_table_of_detectors_has_every_detector_and_each_has_its_runbook() -> None:
    names = {detector.name for detector in default_detectors()}
    assert set(re.findall(r"^\| `(\w+)`", section("What it warns of"), re.MULTILINE)) == names
    of_the_loss = {detector.name for detector in loss_detectors()}
    assert {page.stem for page in (ROOT / "stabmon/detectors/runbooks").glob("*.md")} == names | of_the_loss | {
        "alerts"
    }


def test_the_table_of_settings_has_every_setting_with_its_default() -> None:
    rows = re.findall(r"^\| (`.+`) \| (.+?) \|", section("Settings"), re.MULTILINE)
    told = {name: default for names, default in rows for name in re.findall(r"`(\w+)`", names)}
    assert set(told) == set(Settings.model_fields)
    for name in ("every", "probe_every", "dense_steps", "serve", "max_series", "log", "disabled"):
        assert float(Settings.model_fields[name].default) == float({"true": 1, "false": 0}.get(told[name], told[name]))


def test_the_tree_names_every_part_and_nothing_that_is_not_there() -> None:
    tree = section("Where things are").split("```")[1]
    told = set(re.findall(r"^  (\w+(?:\.py|/))", tree, re.MULTILINE))
    parts = {p.name + "/" * p.is_dir() for p in (ROOT / "stabmon").iterdir() if p.suffix == ".py" or p.is_dir()}
    # Folders that hold nothing yet are no part of the picture.
    empty = {p.name + "/" for p in (ROOT / "stabmon").iterdir() if p.is_dir() and len(list(p.glob("*.py"))) < 2}
    assert told == parts - empty - {"__init__.py", "__pycache__/"}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_make_has_the_targets_that_are_told(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = (ROOT / page).read_text(encoding="utf-8")
    assert set(re.findall(r"^make ([a-z-]+)|`make (?:[A-Z]+=\S+ )?([a-z-]+)", text, re.MULTILINE)) <= {
        pair for target in targets for pair in ((target, ""), ("", target))
    }


def test_the_version_is_the_same_in_code_package_and_changelog() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    newest = re.search(r"^## \[([^]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert {package, newest[1]} == {__version__}


def test_every_constraint_is_one_exact_public_release() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line)] == []


def test_the_plain_loop_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STABMON_FOLDER", str(tmp_path))
    monkeypatch.setenv("STABMON_PORT", "0")
    plain, huggingface = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    ast.parse(huggingface)
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4))
    names = {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters()),
        "criterion": nn.CrossEntropyLoss(),
        "loader": [(torch.randn(16, 8), torch.randint(4, (16,))) for _ in range(3)],
    }
    exec(compile(plain, "README.md", "exec"), names)
    assert names["monitor"].latest.step == 3  # type: ignore[attr-defined]


def test_the_detector_of_the_docs_warns_as_it_says_and_is_a_detector() -> None:
    names: dict[str, Any] = {}
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/detectors.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, "docs/detectors.md", "exec"), names)
    assert [d.name for d in detectors_of(names["detectors"])][-1] == "large_updates"
    squares = [[1e-6, 0.01], [1e-6, math.nan], [1e-6, 8e-4], [1e-6, 0.01]]
    steps = make_series({"weight_sq": [[1, 1]] * 4, "intended_update_sq": squares}, first=99)
    (told,) = alerts_of(names["LargeUpdates"](), steps)
    assert (told.step, told.site, told.action[:29]) == (102, "layers.1", "moves a block by 10.0% a step")
