"""The adapter and the commands against a stand-in that answers as Grafana's documentation says."""

from __future__ import annotations

import json
import logging
import socket
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stabmon.cli import app
from stabmon.grafana import Annotations, Grafana, GrafanaError, annotate_run, shipped
from stabmon.records import RESUME, Event
from stabmon.runlog import read
from tests.grafana_server import PAGE, TOKEN, GrafanaServer, grafana_server
from tests.server.recorded import Writing, alert

ROOT = Path(__file__).parent.parent
UIDS = {path.stem for path in (ROOT / "dashboards").glob("*.json")}


@pytest.fixture
def server() -> Iterator[GrafanaServer]:
    with grafana_server() as found:
        yield found


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["grafana", *arguments])
    return done.exit_code, done.output


def token_file(folder: Path, token: str = TOKEN) -> str:
    path = folder / "token"
    path.write_text(f"{token}\n")
    return str(path)


def test_push_puts_all_dashboards_into_the_folder_and_may_be_repeated(server: GrafanaServer, tmp_path: Path) -> None:
    for _ in range(2):
        code, output = run("push", "--url", server.url, "--token-file", token_file(tmp_path))
        assert code == 0, output
        assert f"{server.url}/d/stabmon-run/stabmon-run" in output
    assert set(server.dashboards) == UIDS
    assert len(UIDS) == 6
    assert server.folders == {"stabmon": "stabmon"}
    assert {body["folderUid"] for body in server.dashboards.values()} == {"stabmon"}


def test_push_uses_a_folder_that_is_there_under_another_uid(server: GrafanaServer, tmp_path: Path) -> None:
    server.folders = {"f1": "ML", "f2": "training"}
    code, _ = run("push", "--url", server.url, "--token-file", token_file(tmp_path), "--folder", "ML")
    assert code == 0
    assert {body["folderUid"] for body in server.dashboards.values()} == {"f1"}
    assert server.folders == {"f1": "ML", "f2": "training"}


def test_push_makes_the_data_source_once_and_the_dashboards_choose_it(server: GrafanaServer, tmp_path: Path) -> None:
    asked = ["--url", server.url, "--token-file", token_file(tmp_path), "--datasource", "my prom/1"]
    for address in ("http://prometheus:9090", "http://other:9090"):
        assert run("push", *asked, "--prometheus", address)[0] == 0
    assert [(s["url"], s["type"]) for s in server.sources.values()] == [("http://prometheus:9090", "prometheus")]
    chosen = [b["dashboard"]["templating"]["list"][0]["current"]["value"] for b in server.dashboards.values()]
    assert chosen == ["uid-0"] * 6


def test_an_unknown_data_source_is_told_of_before_anything_is_pushed(server: GrafanaServer, tmp_path: Path) -> None:
    asked = ["--url", server.url, "--token-file", token_file(tmp_path), "--datasource", "typo"]
    code, output = run("push", *asked)
    assert (code, server.dashboards, server.folders) == (2, {}, {})
    assert "Data source not found" in output


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((401, '{"message": "Invalid API key"}'), "401 (Invalid API key): the token is not known there"),
        ((403, '{"message": "Permissions needed: dashboards:create"}'), "403 (Permissions needed: dashboards:create)"),
        ((404, '{"message": "Not found"}'), "404 (Not found): there is no such thing there"),
        ((412, '{"message": "changed by someone else"}'), "412 (changed by someone else)"),
        ((400, '{"message": "Cannot save provisioned dashboard"}'), "400 (Cannot save provisioned dashboard)"),
        ((502, PAGE), "answered with an error page"),
        ((502, "<html>Bad Gateway</html>"), "502: try again later"),
        ((200, "<html>Sign in</html>"), "answered with a page where JSON was due"),
    ],
)
def test_each_refusal_says_what_to_do(server: GrafanaServer, answer: tuple[int, str], told: str) -> None:
    grafana = Grafana(server.url, TOKEN)
    server.folders["stabmon"] = "stabmon"
    server.next_answers = [answer]
    with pytest.raises(GrafanaError) as raised:
        grafana.push(shipped(), "stabmon")
    assert told in str(raised.value)
    assert TOKEN not in str(raised.value)


def test_an_answer_without_a_body_is_a_success(server: GrafanaServer) -> None:
    server.next_answers = [(204, "")]
    Grafana(server.url, TOKEN).annotate(1.0, "text", ["stabmon"])


def test_one_that_does_not_answer_is_given_up_in_time(server: GrafanaServer) -> None:
    server.hold.clear()
    with pytest.raises(GrafanaError, match=r"did not answer in time \(ReadTimeout\)"):
        Grafana(server.url, TOKEN, timeout=0.2).health()


def test_one_that_is_not_there_is_told_of_in_a_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listened on: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        code, output = run("push", "--url", url, "--token-file", token_file(tmp_path))
    assert code == 2
    assert output == f"stabmon: {url} cannot be reached (ConnectionError); is it running there?\n"


def test_one_that_is_no_grafana_is_told_of(server: GrafanaServer) -> None:
    server.next_answers = [(200, "[1]")]
    with pytest.raises(GrafanaError, match="not as a Grafana does"):
        Grafana(server.url, TOKEN).health()


@pytest.mark.parametrize("body", ["[]", "[{}]", "[3]", "3", '"x"', "null", "", "{}", '{"uid": 5}', '{"message": null}'])
def test_answers_of_any_other_form_are_told_of_in_a_line(server: GrafanaServer, tmp_path: Path, body: str) -> None:
    """At each request of a push that makes its data source, finds its folder, and saves a dashboard."""
    asked = ["--url", server.url, "--token-file", token_file(tmp_path), "--prometheus", "http://p"]
    for usual in range(6):
        server.folders, server.sources = {"f1": "stabmon"}, {}
        right = [(200, '{"version": "1"}'), (200, "{}"), (200, '{"uid": "u"}'), (412, "{}"), (200, "[]")]
        server.next_answers = [*right[:usual], (200, body)]
        code, output = run("push", *asked)
        assert (code, output[:9]) in ((0, "Grafana 1"), (2, "stabmon: ")), output
        assert code == 0 or output.count("\n") == 1


@pytest.mark.parametrize("text", ["glsa_canary\nsecond", "glsa canary", "tök", "\0"])
def test_what_is_no_token_is_refused_and_not_shown(server: GrafanaServer, tmp_path: Path, text: str) -> None:
    code, output = run("push", "--url", server.url, "--token-file", token_file(tmp_path, text))
    assert (code, "canary" in output) == (2, False)
    assert output == "stabmon: the token is none of Grafana's: it is one line of letters, digits and signs\n"


def test_an_empty_folder_and_an_address_of_prometheus_that_is_none_are_refused(
    server: GrafanaServer, tmp_path: Path
) -> None:
    asked = ["--url", server.url, "--token-file", token_file(tmp_path)]
    assert run("push", *asked, "--folder", " ")[1].startswith("stabmon: folder is empty; give the folder's title")
    assert run("push", *asked, "--prometheus", "prometheus:9090") == (
        2,
        "stabmon: prometheus is no address of Prometheus; give one such as http://127.0.0.1:9090\n",
    )


NO_ADDRESSES = ["127.0.0.1:3000", "ftp://g", "http://", "http://user:password@g", "http://[::1", "http://g:99999"]


@pytest.mark.parametrize("url", [*NO_ADDRESSES, "http://a b"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="give one such as http://127.0.0.1:3000") as raised:
        Grafana(url, TOKEN)
    assert "password" not in str(raised.value)


def test_an_empty_token_file_is_told_of(tmp_path: Path) -> None:
    code, output = run("push", "--url", "http://127.0.0.1:1", "--token-file", token_file(tmp_path, ""))
    assert code == 2
    assert "is empty; put the token of a service account of Grafana into it" in output


def test_without_grafana_api_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "grafana_api.grafana_face", None)
    code, output = run("push", "--url", "http://127.0.0.1:1", "--token-file", token_file(tmp_path))
    assert code == 2
    assert output == "stabmon: Grafana needs the package grafana-api: pip install 'stabmon[grafana]'\n"


def test_alerts_become_marks_of_their_run_as_they_come(server: GrafanaServer) -> None:
    Annotations(server.url, TOKEN).send(alert(7))
    (mark,) = server.annotations
    assert (mark["time"], mark["tags"]) == (1_000_007_000, ["stabmon", "run:r1"])
    assert mark["text"].startswith("r1 is not learning: every token gets the same answer.")
    assert mark["text"].endswith("\ncritical · context_stall · step 7, layer 1")


def test_a_recorded_run_is_marked_once_with_alerts_and_restarts(server: GrafanaServer, tmp_path: Path) -> None:
    path = tmp_path / "r1.stabmon"
    writing = Writing(path)
    writing.step(2, alerts=[alert(2), alert(2, state="cleared")], events=[Event(2, 5.0, RESUME, {"at": 1})])
    writing.close()
    grafana = Grafana(server.url, TOKEN)
    assert annotate_run(grafana, read(path)) == 3
    assert annotate_run(grafana, read(path)) == 0
    texts = [mark["text"][:14] for mark in server.annotations]
    assert texts == ["r1 is not lear", "over: r1 is no", "resumed at ste"]


def test_the_token_is_in_no_log_line(server: GrafanaServer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        run("push", "--url", server.url, "--token-file", token_file(tmp_path))
    assert caplog.records
    assert TOKEN not in caplog.text


def test_the_wheel_has_every_dashboard() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = package["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    wanted = {f"dashboards/{uid}.json": f"stabmon/dashboards/{uid}.json" for uid in UIDS}
    assert included == wanted
    assert {board["uid"] for board in json.loads(json.dumps(shipped()))} == UIDS
