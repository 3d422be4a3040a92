import pytest

from stabmon.report.bundle import bundle, top_level
from stabmon.report.html import _modules as modules_of_the_page

MAIN = """import { shown, later } from "./view.js";
import { get } from "./api.js";
start(get, shown, later);
export function start() {}
"""
VIEW = """import { start } from "./main.js";
import { get } from "./api.js";
export const shown = get();
export async function later() {
  return start;
}
"""
API = "export class Lost extends Error {}\nexport function get() {}\n"


def test_what_is_imported_comes_first_and_the_entry_last() -> None:
    made = bundle({"main.js": MAIN, "view.js": VIEW, "api.js": API}, "main.js")
    assert [line for line in made.splitlines() if "{}" in line or "shown" in line] == [
        "class Lost extends Error {}",
        "function get() {}",
        "const shown = get();",
        "start(get, shown, later);",
        "function start() {}",
    ]
    assert "import" not in made
    assert "export" not in made
    assert made.startswith('"use strict";\n(() => {\n')
    assert made.endswith("})();\n")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ('import * as view from "./view.js";', "main.js: 'import \\* as view from \"./view.js\";' cannot be bundled"),
        ('import { a as b } from "./view.js";', "cannot be bundled; write it as a named import or export on one line"),
        ("export default 3;", "'export default 3;' cannot be bundled"),
        ('import { a } from "./none.js";', "imports none.js, which is not there"),
        ('import { shown } from "./view.js";\nconst shown = 2;', "two modules of the page have shown"),
        ('import { shown } from "./view.js";\nconst { shown, x } = view;', "two modules of the page have shown"),
    ],
)
def test_what_one_script_cannot_hold_is_refused(source: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        bundle({"main.js": source, "view.js": "export const shown = 1;"}, "main.js")


def test_names_inside_functions_are_not_at_the_top_level() -> None:
    assert top_level("const a = 1;\nfunction b() {\n  const c = 2;\n}\nlet [d, e] = f;\n") == ["a", "b", "d", "e"]


def test_the_pages_modules_can_be_bundled() -> None:
    modules = modules_of_the_page()
    made = bundle(modules, "main.js")
    for name in ("get", "follow", "send"):
        assert f"function {name}(" in made
    assert "EventSource" not in made  # of api.js, which the report replaces
