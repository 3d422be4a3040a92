"""The page's modules as one classic script: browsers load no modules from a file that is opened from disk."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

_IMPORT = re.compile(r'^import \{ \w+(?:, \w+)* \} from "\./([\w-]+\.js)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function |const |class )", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
_NAME = re.compile(r"^(?:export )?(?:(?:async )?function\*?|const|let|class) (\w+)", re.MULTILINE)
_NAMES = re.compile(r"^(?:export )?(?:const|let) [{[]([\w, ]+)[}\]] =", re.MULTILINE)


def bundle(modules: Mapping[str, str], entry: str) -> str:
    """One script that does what `entry` does as a module. Modules: file name -> source.

    ValueError: an import or export in another form than `import { a } from "./b.js";` and `export function` (or const,
    class) at the start of a line, a module that is not there, or a top-level name that two modules have.
    """
    order: dict[str, None] = {}
    _visit(modules, entry, order, set())
    twice = [
        name for name, count in Counter(n for file in order for n in top_level(modules[file])).items() if count > 1
    ]
    if twice:
        raise ValueError(f"two modules of the page have {', '.join(twice)}; names at the top level must be unique")
    parts = [_plain(file, modules[file]) for file in order]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"


def top_level(source: str) -> list[str]:
    """Names that a module has at its top level."""
    several = [name.strip() for names in _NAMES.findall(source) for name in names.split(",")]
    return [*_NAME.findall(source), *several]


def _visit(modules: Mapping[str, str], file: str, order: dict[str, None], begun: set[str]) -> None:
    """What a module imports comes before it; where two import each other, the one that was reached first is last."""
    if file not in modules:
        raise ValueError(f"a module of the page imports {file}, which is not there")
    begun.add(file)
    for other in _IMPORT.findall(modules[file]):
        if other not in begun:
            _visit(modules, other, order, begun)
    order[file] = None


def _plain(file: str, source: str) -> str:
    plain = _EXPORT.sub("", _IMPORT.sub("", source))
    if left := _LEFT.search(plain):
        raise ValueError(f"{file}: {left[0]!r} cannot be bundled; write it as a named import or export on one line")
    return plain
