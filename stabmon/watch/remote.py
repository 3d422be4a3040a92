"""A run that a training or `stabmon serve` serves."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.client import HTTPException
from ipaddress import ip_address
from typing import TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from pydantic import ValidationError

from stabmon.server import models
from stabmon.server.numbers import Answer
from stabmon.watch.source import NoAnswer

TIMEOUT_SECONDS = 5.0
_NO_TOKEN = "give the whole address that it printed (…/?token=…), or set STABMON_TOKEN or STABMON_TOKEN_FILE"
_OTHER_TOKEN = "a training makes a new one at each start, unless one is given: open the address that it printed last"
_Answer = TypeVar("_Answer", bound=Answer)


class Remote:
    """`address`: the page's, with its token or without; `token` is asked each time where the address has none.

    ValueError: the address is none.
    """

    def __init__(self, address: str, token: Callable[[], str | None], run: str | None = None) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError(f"{address!r} is no address; give one such as http://127.0.0.1:7466/?token=…")
        asked = parse_qs(parts.query)
        self.name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._base = f"{self.name}{parts.path.rpartition('/')[0]}/api/v1/"
        given = asked.get("token", [None])[0]
        self._token = token if given is None else lambda: given
        self._run = run or asked.get("run", [None])[0]
        self._opener = _opener(parts.hostname)

    def run(self) -> models.Run:
        found = self._get(models.Run, "run")
        self._run = found.id  # the newest may be another one by and by
        return found

    def alerts(self) -> models.Alerts:
        return self._get(models.Alerts, "alerts")

    def series(self, statistic: str, points: int, site: str | None = None) -> models.Series:
        return self._get(models.Series, "series", statistic=statistic, points=points, site=site)

    def profile(self, statistic: str) -> models.Profile:
        return self._get(models.Profile, "profile", statistic=statistic)

    def _get(self, kind: type[_Answer], what: str, **asked: str | int | None) -> _Answer:
        query = urlencode({name: value for name, value in {**asked, "run": self._run}.items() if value is not None})
        request = Request(f"{self._base}{what}?{query}")
        if token := self._given():
            # Not sent on to wherever a redirect leads.
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as response:
                text = response.read()
        except HTTPError as error:
            with error:
                raise self._refused(error, token is not None) from None
        except (OSError, HTTPException) as error:
            why = error.reason if isinstance(error, URLError) else error
            raise NoAnswer(f"no answer from {self.name} ({_words(why)})", passing=True) from None
        except ValueError:  # its text may show the token
            raise NoAnswer(f"{self.name}: the address or the token has letters that cannot be sent", False) from None
        try:
            return kind.model_validate_json(text)
        except ValidationError:
            raise NoAnswer(
                f"{self.name} answers, but not as this version of stabmon does; give the address that stabmon printed",
                passing=False,
            ) from None

    def _given(self) -> str | None:
        try:
            return self._token()
        except ValueError as error:
            raise NoAnswer(str(error), passing=False) from None

    def _refused(self, error: HTTPError, has_token: bool) -> NoAnswer:
        if error.code == 401:
            trouble = f"takes another token; {_OTHER_TOKEN}" if has_token else f"asks for a token; {_NO_TOKEN}"
            return NoAnswer(f"{self.name} {trouble}", passing=False)
        said = _detail(error)
        return NoAnswer(f"{self.name}: {said or f'answers {error.code} {error.reason}'}", passing=error.code >= 500)


def _opener(host: str) -> OpenerDirector:
    """A proxy is not asked for what is on this machine."""
    try:
        own = ip_address(host).is_loopback
    except ValueError:
        own = host == "localhost"
    return build_opener(ProxyHandler({})) if own else build_opener()


def _detail(error: HTTPError) -> str:
    """What stabmon says of a refusal; "" where another server speaks."""
    try:
        said = json.loads(error.read(10_000))["detail"]
        return said if isinstance(said, str) and said != "Not Found" else ""
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return ""


def _words(why: object) -> str:
    if isinstance(why, OSError) and why.strerror:
        return why.strerror.lower()
    return str(why) or type(why).__name__
