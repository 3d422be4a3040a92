"""Every threshold says where it comes from."""

import ast
from pathlib import Path

import stabmon.detectors.thresholds

FILES = sorted(Path(stabmon.detectors.thresholds.__file__).parent.glob("*.py"))


MOST = 3
"""Constants in a row that may share a docstring."""


def undocumented(source: str) -> list[str]:
    """Names that are bound without a docstring after them, or after the next ones."""
    waiting: list[str] = []
    missing = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            waiting.append(ast.unparse(node.targets[0]))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value:
            missing += waiting[:-MOST]
            waiting = []
    return missing + waiting


def test_each_constant_of_the_thresholds_has_a_docstring() -> None:
    assert {file.stem: missing for file in FILES if (missing := undocumented(file.read_text()))} == {}


def test_a_constant_without_one_would_be_found() -> None:
    assert undocumented('A = 1\n"""Chosen."""\nB = 2\nC = 3\n"""Chosen."""\nD = 4\n') == ["D"]
    assert undocumented('A = B = 1\nC = 1\nD = 1\nE = 1\n"""Chosen."""\n') == ["A"]
