"""The page's files, without a browser."""

import re
from pathlib import Path

from stabmon.report.bundle import bundle

PAGE = Path("stabmon/server/page")


def test_every_module_is_loaded_at_once_and_not_when_another_asks_for_it() -> None:
    told = re.findall(r'<link rel="modulepreload" href="static/(\w+\.js)"', (PAGE / "index.html").read_text("utf-8"))
    ours = {path.name for path in PAGE.glob("*.js")} - {"echarts.min.js", "main.js"}
    assert set(told) == ours
    assert len(told) == len(ours)


def test_modules_have_the_form_that_a_report_can_take_in() -> None:
    modules = {path.name: path.read_text("utf-8") for path in PAGE.glob("*.js") if path.name != "echarts.min.js"}
    assert len(bundle(modules, "main.js")) > 50_000
    assert {name: text.count("\n") for name, text in modules.items() if text.count("\n") > 300} == {}


def test_nothing_is_made_from_markup() -> None:
    """Names come from outside: elements are made from text alone."""
    for path in PAGE.glob("*.js"):
        if path.name != "echarts.min.js":
            assert not re.search(
                r"innerHTML|outerHTML\s*=|insertAdjacentHTML|document\.write|eval\(", path.read_text("utf-8")
            )
