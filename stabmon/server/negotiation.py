"""What a request says it takes, and has."""

from __future__ import annotations

from fastapi import Request


def takes_gzip(request: Request) -> bool:
    """Named, and not with a weight of 0 (RFC 9110, 12.5.3)."""
    codings = request.headers.get("accept-encoding", "").replace(" ", "").lower().split(",")
    weights = [weight for name, _, weight in (coding.partition(";q=") for coding in codings) if name == "gzip"]
    return any(weight.strip("0.") or not weight for weight in weights)


def has(request: Request, tag: str) -> bool:
    """Whether the browser has what `tag` is of. A proxy that compresses makes a tag a weak one (RFC 9110, 13.1.2)."""
    return tag in {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
