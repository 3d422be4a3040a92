"""What is served over HTTP, and to whom."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stabmon.server import api, assets, export, marking
from stabmon.server.access import Access, is_local, refusal
from stabmon.server.listing import Listing
from stabmon.server.scraping import scraping
from stabmon.server.shelf import RunLogs, Shelf

_HEADERS = {
    # ECharts styles its tooltip inline; scripts come from our own files alone.
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
}


def create_app(
    metrics: Callable[[], bytes],
    run_logs: RunLogs,
    token: str,
    hosts: Collection[str] = (),
    live: bool = False,
    closing: Callable[[], bool] = lambda: False,
    open_metrics: bool = False,
) -> FastAPI:
    """The app: the page of the run logs, their JSON, and `metrics`, which renders the Prometheus text.

    `token`: page and API ask for it, /metrics and /sd only when asked from another machine, and not if `open_metrics`.
    `hosts`: names it may be addressed by, besides any IP address, localhost and this machine's own. `live`: the one run
    is watched by this process. `closing`: whether open streams should end.
    """
    access = Access(token)
    app = FastAPI(title="stabmon", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(_Guard, hosts={"localhost", *_own_names(), *map(str.lower, hosts)})
    shelf = Shelf(run_logs, live)
    app.state.shelf, app.state.listing, app.state.closing = shelf, Listing(shelf), closing

    async def scraper(request: Request) -> None:
        if not open_metrics and not is_local(request):
            await access.require(request)

    # All are async: a pool of worker threads would outlive training, and one rendering at a time is what we want.
    @app.api_route("/healthz", methods=["GET", "HEAD"])
    async def _healthz() -> Response:
        return PlainTextResponse("ok\n")

    @app.api_route("/", methods=["GET", "HEAD"])
    async def _page(request: Request) -> Response:
        return access.welcome(request, assets.page(request)) if access.granted(request) else refusal()

    app.add_exception_handler(RequestValidationError, _refused)
    app.include_router(scraping(metrics), dependencies=[Depends(scraper)])
    app.include_router(assets.router)
    for router in (api.router, export.router, marking.router):
        app.include_router(router, dependencies=[Depends(access.require)])
    return app


class _Guard:
    """Middleware: refuses foreign host names (a web page that rebinds its own name to 127.0.0.1), sets the headers
    that keep the page to itself."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        app = self._app
        if scope["type"] == "http" and not _is_allowed(Headers(scope=scope).get("host", ""), self._hosts):
            app = PlainTextResponse("this host name is not served; use the IP address\n", status_code=400)
        await app(scope, receive, send_guarded)


async def _refused(request: Request, error: Exception) -> Response:
    """What is wrong with the parameters, in a sentence, as with all that is refused."""
    assert isinstance(error, RequestValidationError)
    detail = "; ".join(f"{each['loc'][-1]}: {each['msg'].lower()}" for each in error.errors())
    return JSONResponse({"detail": detail}, status_code=422)


def _own_names() -> set[str]:
    """This machine's, with its domain and without."""
    name = socket.gethostname().lower()
    return {name, name.partition(".")[0]}


def _is_allowed(host: str, hosts: Collection[str]) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in hosts or bool(ip_address(name))
    except ValueError:
        return False
