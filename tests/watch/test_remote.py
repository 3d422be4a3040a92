"""A run over HTTP: the numbers of the run log, and one clear line for whatever goes wrong."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from stabmon.server.thread import Server
from stabmon.watch.remote import Remote
from stabmon.watch.source import Local, NoAnswer
from stabmon.watch.view import look
from tests.server.recorded import Writing, alert

TOKEN = "open-sesame"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, `r2` the newest; in `r1` losses that are not finite and an alert."""
    folder = tmp_path_factory.mktemp("runs")
    first = Writing(folder / "r1.stabmon")
    first.step(60)
    first.step(3, loss=float("inf"), alerts=[alert(63)])
    first.close()
    second = Writing(folder / "sub" / "r2.stabmon", name="r2")
    second.step(5)
    second.close()
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    server = Server(lambda: b"", folder=folder, port=0, token=TOKEN)
    yield server
    server.stop()


def refusal(address: str, token: str | None = TOKEN, run: str | None = None) -> NoAnswer:
    with pytest.raises(NoAnswer) as caught:
        Remote(address, lambda: token, run).run()
    text = str(caught.value)
    assert TOKEN not in text
    assert "\n" not in text
    return caught.value


def test_it_is_what_the_run_log_says(server: Server, folder: Path) -> None:
    far = look(Remote(server.page_url, lambda: None, "r1"))
    near = look(Local(folder / "r1.stabmon"))
    # Both end years ago, a moment apart.
    assert far.model_copy(update={"age": near.age}) == near
    assert (far.losses[-1], far.alerts[0].detector, far.signals[0].factor) == (float("inf"), "context_stall", 63)


def test_the_run_is_that_of_the_address_or_the_newest_and_stays_it(server: Server, folder: Path) -> None:
    address = f"{server.url}/?run=r1&token={TOKEN}"
    assert look(Remote(address, lambda: None)).run == "r1"
    source = Remote(server.page_url, lambda: None)
    assert look(source).run == "r2"
    later = Writing(folder / "r3.stabmon", name="r3")
    later.step()
    later.close()
    assert look(source).run == "r2"
    assert look(Remote(server.page_url, lambda: None)).run == "r3"


def test_the_token_may_be_given_apart_from_the_address(server: Server) -> None:
    assert Remote(server.url, lambda: TOKEN, "r1").run().step == 63


def test_a_missing_and_a_wrong_token_are_told_apart(server: Server) -> None:
    missing, wrong = refusal(server.url, None), refusal(server.url, "guessed-it")
    assert f"{server.url} asks for a token; give the whole address that it printed" in str(missing)
    assert f"{server.url} takes another token; a training makes a new one at each start" in str(wrong)
    assert not missing.passing
    assert not wrong.passing


def test_a_run_that_is_not_there_is_named(server: Server) -> None:
    assert "there is no run 'r9'" in str(refusal(server.url, run="r9"))


def test_a_server_that_is_down_may_come_back(folder: Path) -> None:
    server = Server(lambda: b"", folder=folder, port=0, token=TOKEN)
    source = Remote(server.page_url, lambda: None, "r1")
    assert source.run().step == 63
    server.stop()
    with pytest.raises(NoAnswer, match=rf"no answer from {server.url} \(connection refused\)") as caught:
        source.run()
    assert caught.value.passing
    again = Server(lambda: b"", folder=folder, port=server.port, token=TOKEN)
    try:
        assert source.run().step == 63
    finally:
        again.stop()


class _Other(BaseHTTPRequestHandler):
    """Some other server: a page, a redirect elsewhere, an error, half an answer."""

    asked: list[str | None] = []

    def do_GET(self) -> None:
        self.asked.append(self.headers["Authorization"])
        kind = self.path.split("/")[1]
        self.send_response({"elsewhere": 302, "broken": 500, "missing": 404}.get(kind, 200))
        if kind == "elsewhere":
            self.send_header("Location", "/page/")
        if kind == "half":
            self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"<html>hello</html>")

    def log_message(self, *args: object) -> None:
        """Silent."""


@pytest.fixture(scope="module")
def other() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Other)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("path", "said", "passing"),
    [
        ("page", "answers, but not as this version of stabmon does", False),
        ("missing", "answers 404 Not Found", False),
        ("broken", "answers 500 Internal Server Error", True),
        ("half", "no answer from", True),
    ],
)
def test_another_server_is_told_of(other: str, path: str, said: str, passing: bool) -> None:
    found = refusal(f"{other}/{path}/")
    assert said in str(found)
    assert found.passing is passing


def test_a_token_is_not_sent_on_by_a_redirect(other: str) -> None:
    _Other.asked.clear()
    refusal(f"{other}/elsewhere/")
    assert _Other.asked == [f"Bearer {TOKEN}", None]


@pytest.mark.parametrize("address", ["http://", "http://[::1", "http://host:99999/", "http://host:port/"])
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Remote(address, lambda: None)


def test_a_token_that_cannot_be_sent_is_told_without_it() -> None:
    assert "letters that cannot be sent" in str(refusal("http://127.0.0.1:9/", f"{TOKEN}\n\u2603"))


def test_a_file_with_the_token_that_is_missing_is_told(server: Server, tmp_path: Path) -> None:
    def token() -> str:
        raise ValueError("token_file=x: cannot be read")

    with pytest.raises(NoAnswer, match="token_file=x: cannot be read"):
        Remote(server.url, token).run()
