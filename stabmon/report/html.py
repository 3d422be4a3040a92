"""The page of the server as one file that needs none."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Collection, Sequence
from html import escape
from pathlib import Path
from typing import Any

from stabmon.records import RUNBOOKS
from stabmon.report.bundle import bundle

HERE = Path(__file__).parent
PAGE = HERE.parent / "server" / "page"
_LINKED = re.compile(r"^\s*(?:<script\b.*</script>|<link rel=\"(?:stylesheet|modulepreload)\".*>)\s*$\n?", re.MULTILINE)
_FOR_SERVERS = re.compile(r"<(\w+)\b[^>]* data-server\b.*?</\1>", re.DOTALL)


def html(embedded: dict[str, Any], runbooks: Collection[str], about: Sequence[str]) -> str:
    """`embedded`: what `embedded.js` answers from. `runbooks`: names of those that can be opened. `about`: sentences on
    where the numbers come from.
    """
    pages = {name: _source(RUNBOOKS / f"{name}.md") for name in sorted(runbooks)}
    scripts = [_source(PAGE / "echarts.min.js"), bundle(_modules(), "main.js")]
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    styles = "\n".join(_source(path) for path in (*sorted(PAGE.glob("*.css")), HERE / "report.css"))
    # A policy that comes after what it forbids does not hold for it: first of all.
    head = f'<meta charset="utf-8">\n<meta http-equiv="content-security-policy" content="{policy}">'
    body = [
        f'<script type="application/json" id="embedded">{_inert({**embedded, "runbooks": pages})}</script>',
        *(f"<script>{script}</script>" for script in scripts),
    ]
    page = _FOR_SERVERS.sub("", _LINKED.sub("", _source(PAGE / "index.html")))
    page = page.replace("</footer>", f"{_paragraphs(about)}</footer>", 1)
    page = page.replace('<meta charset="utf-8">', head, 1)
    page = page.replace("</head>", f"<style>{styles}</style>\n</head>", 1)
    return page.replace("</body>", "\n".join(body) + "\n</body>", 1)


def _modules() -> dict[str, str]:
    """The page's, but for where its answers come from."""
    found = {path.name: _source(path) for path in PAGE.glob("*.js") if path.name != "echarts.min.js"}
    return found | {"api.js": _source(HERE / "embedded.js")}


def _source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _inert(value: object) -> str:
    """JSON in which nothing ends the element that holds it. Half a character, as in a broken name, is replaced."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.encode("utf-8", "replace").decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _paragraphs(lines: Sequence[str]) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines)
