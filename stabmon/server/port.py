"""The listening socket: found, or refused with advice."""

from __future__ import annotations

import errno
import os
import socket
from weakref import WeakSet

DEFAULT_PORT = 7466

_listening: WeakSet[socket.socket] = WeakSet()


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


def is_free(host: str, port: int) -> bool:
    """Whether one could listen there now."""
    try:
        _listen(host, port).close()
    except (OSError, OverflowError):
        return False
    return True


def _listen(host: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    listener = socket.create_server((host, port), family=family)
    _listening.add(listener)
    return listener


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
