"""The server inside the training process: one daemon thread that touches neither signals nor training."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from stabmon.records import RunState
from stabmon.runlog import in_folder
from stabmon.server.discovery import write_target
from stabmon.server.port import bind
from stabmon.server.scrapes import HURRIED_SECONDS, Scrapes
from stabmon.server.tls import check_pair
from stabmon.server.token import beyond_this_machine, token_in
from stabmon.settings import Settings

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

_NAME = "stabmon-server"

_log = logging.getLogger("stabmon")


class Server:
    """Serves page, API and `metrics` (the Prometheus text) until `stop` or the end of the process.

    `port`: given, it must be free (OSError); None takes 7466 or, where that is taken, any free one. `run_log`: the
    file of the run that this process watches, which need not be there yet; None: it writes none. `folder`: serve the
    run logs in it instead. `token`: what page and API ask for, and beyond this machine /metrics; None: a new one, and
    /metrics asks for none. `hosts`: further names it may be addressed by. `certificate`, `key`: PEM files, for HTTPS.
    ValueError: a token or a pair of files that cannot be used.
    """

    def __init__(
        self,
        metrics: Callable[[], bytes],
        host: str = "127.0.0.1",
        port: int | None = None,
        *,
        run_log: Path | None = None,
        folder: Path | None = None,
        token: str | None = None,
        hosts: Collection[str] = (),
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        # Imported here: half a second and 35 MB that only a serving process should pay.
        import uvicorn

        from stabmon.server.app import create_app

        check_pair(certificate, key)
        self._scheme = "https" if certificate else "http"
        self._scrapes = Scrapes(metrics)
        self._target: Path | None = None
        self._process = os.getpid()
        self._token = token or secrets.token_urlsafe(16)
        self._closing = threading.Event()
        own = {run_log.stem: run_log} if run_log else {}
        run_logs = (lambda: own) if folder is None else partial(in_folder, folder)
        app = create_app(
            self._scrapes, run_logs, self._token, [host, *hosts], folder is None, self._closing.is_set, token is None
        )
        self._socket = bind(host, port)
        self._address = self._socket.getsockname()
        if token is None and beyond_this_machine(self._address[0]):
            _log.warning("stabmon: whoever can reach %s may read /metrics, since no token is given", self.url)
        self._server = uvicorn.Server(_config(app, certificate, key))
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name=_NAME, daemon=True
        )
        self._thread.start()
        atexit.register(self.stop)

    @property
    def port(self) -> int:
        """The real one."""
        return int(self._address[1])

    @property
    def url(self) -> str:
        """Where it can be reached, without the path."""
        host = socket.gethostname() if self._address[0] in ("0.0.0.0", "::") else self._address[0]
        return f"{self._scheme}://[{host}]:{self.port}" if ":" in host else f"{self._scheme}://{host}:{self.port}"

    @property
    def page_url(self) -> str:
        """Where the page is, with the token: for its user's eyes."""
        return f"{self.url}/?token={quote(self._token)}"

    @property
    def tunnel(self) -> str | None:
        """The command that brings the page to the machine at the other end of this SSH session; None without one."""
        local = self._address[0] if self._address[0] not in ("0.0.0.0", "::") else "127.0.0.1"
        return tunnel(local, self.port)

    def announce(self, folder: Path, run: str, rank: int = 0) -> None:
        """Tells Prometheus' file_sd, by a file in the folder of run logs, until `stop`."""
        try:
            self._target = write_target(folder, run, rank, self.url)
        except OSError as error:
            _log.warning("stabmon: %s cannot be found by a file in %s (%s)", self.url, folder, error.strerror)

    def linger(self, state: RunState, seconds: float | None) -> None:
        """Goes on for that long; None: until two more scrapes have come, 35 s at most, if any came lately.

        One scrape does where the machine is about to be taken back, 20 s at most: unseen, the end would look like a
        crash and wake somebody. Whoever stopped the run waits for nothing.
        """
        if state == "preempted" and seconds != 0:
            self._scrapes.outlast(None, 1, HURRIED_SECONDS)
        elif state in ("finished", "failed"):
            self._scrapes.outlast(seconds)

    def stop(self) -> None:
        """Ends it within three seconds. May be called twice."""
        if self._target and os.getpid() == self._process:
            with suppress(OSError):
                self._target.unlink(missing_ok=True)
        atexit.unregister(self.stop)
        self._closing.set()
        self._server.should_exit = True
        self._thread.join(3)
        self._socket.close()


def _config(app: ASGIApp, certificate: Path | None, key: Path | None) -> uvicorn.Config:
    import uvicorn

    for name in ("uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).addFilter(_is_news)
    return uvicorn.Config(
        app,
        log_config=None,
        log_level=None,
        server_header=False,
        lifespan="off",
        loop="asyncio",
        http="h11",
        ws="none",
        timeout_graceful_shutdown=2,
        ssl_certfile=str(certificate) if certificate else None,
        ssl_keyfile=str(key) if key else None,
    )


def _is_news(record: logging.LogRecord) -> bool:
    """Requests, and what strangers send to the port, are none for a training's log. The loggers are those of a user's
    own server, too, so their levels stay as they are."""
    return record.threadName != _NAME or record.levelno >= logging.ERROR


def serve(
    settings: Settings, metrics: Callable[[], bytes], run_log: Path | None, port: int | None = None
) -> Server | None:
    """The server that the settings ask for; None where they ask for none. `port`: another than theirs."""
    if not settings.serve:
        return None
    return Server(
        metrics,
        settings.host,
        settings.port if port is None else port,
        run_log=run_log,
        token=token_in(settings),
        hosts=settings.hosts,
        certificate=settings.certificate,
        key=settings.key,
    )


def tunnel(host: str, port: int) -> str | None:
    """`ssh -N -L …`, to be typed at the other end of this SSH session; None where there is none."""
    _, _, here, ssh_port = (os.environ.get("SSH_CONNECTION", "").split() + [""] * 4)[:4]
    if not here:
        return None
    there = f"[{host}]" if ":" in host else host
    at_port = "" if ssh_port in ("", "22") else f" -p {ssh_port}"
    return f"ssh -N -L {port}:{there}:{port}{at_port} {os.environ.get('USER', 'USER')}@{here}"
