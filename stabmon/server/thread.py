"""The server inside the training process: one daemon thread that touches neither signals nor training."""

from __future__ import annotations

import atexit
import errno
import os
import secrets
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote
from weakref import WeakSet

from stabmon.runlog import in_folder

DEFAULT_PORT = 7466

_listening: WeakSet[socket.socket] = WeakSet()


class Server:
    """Serves page, API and `metrics` (the Prometheus text) until `stop` or the end of the process.

    `port`: given, it must be free (OSError); None takes 7466 or, where that is taken, any free one. `run_log`: the
    file of the run that this process watches, which need not be there yet; None: it writes none. `folder`: serve the
    run logs in it instead. `token`: what page and API ask for; None: a new one.
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
    ) -> None:
        # Imported here: half a second and 35 MB that only a serving process should pay.
        import uvicorn

        from stabmon.server.app import create_app

        self._token = token or secrets.token_urlsafe(16)
        self._closing = threading.Event()
        own = {run_log.stem: run_log} if run_log else {}
        run_logs = (lambda: own) if folder is None else partial(in_folder, folder)
        app = create_app(metrics, run_logs, self._token, [host], folder is None, self._closing.is_set)
        self._socket = bind(host, port)
        self._address = self._socket.getsockname()
        _listening.add(self._socket)
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            loop="asyncio",
            ws="none",
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="stabmon-server", daemon=True
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
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def page_url(self) -> str:
        """Where the page is, with the token: for its user's eyes."""
        return f"{self.url}/?token={quote(self._token)}"

    @property
    def tunnel(self) -> str | None:
        """The command that brings the page to the machine at the other end of this SSH session; None without one."""
        local = self._address[0] if self._address[0] not in ("0.0.0.0", "::") else "127.0.0.1"
        return tunnel(local, self.port)

    def stop(self) -> None:
        """Ends it within three seconds. May be called twice."""
        atexit.unregister(self.stop)
        self._closing.set()
        self._server.should_exit = True
        self._thread.join(3)
        self._socket.close()


def tunnel(host: str, port: int) -> str | None:
    """`ssh -N -L …`, to be typed at the other end of this SSH session; None where there is none."""
    _, _, here, ssh_port = (os.environ.get("SSH_CONNECTION", "").split() + [""] * 4)[:4]
    if not here:
        return None
    there = f"[{host}]" if ":" in host else host
    at_port = "" if ssh_port in ("", "22") else f" -p {ssh_port}"
    return f"ssh -N -L {port}:{there}:{port}{at_port} {os.environ.get('USER', 'USER')}@{here}"


def bind(host: str, port: int | None) -> socket.socket:
    """A listening socket. Bound before uvicorn starts: in a thread its failure to bind would go unnoticed.

    OSError: names address and port, and what to do.
    """
    try:
        return _listen(host, DEFAULT_PORT if port is None else port)
    except OSError as error:
        if port is None and error.errno == errno.EADDRINUSE:
            return _listen(host, 0)
        raise OSError(error.errno, _advice(error, host, port)) from None


def _listen(host: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, port), family=family)


def _advice(error: OSError, host: str, port: int | None) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port={port} is taken on {host}; give another, or leave it out for any free one"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"host={host!r} is no address of this machine ({error.strerror}); 127.0.0.1 serves this machine alone"
    return f"cannot listen on {host}, port={port} ({error.strerror}); give another port, or leave it out"


def _close_in_child() -> None:
    """A forked data loader worker that outlives training would keep the port taken."""
    for listener in list(_listening):
        listener.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
