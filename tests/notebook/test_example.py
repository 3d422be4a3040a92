"""The example notebook runs, and shows what it promises."""

import ast
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def shown(source: str, names: dict[str, Any]) -> Any:
    """Runs a cell; what a notebook shows below it: the value of its last expression."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


def test_the_example_trains_and_shows_the_run_its_frames_and_its_alerts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STABMON_PORT", "0")
    cells = [cell for cell in json.loads(EXAMPLE.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells)
    names: dict[str, Any] = {}
    _, _, run, gains, losses, alerts, statistics = [shown("".join(cell["source"]), names) for cell in cells]
    html = run._repr_html_()
    assert "notebook · Sequential · finished, step 60" in html
    assert "<svg" in html
    assert "data:image/png;base64," in html
    assert gains.shape == (5, 5)  # two norms in each of two blocks, and the last one
    assert gains.index.tolist() == [47, 48, 49, 50, 60]
    assert losses.loc["count", "loss"] == 60
    assert isinstance(alerts, pd.DataFrame)
    assert "norm_gain" in statistics
