import socket

import pytest
from fastapi.testclient import TestClient

from stabmon.server.app import create_app


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app(lambda: b"stabmon_step 3\n", hosts=["Trainer-0"]), base_url="http://127.0.0.1:7466")


def test_metrics_are_the_rendered_bytes_with_the_type_that_prometheus_wants(client: TestClient) -> None:
    response = client.get("/metrics")
    assert (response.status_code, response.content) == (200, b"stabmon_step 3\n")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_every_scrape_asks_for_the_text_anew() -> None:
    numbers = iter([b"1", b"2"])
    client = TestClient(create_app(lambda: next(numbers)), base_url="http://127.0.0.1")
    assert [client.get("/metrics").content for _ in range(2)] == [b"1", b"2"]


def test_health_and_a_page_that_names_what_is_there(client: TestClient) -> None:
    assert client.get("/healthz").text == "ok\n"
    index = client.get("/")
    assert (index.status_code, index.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert {line.split()[0] for line in index.text.splitlines() if line.startswith("/")} == {"/metrics", "/healthz"}


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/nothing"])
def test_no_answer_may_be_sniffed_nor_read_across_origins(client: TestClient, path: str) -> None:
    headers = client.get(path, headers={"origin": "http://evil.example"}).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert not [name for name in headers if name.startswith("access-control") or name == "set-cookie"]


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/nothing"])
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(client: TestClient, method: str) -> None:
    assert client.request(method, "/metrics").status_code == 405


def test_head_is_answered_without_a_body(client: TestClient) -> None:
    response = client.head("/metrics")
    assert (response.status_code, response.content) == (200, b"")


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
def test_only_addresses_and_own_names_are_answered(client: TestClient, host: str, status: int) -> None:
    response = client.get("/metrics", headers={"host": host})
    assert response.status_code == status
    assert response.headers["x-content-type-options"] == "nosniff"
    assert (b"stabmon_step" in response.content) == (status == 200)
