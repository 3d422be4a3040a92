import hashlib
import re
import socket
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from stabmon.server.app import create_app
from tests.server.recorded import Writing

TOKEN = "open-sesame"
BEARER = {"authorization": f"Bearer {TOKEN}"}
PAGE = Path(__file__).parent.parent.parent / "stabmon" / "server" / "page"
LOOPBACK = ("127.0.0.1", 50000)
ELSEWHERE = ("10.0.0.7", 50000)


def made(address: tuple[str, int] = LOOPBACK, run_logs: dict[str, Path] | None = None) -> TestClient:
    app = create_app(lambda: b"stabmon_step 3\n", lambda: run_logs or {}, TOKEN, hosts=["Trainer-0"])
    return TestClient(app, base_url="http://127.0.0.1:7466", client=address)


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    writing = Writing(tmp_path / "r1.stabmon")
    writing.step(3)
    writing.close()
    return made(run_logs={"r1": writing.path})


def test_metrics_are_the_rendered_bytes_with_the_type_that_prometheus_wants(client: TestClient) -> None:
    response = client.get("/metrics")
    assert (response.status_code, response.content) == (200, b"stabmon_step 3\n")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_every_scrape_asks_for_the_text_anew() -> None:
    numbers = iter([b"1", b"2"])
    app = create_app(lambda: next(numbers), dict, TOKEN)
    client = TestClient(app, base_url="http://127.0.0.1", client=LOOPBACK)
    assert [client.get("/metrics").content for _ in range(2)] == [b"1", b"2"]


@pytest.mark.parametrize(
    ("address", "status"),
    [("127.0.0.1", 200), ("127.9.9.9", 200), ("::1", 200), ("::ffff:127.0.0.1", 200), ("10.0.0.7", 401), ("x", 401)],
)
def test_scrapes_from_other_machines_need_the_token(address: str, status: int) -> None:
    client = made((address, 50000))
    assert client.get("/metrics").status_code == status
    assert client.get("/metrics", headers=BEARER).status_code == 200


def test_health_needs_nothing(client: TestClient) -> None:
    assert client.get("/healthz").text == "ok\n"
    assert made(ELSEWHERE).get("/healthz").status_code == 200


API = ["/api/v1/runs", "/api/v1/run", "/api/v1/series", "/api/v1/layers?statistic=norm_gain", "/api/v1/alerts"]


@pytest.mark.parametrize("path", ["/", *API, "/api/v1/events", "/api/v1/stream"])
def test_page_and_api_refuse_whoever_lacks_the_token_or_has_another(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 401
    for wrong in ("", "x", "é", TOKEN[:-1], TOKEN + "x"):
        assert client.get(path, headers={"authorization": f"Bearer {wrong}".encode()}).status_code == 401
        assert client.get(path, params={"token": wrong}).status_code == 401
    assert client.get(path, headers={"authorization": f"Basic {TOKEN}"}).status_code == 401


def test_the_refusal_is_a_page_that_says_where_the_address_is(client: TestClient) -> None:
    page = client.get("/", params={"token": "wrong"})
    assert page.headers["content-type"].startswith("text/html")
    assert "The address that stabmon printed when it started has it" in page.text
    assert TOKEN not in page.text
    assert "set-cookie" not in page.headers


@pytest.mark.parametrize("path", ["/api/v1/runs", "/api/v1/run"])
def test_the_token_opens_as_bearer_and_in_the_address(client: TestClient, path: str) -> None:
    assert client.get(path, headers=BEARER).status_code == 200
    assert client.get(path, params={"token": TOKEN}).status_code == 200


@pytest.mark.parametrize("token", ["", "short", "with space", "with;semicolon", "with-ümlaut", "line\nbreak"])
def test_a_token_that_does_not_fit_an_address_or_can_be_guessed_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(ValueError, match="it takes 8 or more letters, digits and -._~; leave it out") as refused:
        create_app(lambda: b"", dict, token)
    assert not token or token not in str(refused.value)


def test_a_page_opened_with_the_token_leaves_a_cookie_that_opens_the_api() -> None:
    app = create_app(lambda: b"", dict, "plain-token")
    client = TestClient(app, base_url="http://127.0.0.1:7466")
    cookie = client.get("/", params={"token": "plain-token"}).headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert client.get("/api/v1/runs").status_code == 200
    assert client.get("/").status_code == 200


def test_runs_with_other_tokens_have_other_cookies() -> None:
    # Browsers send a cookie to every port of a host.
    names = set()
    for token in ("token-one", "token-two"):
        client = TestClient(create_app(lambda: b"", dict, token), base_url="http://127.0.0.1")
        names.add(client.get("/", params={"token": token}).headers["set-cookie"].split("=")[0])
    assert len(names) == 2


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/nothing", "/static/main.js", "/api/v1/runs"])
def test_no_answer_may_be_sniffed_framed_or_read_across_origins(client: TestClient, path: str) -> None:
    headers = client.get(path, headers={"origin": "http://evil.example", **BEARER}).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'self'"
    assert "script-src" not in policy
    assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/nothing", "/api/v1/nothing"])
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path, headers=BEARER).status_code == 404


@pytest.mark.parametrize(
    "path", ["/", "/metrics", "/static/main.js", "/runbook/nonfinite", "/api/v1/runs", "/api/v1/run"]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(client: TestClient, path: str, method: str) -> None:
    assert client.request(method, path, headers=BEARER).status_code == 405


@pytest.mark.parametrize("path", ["/metrics", "/", "/static/main.js", "/api/v1/run"])
def test_head_is_answered(client: TestClient, path: str) -> None:
    assert client.head(path, headers=BEARER).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:7466", 200),
        ("127.0.0.1", 200),
        ("10.1.2.3:9", 200),
        ("[::1]:7466", 200),
        ("[fe80::1]", 200),
        ("localhost:7466", 200),
        ("LOCALHOST", 200),
        (f"{socket.gethostname()}:80", 200),
        ("trainer-0:7466", 200),
        ("evil.example", 400),
        ("evil.example:7466", 400),
        ("127.0.0.1.evil.example", 400),
        ("localhost.evil.example", 400),
        ("user@evil.example", 400),
        ("[::1", 400),
        ("", 400),
    ],
)
@pytest.mark.parametrize("path", ["/metrics", "/api/v1/runs"])
def test_only_our_own_names_are_served(client: TestClient, path: str, host: str, status: int) -> None:
    assert client.get(path, headers={"host": host, **BEARER}).status_code == status


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/static/main.js", "text/javascript; charset=utf-8"),
        ("/static/style.css", "text/css; charset=utf-8"),
        ("/static/echarts.min.js", "text/javascript; charset=utf-8"),
        ("/runbook/context_stall", "text/plain; charset=utf-8"),
    ],
)
def test_the_pages_files_need_no_token_and_come_compressed_where_asked(path: str, kind: str) -> None:
    client = made(ELSEWHERE)
    plain = client.get(path, headers={"accept-encoding": "identity"})
    packed = client.get(path, headers={"accept-encoding": "gzip"})
    assert (plain.status_code, plain.headers["content-type"]) == (200, kind)
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])
    assert client.get(path, headers={"if-none-match": plain.headers["etag"]}).status_code == 304


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e%2fapp.py", "/static/nothing.js", "/static/"]
)
def test_no_other_file_is_served(path: str) -> None:
    assert made().get(path).status_code == 404


def test_the_chart_library_is_the_one_whose_checksum_and_licence_lie_beside_it() -> None:
    told, name = (PAGE / "echarts.min.js.sha256").read_text(encoding="utf-8").split()
    assert hashlib.sha256((PAGE / name).read_bytes()).hexdigest() == told
    licence = (PAGE / "echarts.LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence
    assert "Mike Bostock" in licence  # d3, of which the library has a part


def test_the_page_asks_no_other_host_and_has_no_inline_script() -> None:
    for file in PAGE.iterdir():
        if file.suffix in (".html", ".js", ".css") and not file.name.startswith("echarts"):
            text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"https?:|//[a-z]+\.", text), file.name
            assert "innerHTML" not in text, file.name
            assert not re.search(r"<script(?! src=| type=\"module\" src=)", text), file.name
