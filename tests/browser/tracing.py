"""What kept the page's main thread busy, told by the browser's own trace."""

import json
from typing import Any, NamedTuple
from urllib.request import urlopen

import websocket
from selenium import webdriver

_CATEGORIES = ["devtools.timeline", "disabled-by-default-devtools.timeline", "blink.user_timing", "blink"]
_PARTS = 3


class Task(NamedTuple):
    """One turn of the main thread's loop. `cpu`: milliseconds that it computed, `wall`: that it took, which grows while
    other programs have the processor. `parts`: what in it computed longest."""

    cpu: float
    wall: float
    parts: str


class Trace:
    """Of all that the browser does from now until `tasks` is asked. The page draws meanwhile."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        at = driver.capabilities["goog:chromeOptions"]["debuggerAddress"]
        with urlopen(f"http://{at}/json/version", timeout=60) as answer:
            address = json.load(answer)["webSocketDebuggerUrl"]
        self._socket = websocket.create_connection(address, suppress_origin=True, timeout=60)
        self._ask("Tracing.start", traceConfig={"includedCategories": _CATEGORIES, "excludedCategories": ["*"]})
        self._until("id")

    def tasks(self) -> list[Task]:
        """Of the page's main thread, longest first; the trace ends."""
        self._ask("Tracing.end")
        events: list[dict[str, Any]] = []
        while (message := self._until("method"))["method"] != "Tracing.tracingComplete":
            events += message["params"].get("value", [])
        self._socket.close()
        return sorted(_tasks(events), reverse=True)

    def _ask(self, method: str, **parameters: object) -> None:
        self._socket.send(json.dumps({"id": 1, "method": method, "params": parameters}))

    def _until(self, key: str) -> dict[str, Any]:
        """The next message that has this key: `id` of an answer, `method` of an event."""
        while True:
            message: dict[str, Any] = json.loads(self._socket.recv())
            assert "error" not in message, message
            if key in message:
                return message


def _tasks(events: list[dict[str, Any]]) -> list[Task]:
    # The browser has pages of its own.
    pages = {event["pid"] for event in events if event["name"] == "charts drawn"}
    threads = {(event["pid"], event["tid"]): event["args"] for event in events if event["name"] == "thread_name"}
    ours = [
        event
        for event in events
        if event["pid"] in pages
        and event["ph"] == "X"
        and threads.get((event["pid"], event["tid"])) == {"name": "CrRendererMain"}
    ]
    # A task that runs within another one, as a frame does, has the same name.
    return [
        Task(_computed(event) / 1e3, event["dur"] / 1e3, _parts(event, ours))
        for event in ours
        if event["name"] == "RunTask" and _computed(event) > 1e3
    ]


def _computed(event: dict[str, Any]) -> float:
    """In microseconds; those that took less have none."""
    return float(event.get("tdur", 0))


def _parts(task: dict[str, Any], events: list[dict[str, Any]]) -> str:
    end = task["ts"] + task["dur"]
    inside = [e for e in events if e is not task and task["ts"] <= e["ts"] and e["ts"] + e["dur"] <= end]
    longest = sorted(inside, key=_computed, reverse=True)[:_PARTS]
    return ", ".join(f"{event['name']} {_computed(event) / 1e3:.0f}" for event in longest)
