import http.client
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from stabmon.server.port import DEFAULT_PORT, bind
from stabmon.server.thread import Server, tunnel
from tests.server.recorded import Writing

ROOT = Path(__file__).parent.parent.parent


def get(url: str, path: str) -> tuple[int, bytes]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(lambda: b"stabmon_step 3\n", port=free_port())
    yield made
    made.stop()


def test_it_serves_from_the_moment_it_exists(server: Server) -> None:
    assert get(server.url, "/metrics") == (200, b"stabmon_step 3\n")


def test_a_given_port_is_used(server: Server) -> None:
    assert server.url == f"http://127.0.0.1:{server.port}"


def test_a_given_port_that_is_taken_is_refused_by_number_with_advice(server: Server) -> None:
    with pytest.raises(OSError, match=f"port={server.port} is taken on 127.0.0.1; give another, or leave it out"):
        Server(lambda: b"", port=server.port)


def test_without_a_port_a_taken_default_gives_another_one() -> None:
    first = bind("127.0.0.1", None)  # the default port, or another where something on this machine has it
    with first, bind("127.0.0.1", None) as second:
        assert second.getsockname()[1] not in (DEFAULT_PORT, first.getsockname()[1])


@pytest.mark.parametrize("host", ["no-such-host.invalid", "203.0.113.7"])
def test_a_foreign_address_is_refused_with_advice(host: str) -> None:
    with pytest.raises(OSError, match=f"host='{host}' is no address of this machine .*; 127.0.0.1 serves this machine"):
        bind(host, None)


def test_an_ipv6_address_is_written_in_brackets() -> None:
    server = Server(lambda: b"six", host="::1", port=0)
    try:
        assert server.url == f"http://[::1]:{server.port}"
        assert get(server.url, "/metrics") == (200, b"six")
    finally:
        server.stop()


def test_stop_frees_the_port_and_ends_the_thread_and_may_come_twice() -> None:
    before = threading.active_count()
    server = Server(lambda: b"", port=0)
    assert get(server.url, "/healthz")[0] == 200
    assert threading.active_count() == before + 1
    server.stop()
    server.stop()
    assert threading.active_count() == before
    bind("127.0.0.1", server.port).close()


def test_signal_handlers_stay_as_they_were(server: Server) -> None:
    get(server.url, "/healthz")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_requests_leave_no_word_in_the_log(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        get(server.url, "/metrics")
        get(server.url, "/nothing")
    assert [r.getMessage() for r in caplog.records if r.name.startswith("uvicorn")] == []


ASKED = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n"
STRANGE = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\xff\r\n\r\n",
    "a header of a megabyte": ASKED + b"X: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "two hosts": ASKED + b"Host: evil.example\r\n\r\n",
    "a socket of the web": ASKED + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "a gigabyte that never comes": ASKED.replace(b"GET", b"POST") + b"Content-Length: 1000000000\r\n\r\nx",
}


def test_what_strangers_send_is_answered_and_leaves_no_word_in_the_log(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    answers = {name: b"cut off" for name in STRANGE}
    with caplog.at_level(logging.DEBUG):
        for name, sent in STRANGE.items():
            with (
                socket.create_connection(("127.0.0.1", server.port), timeout=10) as stranger,
                suppress(ConnectionError),
            ):
                stranger.sendall(sent)
                answers[name] = stranger.recv(12).removeprefix(b"HTTP/1.1 ")
    assert answers.pop("a header of a megabyte") in (b"400", b"cut off", b"")
    assert list(answers.values()) == [b"400", b"400", b"200", b"405"]
    assert [r.getMessage() for r in caplog.records if r.name.startswith("uvicorn")] == []
    assert get(server.url, "/metrics") == (200, b"stabmon_step 3\n")


def test_a_users_own_uvicorn_is_heard_as_before(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    assert get(server.url, "/healthz")[0] == 200
    with caplog.at_level(logging.INFO):
        logging.getLogger("uvicorn.error").info("Uvicorn running on http://0.0.0.0:80")
    assert [r.getMessage() for r in caplog.records] == ["Uvicorn running on http://0.0.0.0:80"]


def test_a_rendering_that_fails_is_a_500_and_the_server_lives_on(caplog: pytest.LogCaptureFixture) -> None:
    def metrics() -> bytes:
        raise RuntimeError("broken")

    server = Server(metrics, port=0)
    try:
        assert get(server.url, "/metrics")[0] == 500
        assert get(server.url, "/healthz")[0] == 200
    finally:
        server.stop()


def run(code: str) -> subprocess.CompletedProcess[str]:
    lines = (
        "import os, sys, urllib.request; from stabmon.server.thread import Server\n"
        "server = Server(lambda: b'x', port=0)\n"
        "assert urllib.request.urlopen(server.url + '/metrics').read() == b'x'\n"
    )
    return subprocess.run(
        [sys.executable, "-c", lines + code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("code", "status"),
    [("", 0), ("sys.exit(3)", 3), ("1 / 0", 1), ("import signal; os.kill(os.getpid(), signal.SIGTERM)", -15)],
)
def test_a_script_that_forgets_to_stop_it_ends_as_it_would_without(code: str, status: int) -> None:
    ended = run(code)
    assert ended.returncode == status
    assert ended.stdout == ""
    assert ("ZeroDivisionError" in ended.stderr) == (status == 1)
    assert ended.stderr == "" or status == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_does_not_hold_the_port() -> None:
    ended = run(
        "ready, done = os.pipe(), os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.write(ready[1], b'.'); os.read(done[0], 1); os._exit(0)\n"
        "os.read(ready[0], 1)\n"
        "port = server.port; server.stop()\n"
        "Server(lambda: b'', port=port).stop()  # taken, were the child still listening\n"
        "os.write(done[1], b'.'); os.wait(); print('free')"
    )
    assert (ended.returncode, ended.stdout) == (0, "free\n"), ended.stderr


def test_importing_it_does_not_import_the_web_framework() -> None:
    code = "import sys, stabmon.server.thread; print({'fastapi', 'uvicorn'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert out == "set()\n"


def test_the_page_is_at_an_address_with_a_token_of_its_own() -> None:
    servers = [Server(lambda: b"", port=0) for _ in range(2)]
    try:
        assert servers[0].page_url.startswith(f"{servers[0].url}/?token=")
        tokens = [urlsplit(server.page_url).query.removeprefix("token=") for server in servers]
        assert tokens[0] != tokens[1]
        assert min(map(len, tokens)) >= 20
        assert get(servers[0].url, f"/?token={tokens[0]}")[0] == 200
        assert get(servers[0].url, f"/?token={tokens[1]}")[0] == 401
    finally:
        for server in servers:
            server.stop()


def test_the_run_of_this_process_is_served_from_its_run_log_once_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "r1.stabmon"
    server = Server(lambda: b"", port=0, run_log=path, token="open-sesame")
    try:
        assert json.loads(get(server.url, "/api/v1/runs?token=open-sesame")[1])["live"] is True
        assert get(server.url, "/api/v1/run?token=open-sesame")[0] == 404
        Writing(path).step(4)
        assert json.loads(get(server.url, "/api/v1/run?token=open-sesame")[1])["step"] == 4
    finally:
        server.stop()


def test_without_a_run_log_there_is_no_run_to_show() -> None:
    server = Server(lambda: b"", port=0, token="open-sesame")
    try:
        found = json.loads(get(server.url, "/api/v1/runs?token=open-sesame")[1])
        assert (found["live"], found["runs"]) == (True, [])
    finally:
        server.stop()


def test_a_token_that_is_not_allowed_leaves_no_port_taken() -> None:
    port = free_port()
    with pytest.raises(ValueError, match="the token is not allowed"):
        Server(lambda: b"", port=port, token="short")
    bind("127.0.0.1", port).close()


def test_an_open_stream_ends_with_the_server_without_a_word_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writing = Writing(tmp_path / "r1.stabmon")
    server = Server(lambda: b"", port=0, run_log=writing.path, token="open-sesame")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", "/api/v1/stream?token=open-sesame")
    stream = connection.getresponse()
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert stream.readline() == b"event: rows\n"
    writing.step(3)
    told = [stream.readline() for _ in range(4)]
    assert json.loads(told[3].removeprefix(b"data: "))["step"] == 3
    before = threading.active_count()
    server.stop()
    assert threading.active_count() == before - 1
    assert stream.read() == b"\n"
    connection.close()
    assert caplog.records == []


@pytest.mark.parametrize(
    ("connection", "command"),
    [
        ("10.0.0.2 50000 10.0.0.9 22", "ssh -N -L 7466:127.0.0.1:7466 me@10.0.0.9"),
        ("10.0.0.2 50000 10.0.0.9 2222", "ssh -N -L 7466:127.0.0.1:7466 -p 2222 me@10.0.0.9"),
        ("", None),
    ],
)
def test_in_an_ssh_session_there_is_a_command_that_brings_the_page_home(
    monkeypatch: pytest.MonkeyPatch, connection: str, command: str | None
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", connection)
    monkeypatch.setenv("USER", "me")
    assert tunnel("127.0.0.1", 7466) == command


def test_an_ipv6_tunnel_has_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "fe80::2 50000 fe80::9 22")
    monkeypatch.setenv("USER", "me")
    assert tunnel("::1", 7466) == "ssh -N -L 7466:[::1]:7466 me@fe80::9"
