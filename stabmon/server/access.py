"""Who may read: whoever has the token. A page that was opened with it keeps it in a cookie."""

from __future__ import annotations

import hashlib
import hmac
import re
from ipaddress import IPv6Address, ip_address

from fastapi import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

_REFUSAL = """<!doctype html><html lang="en"><meta charset="utf-8"><title>stabmon</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="static/style.css">
<main class="notice"><h1>This page asks for a token</h1>
<p>The address that stabmon printed when it started has it: <code>…/?token=…</code>. Open that address once;
this browser then knows the token until it is closed.</p>
<p>A training prints it to its log (logger <code>stabmon</code>, level INFO), <code>stabmon serve</code> and
<code>stabmon demo</code> to the terminal. Each start makes a new token, unless one is given.</p></main></html>
"""


class Access:
    """Accepts the token as `Authorization: Bearer`, as `?token=`, or as the cookie that `welcome` sets.

    ValueError: a token that does not go into all three as it is, or that is short enough to be guessed.
    """

    def __init__(self, token: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._~-]{8,}", token):
            raise ValueError(
                "the token is not allowed: it takes 8 or more letters, digits and -._~; leave it out for a random one"
            )
        self._token = token.encode()
        # Cookies do not tell ports apart: two runs on one machine would take each other's.
        self._cookie = f"stabmon-{hashlib.sha256(self._token).hexdigest()[:12]}"

    def granted(self, request: Request) -> bool:
        """Whether the request has the token."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = [bearer if scheme.lower() == "bearer" else "", request.query_params.get("token", "")]
        given.append(request.cookies.get(self._cookie, ""))
        return any([hmac.compare_digest(text.encode(), self._token) for text in given])

    async def require(self, request: Request) -> None:
        """A dependency: 401 for whoever has not."""
        if not self.granted(request):
            detail = "this needs the token of the address that stabmon printed: Authorization: Bearer"
            raise HTTPException(401, detail)

    def welcome(self, request: Request, response: Response) -> Response:
        """The response, with the token as a cookie that no script and no other site can use."""
        secure, path = request.url.scheme == "https", request.scope.get("root_path") or "/"
        response.set_cookie(
            self._cookie, self._token.decode(), path=path, httponly=True, samesite="strict", secure=secure
        )
        return response


def refusal() -> Response:
    """The page for whoever has no token, or a wrong one."""
    return HTMLResponse(_REFUSAL, status_code=401)


def is_local(request: Request) -> bool:
    """Whether it comes from this machine, where Prometheus' scrapes need no token."""
    try:
        address = ip_address(request.client.host if request.client else "")
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
