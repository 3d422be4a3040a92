"""A stand-in for Slack's webhooks, on this machine, and a way to wait for something."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

CANARY = "T0SECRET/B0SECRET/CanaryToken42"


def until(condition: Callable[[], object], seconds: float = 20.0, pause: float = 0.005) -> None:
    """Returns once the condition holds; fails after that many seconds. `pause`: between two looks at it."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(pause)


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: str = "ok"
    headers: dict[str, str] = field(default_factory=dict)


class SlackServer:
    """Gives its answers in turn, then `ok`. While `hold` is set it reads the request and keeps silent."""

    def __init__(self, *answers: Answer) -> None:
        self.messages: list[dict[str, Any]] = []
        """What was accepted with `ok`."""
        self.arrivals: list[float] = []
        """When each request arrived, `time.monotonic()`."""
        self.hold = threading.Event()
        self.answers = list(answers)
        self._let_go = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server.arrivals.append(time.monotonic())
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if server.hold.is_set():
                    server._let_go.wait(30)
                    return
                answer = server.answers.pop(0) if server.answers else Answer()
                if answer == Answer():
                    server.messages.append(message)
                self._reply(answer)

            def do_GET(self) -> None:
                self._reply(Answer(body="<html>log in</html>"))

            def _reply(self, answer: Answer) -> None:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body.encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def webhook(self) -> str:
        return f"{self.base}/services/{CANARY}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)
