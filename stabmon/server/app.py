"""What is served over HTTP, and to whom."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import FastAPI, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus 3 refuses a scrape with another content type."""

_INDEX = """stabmon watches a training run in this process.

/metrics   every signal per layer, for Prometheus
/healthz   ok while the process lives
"""


def create_app(metrics: Callable[[], bytes], hosts: Collection[str] = ()) -> FastAPI:
    """The app; `metrics` renders the Prometheus text.

    `hosts`: names it may be addressed by, besides any IP address, localhost and this machine's own name.
    """
    app = FastAPI(title="stabmon", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(_Guard, hosts={"localhost", socket.gethostname().lower(), *(host.lower() for host in hosts)})

    # All are async: a pool of worker threads would outlive training, and one rendering at a time is what we want.
    @app.api_route("/metrics", methods=["GET", "HEAD"])
    async def _metrics() -> Response:
        return Response(metrics(), headers={"content-type": METRICS_TYPE})

    @app.api_route("/healthz", methods=["GET", "HEAD"])
    async def _healthz() -> Response:
        return PlainTextResponse("ok\n")

    @app.api_route("/", methods=["GET", "HEAD"])
    async def _index() -> Response:
        return PlainTextResponse(_INDEX)

    return app


class _Guard:
    """Middleware: refuses foreign host names (a web page that rebinds its own name to 127.0.0.1), forbids sniffing."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-content-type-options"] = "nosniff"
            await send(message)

        app = self._app
        if scope["type"] == "http" and not _is_allowed(Headers(scope=scope).get("host", ""), self._hosts):
            app = PlainTextResponse("this host name is not served; use the IP address\n", status_code=400)
        await app(scope, receive, send_guarded)


def _is_allowed(host: str, hosts: Collection[str]) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in hosts or bool(ip_address(name))
    except ValueError:
        return False
