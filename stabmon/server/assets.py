"""The files of the page, and the detectors' runbooks. They hold nothing of a run, so they need no token."""

from __future__ import annotations

import gzip
import hashlib
from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

from stabmon.records import RUNBOOKS
from stabmon.server.negotiation import has, takes_gzip

_PAGE = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
}
router = APIRouter()


def page(request: Request) -> Response:
    """The page itself."""
    return _answer(request, _PAGE / "index.html")


@router.api_route("/static/{name}", methods=["GET", "HEAD"])
async def _static(request: Request, name: str) -> Response:
    return _answer(request, _PAGE / name)


@router.api_route("/runbook/{detector}", methods=["GET", "HEAD"])
async def _runbook(request: Request, detector: str) -> Response:
    return _answer(request, RUNBOOKS / f"{detector}.md")


def _answer(request: Request, path: Path) -> Response:
    """One of our files, compressed where that is asked for; 304 where the browser has it."""
    if path.suffix not in _TYPES or path not in path.parent.iterdir():
        raise HTTPException(404, "there is no such file")
    plain, packed, tag = _content(path)
    headers = {"content-type": _TYPES[path.suffix], "cache-control": "no-cache", "etag": tag, "vary": "accept-encoding"}
    if has(request, tag):
        return Response(status_code=304, headers=headers)
    if takes_gzip(request):
        return Response(packed, headers={**headers, "content-encoding": "gzip"})
    return Response(plain, headers=headers)


# Read and packed once: it happens in the training process.
@lru_cache(maxsize=64)
def _content(path: Path) -> tuple[bytes, bytes, str]:
    plain = path.read_bytes()
    return plain, gzip.compress(plain, 6), f'"{hashlib.sha256(plain).hexdigest()[:16]}"'
