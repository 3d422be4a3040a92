"""Who gets what over the network: tokens, HTTPS, compression, idle and many clients, and that no secret leaves."""

from __future__ import annotations

import gzip
import http.client
import logging
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from stabmon.runlog import in_folder
from stabmon.server.app import create_app
from stabmon.server.thread import Server
from stabmon.server.tls import check_pair
from stabmon.server.token import beyond_this_machine, token_of
from stabmon.sinks.prometheus import Prometheus
from tests.server.recorded import Writing
from tests.server.test_app import BEARER, ELSEWHERE, TOKEN
from tests.server.test_thread import get
from tests.snapshots import RUN, snapshot


def client(open_metrics: bool, address: tuple[str, int] = ELSEWHERE) -> TestClient:
    app = create_app(lambda: b"stabmon_step 3\n", dict, TOKEN, open_metrics=open_metrics)
    return TestClient(app, base_url="http://10.0.0.1:7466", client=address)


@pytest.mark.parametrize(
    ("path", "given", "none_given"),
    [("/metrics", 401, 200), ("/sd", 401, 200), ("/healthz", 200, 200), ("/", 401, 401), ("/api/v1/runs", 401, 401)],
)
def test_from_elsewhere_without_a_token_there_is_metrics_alone_and_only_where_none_was_given(
    path: str, given: int, none_given: int
) -> None:
    assert [client(is_open).get(path).status_code for is_open in (False, True)] == [given, none_given]
    assert client(open_metrics=False).get(path, headers=BEARER).status_code == 200


@pytest.mark.parametrize(("token", "scraped", "told"), [(None, 200, 1), (TOKEN, 401, 0)])
def test_a_server_beyond_this_machine_says_so_where_it_asks_scrapers_for_nothing(
    token: str | None, scraped: int, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(lambda: b"", host="0.0.0.0", port=0, token=token)
    try:
        warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert len(warnings) == told
        assert all("may read /metrics, since no token is given" in warning for warning in warnings)
        mine = _own_address()
        if mine is not None:
            assert get(f"http://{mine}:{server.port}", "/metrics")[0] == scraped
            assert get(f"http://{mine}:{server.port}", "/api/v1/runs")[0] == 401
    finally:
        server.stop()


def _own_address() -> str | None:
    """Of this machine, other than loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))  # sends nothing
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


@pytest.mark.parametrize(
    ("host", "beyond"),
    [("127.0.0.1", False), ("127.9.9.9", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("::", True)],
)
def test_what_is_beyond_this_machine(host: str, beyond: bool) -> None:
    assert beyond_this_machine(host) == beyond


def test_a_token_file_is_the_token_without_its_line_break(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("open-sesame\n", encoding="utf-8")
    assert token_of(None, file) == "open-sesame"
    assert token_of("given-one", None) == "given-one"
    assert token_of(None, None) is None


def test_a_token_file_that_holds_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(ValueError, match="token_file=.*: cannot be read .FileNotFoundError.; give a file with the"):
        token_of(None, file)
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(ValueError, match="token_file=.*: is empty"):
        token_of(None, file)
    file.write_text("open-sesame", encoding="utf-8")
    with pytest.raises(ValueError, match="there is a token, too; give one of the two") as refused:
        token_of("given-one", file)
    assert "open-sesame" not in str(refused.value) + str(refused.value.__context__)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += [
        "-keyout",
        key,
        "-out",
        certificate,
        "-days",
        "2",
        "-subj",
        "/CN=x",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]
    subprocess.run(made, check=True, capture_output=True)
    return certificate, key


def test_with_a_certificate_it_speaks_https_alone(pair: tuple[Path, Path]) -> None:
    server = Server(lambda: b"safe", port=0, token=TOKEN, certificate=pair[0], key=pair[1])
    try:
        assert server.page_url.startswith(f"https://127.0.0.1:{server.port}/?token=")
        context = ssl.create_default_context(cafile=str(pair[0]))
        with urlopen(f"{server.url}/metrics", context=context) as answer:
            assert answer.read() == b"safe"
        with urlopen(server.page_url, context=context) as answer:
            assert "; Secure" in answer.headers["set-cookie"]
        with pytest.raises((http.client.HTTPException, OSError)):
            get(f"http://127.0.0.1:{server.port}", "/metrics")
    finally:
        server.stop()


def test_a_pair_that_cannot_be_served_is_refused_before_the_port_is_taken(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    certificate, key = pair
    other = tmp_path / "other.pem"
    other.write_text("no pem", encoding="utf-8")
    with pytest.raises(ValueError, match="certificate=.* needs key, too"):
        Server(lambda: b"", port=0, certificate=certificate)
    with pytest.raises(ValueError, match="key=.* needs certificate, too"):
        check_pair(None, key)
    for wrong in ((certificate, other), (other, key), (certificate, certificate), (certificate, tmp_path / "none")):
        with pytest.raises(ValueError, match="cannot be served .*; give a PEM certificate and its own key"):
            check_pair(*wrong)


def test_a_key_with_a_password_is_refused_and_not_asked_for(pair: tuple[Path, Path], tmp_path: Path) -> None:
    locked = tmp_path / "locked.pem"
    command = ["openssl", "ec", "-in", pair[1], "-out", locked, "-aes256", "-passout", "pass:secret"]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(ValueError, match="without a password"):
        check_pair(pair[0], locked)


def test_metrics_come_compressed_where_asked_once_per_text(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = []
    compress = gzip.compress

    def counted(text: bytes, level: int) -> bytes:
        packed.append(level)
        return compress(text, level)

    monkeypatch.setattr("stabmon.server.scraping.gzip.compress", counted)
    text = b"stabmon_step 3\n" * 100
    scraper = TestClient(create_app(lambda: text, dict, TOKEN), base_url="http://127.0.0.1", client=("127.0.0.1", 5))
    plain = scraper.get("/metrics", headers={"accept-encoding": "identity"})
    assert ("content-encoding" in plain.headers, plain.content, packed) == (False, text, [])
    for _ in range(3):
        answer = scraper.get("/metrics", headers={"accept-encoding": "gzip"})
        assert answer.headers["content-encoding"] == "gzip"
        assert (answer.content, int(answer.headers["content-length"]) < 200) == (text, True)
    assert packed == [1]


@pytest.fixture
def served() -> Iterator[tuple[Server, Prometheus, list[int]]]:
    metrics, renderings = Prometheus(RUN), []
    fresh = metrics._fresh

    def counted() -> bytes:
        renderings.append(1)
        return fresh()

    metrics._text._render = counted
    server = Server(metrics.render, port=0, token=TOKEN)
    yield server, metrics, renderings
    server.stop()


def test_twenty_scrapes_at_once_are_one_rendering(served: tuple[Server, Prometheus, list[int]]) -> None:
    server, metrics, renderings = served
    metrics._text._clock = lambda: 10.0  # however slow this machine is
    metrics.emit(snapshot(1, 2.0), [], [])
    with ThreadPoolExecutor(20) as pool:
        texts = list(pool.map(lambda _: get(server.url, "/metrics"), range(20)))
    assert len(renderings) == 1
    assert {status for status, _ in texts} == {200}
    assert len({text for _, text in texts}) == 1


def test_fifty_idle_sockets_and_half_a_request_disturb_nobody(served: tuple[Server, Prometheus, list[int]]) -> None:
    server = served[0]
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
    for connection in idle[::2]:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127")
    assert [get(server.url, "/metrics")[0] for _ in range(3)] == [200] * 3
    began = time.perf_counter()
    server.stop()
    assert time.perf_counter() - began < 10
    for connection in idle:
        connection.close()


CANARY, OWN = "canary-7f3a9c", "token-5d1e8b"


def test_no_answer_has_a_secret_of_environment_or_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    monkeypatch.setenv("STABMON_SLACK", f"https://hooks.slack.com/services/{CANARY}")
    folder = tmp_path / CANARY
    folder.mkdir()
    writing = Writing(folder / "r1.stabmon", start=time.time())
    writing.step(3)
    server = Server(Prometheus(writing.run).render, port=0, folder=folder, token=OWN)
    server.announce(folder, "r1")
    try:
        for path in (paths := _paths(server, folder)):
            with urlopen(Request(server.url + path, headers={"authorization": f"Bearer {OWN}"})) as answer:
                headers, body = dict(answer.headers.items()), answer.read().decode()
            cookie = headers.pop("set-cookie", "")
            assert bool(cookie) == (path == "/")
            assert CANARY not in f"{headers}{body}{cookie}", path
            assert OWN not in f"{headers}{body}", path
        assert len(paths) == 11
        told = (folder / "r1.0.target.json").read_text(encoding="utf-8")
        assert OWN not in told
        assert CANARY not in told
    finally:
        server.stop()


def _paths(server: Server, folder: Path) -> list[str]:
    (run,) = in_folder(folder)
    api = ["runs", f"run?run={run}", "series?statistic=loss", "layers?statistic=grad_norm", "alerts", "events"]
    return ["/metrics", "/sd", "/healthz", "/", "/static/main.js", *(f"/api/v1/{path}" for path in api)]


def test_mounted_in_a_users_app_it_works_below_its_path_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "r1.stabmon")
    writing.step(3)
    users = FastAPI()
    mounted = create_app(lambda: b"stabmon_step 3\n", lambda: {"r1": writing.path}, TOKEN, ["api.example.org"])
    users.mount("/stabmon", mounted)

    @users.get("/mine")
    def mine() -> str:
        return "mine"

    browser = TestClient(users, base_url="http://api.example.org", client=ELSEWHERE)
    assert "x-frame-options" not in browser.get("/mine").headers
    assert browser.get("/stabmon/metrics").status_code == 401
    assert browser.get("/stabmon/metrics", headers=BEARER).content == b"stabmon_step 3\n"
    page = browser.get("/stabmon/", params={"token": TOKEN})
    assert "Path=/stabmon;" in page.headers["set-cookie"]
    assert browser.get("/stabmon/static/main.js").status_code == 200
    assert browser.get("/stabmon/api/v1/runs").json()["runs"][0]["id"] == "r1"
    assert browser.get("/stabmon/metrics", headers={"host": "evil.example", **BEARER}).status_code == 400
