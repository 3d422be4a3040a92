"""A target for `notify=` that reaches about a hundred services (ntfy, Discord, PagerDuty, mail) through Apprise."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from stabmon.records import Alert, Severity

_ours: ContextVar[bool] = ContextVar("_ours", default=False)
"""Whether Apprise works for us. A context, since it hands the sending, and its context, to threads of its own."""


class Apprise:
    """`url`: an Apprise URL, which holds the secret, such as `ntfy://topic`; its documentation tells each service's.
    `least`: the least severity that it is told.

    ImportError: Apprise is not installed. ValueError: it cannot use this URL; the text does not show it.
    """

    def __init__(self, url: str, least: Severity = "warning") -> None:
        try:
            import apprise
        except ImportError:
            raise ImportError("Apprise needs the package apprise: pip install 'stabmon[notify]'") from None
        scheme, mark, _ = url.partition("://")
        if not mark or not scheme.isalnum():
            raise ValueError("Apprise: the URL must begin with a service, such as ntfy:// or discord://")
        self.name = f"apprise_{scheme}"
        self.least: Severity = least
        self._kinds = {
            "info": apprise.NotifyType.INFO,
            "warning": apprise.NotifyType.WARNING,
            "critical": apprise.NotifyType.FAILURE,
        }
        self._resolved = apprise.NotifyType.SUCCESS
        self._services = apprise.Apprise()
        with _unheard():
            known = self._services.add(url)
        if not known:
            raise ValueError(
                f"Apprise: cannot use this {scheme}:// URL; see https://appriseit.com/services/ for its form"
            )

    def send(self, alert: Alert) -> None:
        """RuntimeError: the service did not take it."""
        kind = self._resolved if alert.state == "cleared" else self._kinds[alert.severity]
        title, _, body = alert.message.partition("\n")
        with _unheard():
            taken = self._services.notify(title=title, body=body, notify_type=kind)
        if not taken:
            raise RuntimeError(f"{self.name}: the service did not take the alert; `apprise -vv -b test URL` tells why")


@contextmanager
def _unheard() -> Iterator[None]:
    """Apprise and its HTTP client log whole addresses, secrets included: no record of what is done here passes."""
    for name in ("apprise", "urllib3.connectionpool"):
        logging.getLogger(name).addFilter(_of_others)
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


def _of_others(record: logging.LogRecord) -> bool:
    return not _ours.get()
