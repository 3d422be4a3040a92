"""Grafana over its HTTP API: folder, dashboards, data source, annotations, health. Only here is grafana-api known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from stabmon.records import RESUME, Alert, Severity
from stabmon.runlog import Recorded

TIMEOUT_SECONDS = 10.0
TAG = "stabmon"
_HERE = Path(__file__).parent
_ADVICE = {
    401: "the token is not known there; make one for a service account with the role Editor (Admin for a data source)",
    403: "the token may not do this; its service account needs the role Editor (Admin for a data source)",
    404: "there is no such thing there; check the address, with its path if Grafana is served under one",
}


class GrafanaError(ValueError):
    """What went wrong, with whom, and what to do. The token is never in it."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status
        """Of HTTP; 0 where there was no answer, or none of Grafana's."""


class Grafana:
    """`url`: Grafana's address, such as `http://127.0.0.1:3000`, with its path where it is served under one.

    ImportError: grafana-api is not installed. ValueError: `url` is no address, or `token` none of Grafana's. All
    methods: GrafanaError.
    """

    def __init__(self, url: str, token: str, timeout: float = TIMEOUT_SECONDS) -> None:
        try:
            from grafana_api.grafana_face import GrafanaFace
        except ImportError:
            raise ImportError("Grafana needs the package grafana-api: pip install 'stabmon[grafana]'") from None
        parts = _address(url, "url", "Grafana; give one such as http://127.0.0.1:3000")
        token = token.strip()
        if not re.fullmatch(r"[!-~]+", token):
            raise ValueError("the token is none of Grafana's: it is one line of letters, digits and signs")
        self.url = url.rstrip("/")
        host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
        prefix = parts.path.strip("/")
        self._api = GrafanaFace(
            auth=token,
            host=host,
            port=parts.port,
            url_path_prefix=f"{prefix}/" if prefix else "",
            protocol=parts.scheme,
            timeout=timeout,
        ).api

    def health(self) -> str:
        """Its version."""
        return self._text_in(self._one("/health"), "version")

    def ensure_folder(self, title: str) -> str:
        """The uid of the folder of that title; made if there is none."""
        if not title.strip():
            raise ValueError("folder is empty; give the folder's title, or leave it out for stabmon")
        try:
            return self._text_in(self._one("/folders", "POST", {"title": title, "uid": _uid_of(title)}), "uid")
        except GrafanaError as error:
            if error.status not in (409, 412):  # it is there already, maybe under a uid that somebody else gave
                raise
        there = [folder for folder in self._many("/folders?limit=1000") if folder.get("title") == title]
        return self._text_in(there[0], "uid") if there else _uid_of(title)

    def ensure_source(self, name: str, prometheus: str | None = None) -> str:
        """The uid of the data source of that name; with the address of a `prometheus`, made if there is none."""
        if prometheus is not None:
            _address(prometheus, "prometheus", "Prometheus; give one such as http://127.0.0.1:9090")
            body = {"name": name, "type": "prometheus", "access": "proxy", "url": prometheus}
            try:
                self._ask("/datasources", "POST", body)
            except GrafanaError as error:
                if error.status not in (409, 412):
                    raise
        return self._text_in(self._one(f"/datasources/name/{quote(name, safe='')}"), "uid")

    def push(self, dashboards: Sequence[Mapping[str, Any]], folder: str) -> list[str]:
        """Puts dashboards into the folder of that uid, over those with their own uid. Their addresses."""
        found = []
        for dashboard in dashboards:
            body = {"dashboard": {**dashboard, "id": None}, "folderUid": folder, "overwrite": True}
            answer, path = self._one("/dashboards/db", "POST", body), urlsplit(self.url).path
            found.append(self.url.removesuffix(path) + str(answer.get("url") or f"{path}/d/{dashboard['uid']}"))
        return found

    def annotate(self, time: float, text: str, tags: Sequence[str]) -> None:
        """A mark at that Unix time, on every dashboard that asks for these tags."""
        self._ask("/annotations", "POST", {"time": round(1000 * time), "text": text, "tags": list(tags)})

    def annotated(self, tags: Sequence[str]) -> set[tuple[int, str]]:
        """Unix milliseconds and text of the marks that have all these tags."""
        asked = urlencode([*(("tags", tag) for tag in tags), ("limit", "10000"), ("type", "annotation")])
        return {(mark.get("time", 0), mark.get("text", "")) for mark in self._many(f"/annotations?{asked}")}

    def _one(self, path: str, method: str = "GET", body: object = None) -> dict[str, Any]:
        """Empty where Grafana's answer has no body."""
        found = self._ask(path, method, body) or {}
        if not isinstance(found, dict):
            raise self._strange()
        return found

    def _many(self, path: str) -> list[dict[str, Any]]:
        found = self._ask(path) or []
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise self._strange()
        return found

    def _text_in(self, answer: Mapping[str, Any], name: str) -> str:
        found = answer.get(name)
        if not isinstance(found, str):
            raise self._strange()
        return found

    def _strange(self) -> GrafanaError:
        return GrafanaError(f"{self.url} answers, but not as a Grafana does; check the address")

    def _ask(self, path: str, method: str = "GET", body: object = None) -> Any:
        """Grafana's answer; None where it has no body."""
        from grafana_api.grafana_api import GrafanaException
        from requests import RequestException
        from requests.exceptions import JSONDecodeError

        send: Callable[..., Any] = getattr(self._api, method)
        try:
            return send(path) if body is None else send(path, json=body)
        except JSONDecodeError as error:
            if not error.doc:
                return None
            raise GrafanaError(f"{self.url} answered with a page where JSON was due; is that Grafana?") from None
        except GrafanaException as error:
            raise GrafanaError(self._told(error.status_code, error.response), error.status_code) from None
        except TypeError:  # grafana-api stumbles over an error page that has the word "message" in it
            raise GrafanaError(f"{self.url} answered with an error page; is that Grafana?") from None
        except RequestException as error:
            why = "did not answer in time" if "Timeout" in type(error).__name__ else "cannot be reached"
            raise GrafanaError(f"{self.url} {why} ({type(error).__name__}); is it running there?") from None
        except ValueError:  # it sends us on to what is no address
            raise self._strange() from None

    def _told(self, status: int, response: object) -> str:
        said = response.get("message") if isinstance(response, dict) else None
        advice = _ADVICE.get(status) or ("try again later" if status >= 500 else "")
        return f"{self.url} says {status}{f' ({said})' if said else ''}{f': {advice}' if advice else ''}"


class Annotations:
    """A target for `notify=`: every alert becomes a mark in Grafana's own annotations, tagged with its run."""

    name = "grafana"

    def __init__(self, url: str, token: str, least: Severity = "warning") -> None:
        self.least: Severity = least
        self._grafana = Grafana(url, token)

    def send(self, alert: Alert) -> None:
        self._grafana.annotate(alert.time, _text(alert), _tags(alert.run))


def _address(url: str, name: str, whose: str) -> SplitResult:
    """ValueError: it is none."""
    with suppress(ValueError):  # of urlsplit: a port or brackets that cannot be
        parts = urlsplit(url)
        plain = parts.hostname and not parts.username and not re.search(r"\s", url)
        if parts.scheme in ("http", "https") and plain and parts.port != 0:
            return parts
    raise ValueError(f"{name} is no address of {whose}")


def annotate_run(grafana: Grafana, recorded: Recorded) -> int:
    """Marks the alerts and the restarts of a recorded run that are not marked yet. How many it added."""
    tags = _tags(recorded.run.name)
    there = grafana.annotated(tags)
    marks = [(alert.time, _text(alert)) for alert in recorded.alerts if alert.severity != "info"]
    for _, events in recorded.feeds():
        marks += [(e.time, f"resumed at step {e.detail.get('at', e.step)}") for e in events if e.kind == RESUME]
    new = [(time, text) for time, text in marks if (round(1000 * time), text) not in there]
    for time, text in new:
        grafana.annotate(time, text, tags)
    return len(new)


def shipped(source: str | None = None) -> list[dict[str, Any]]:
    """The dashboards that come with stabmon. `source`: uid of the data source that they choose first."""
    folders = (_HERE / "dashboards", _HERE.parent / "dashboards")
    files = next((found for folder in folders if (found := sorted(folder.glob("stabmon-*.json")))), [])
    dashboards: list[dict[str, Any]] = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    for variable in (d["templating"]["list"][0] for d in dashboards if source):
        variable["current"] = {"text": source, "value": source}
    return dashboards


def _uid_of(title: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else "-" for c in title.lower())[:40]


def _tags(run: str) -> list[str]:
    return [TAG, f"run:{run}"]


def _text(alert: Alert) -> str:
    where = "" if alert.layer is None else f", layer {alert.layer}"
    over = "over: " if alert.state == "cleared" else ""
    return f"{over}{alert.headline}\n{alert.severity} · {alert.detector} · step {alert.step}{where}"
