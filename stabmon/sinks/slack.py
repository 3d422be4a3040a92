"""Alerts to a Slack channel, through an incoming webhook. The webhook's address is a secret: no text here holds it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit

from stabmon.records import Alert, Event, Run, RunState, Severity, Snapshot
from stabmon.sinks.delivery import Delivery, NotNow, Refused, Why
from stabmon.sinks.ledger import Ledger
from stabmon.sinks.slack_message import compose
from stabmon.sinks.spool import spool_in

_TIMEOUT_SECONDS = 10
_ADVICE = "make an incoming webhook in Slack and pass its whole address, https://hooks.slack.com/services/…"


class Slack:
    """A sink. A message is on disk when `emit` returns, and on its way in a thread of its own.

    `webhook`: its address; ValueError if it cannot be one. `spool`: folder of what is not delivered yet (`spool_of`),
    from which earlier runs' leftovers are sent, too; None: nothing is kept on disk. `link`: where the run can be
    looked at, asked anew for each message. `least`: the least severity that is worth a message. `ledger`: as in
    Delivery.
    """

    name = "slack"

    def __init__(
        self,
        webhook: str,
        run: Run,
        spool: Path | None,
        link: Callable[[], str | None] = lambda: None,
        least: Severity = "warning",
        ledger: Ledger | None = None,
    ) -> None:
        self._webhook = _Webhook(webhook)
        self._run = run
        self._link = link
        self.delivery = Delivery(self.name, self._send, spool, least, ledger)

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        self.delivery.take(alerts)

    def close(self, state: RunState) -> None:
        """Waits a few seconds for what is under way; the rest stays in the spool."""
        self.delivery.close()

    def _send(self, alerts: Sequence[Alert], why: Why) -> None:
        """Another run's alerts get neither this one's link nor its name."""
        run = None if why == "left_over" else self._run
        link = None
        with suppress(Exception):  # a message without a link is better than none
            link = self._link() if run else None
        self._webhook.post(compose(alerts, run, link, why))


def spool_of(folder: Path) -> Path:
    """Where, in a folder of runs, alerts lie that Slack does not have yet."""
    return spool_in(folder, Slack.name)


def resend(folder: Path, webhook: str, patience: float = 10.0) -> int:
    """Sends what runs in `folder` left undelivered, unless their process lives; how many alerts Slack took.

    Takes no longer than `patience` seconds; what is then left stays for the next call. ValueError: no webhook.
    """
    post = _Webhook(webhook).post
    ledger = Ledger(folder)
    delivery = Delivery(
        Slack.name, lambda alerts, why: post(compose(alerts, None, None, why)), spool_of(folder), ledger=ledger
    )
    delivery.close(patience)
    return delivery.sent


class _Webhook:
    """Slack's own client, kept from telling the address: it logs it, and some errors quote it."""

    def __init__(self, address: str) -> None:
        check(address)
        # Imported here: a sixth of a second that only a run with Slack should pay.
        from slack_sdk.http_retry.builtin_handlers import RateLimitErrorRetryHandler, ServerErrorRetryHandler
        from slack_sdk.webhook import WebhookClient

        # In no hierarchy and over every level: it hands no record to anyone, whatever the program configures.
        silent = logging.Logger("stabmon.slack", level=logging.CRITICAL + 1)
        retries = [RateLimitErrorRetryHandler(max_retry_count=1), ServerErrorRetryHandler(max_retry_count=1)]
        self._client = WebhookClient(address, timeout=_TIMEOUT_SECONDS, logger=silent, retry_handlers=retries)

    def post(self, message: dict[str, Any]) -> None:
        """Returns when Slack has it. NotNow, Refused: in words of our own, and without the client's error attached."""
        status, answer = self._try(message)
        if status == 400 and "block" in answer:  # a plain message is better than none
            status, answer = self._try({"text": message["text"]})
        if status == 200 and answer.strip() == "ok":
            return
        if status == 0:
            raise NotNow(f"Slack cannot be reached ({answer})")
        if status == 429 or status >= 500:
            raise NotNow(f"Slack answered {status}")
        raise Refused(f"Slack refused a message ({status} {_code(answer)}); check the webhook")

    def _try(self, message: dict[str, Any]) -> tuple[int, str]:
        """HTTP status and body; status 0 and a reason without addresses if there was no answer."""
        try:
            answer = self._client.send_dict(message)
        except Exception as error:
            return 0, _reason(error)
        return answer.status_code, answer.body


def check(address: str) -> None:
    """ValueError if it cannot be a webhook's address; the text shows no more of it than scheme and host."""
    if problem := _problem(address):
        raise ValueError(f"slack: {problem}; {_ADVICE}")


def _problem(address: str) -> str:
    scheme, host, rest = "", "", ""
    with suppress(ValueError):
        parts = urlsplit(address)
        if parts.port != 0 and "@" not in parts.netloc:  # ValueError if the port is no number
            scheme, host, rest = parts.scheme, parts.hostname or "", parts.path.strip("/")
    if scheme not in ("http", "https") or not host or not address.isascii() or not address.isprintable():
        return "the webhook is no web address"
    if " " in address:
        return f"the webhook at {scheme}://{host} has a space in it"
    if scheme == "http" and not _is_loopback(host):
        return f"the webhook at http://{host} is not encrypted; it must begin with https://"
    return "" if rest else f"the webhook at {scheme}://{host} has nothing after the host"


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _reason(error: Exception) -> str:
    """What went wrong on the network, as the system names it, which knows no addresses."""
    cause = error.reason if isinstance(error, URLError) else error
    if isinstance(cause, TimeoutError):
        return "timed out"
    return (cause.strerror if isinstance(cause, OSError) else None) or type(cause).__name__


def _code(answer: str) -> str:
    """Slack's one-word reason, such as `no_service`; nothing else of what came back."""
    word = answer.strip()
    return word if re.fullmatch("[a-z_]{1,60}", word) else "and not in Slack's words"
