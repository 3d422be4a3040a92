import json
import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stabmon.records import Alert
from stabmon.sinks.apprise import Apprise
from stabmon.sinks.notify import Notify
from tests.snapshots import alert, snapshot

ROOT = Path(__file__).parent.parent.parent
# Apprise's mail service imports it, on the Python versions that still have it.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


class Service:
    """Takes what Apprise posts as json://."""

    def __init__(self) -> None:
        self.status = 200
        self.posted: list[dict[str, str]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                service.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(service.status)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://127.0.0.1:{self.http.server_address[1]}/CanaryToken"


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    made.http.shutdown()
    made.http.server_close()
    thread.join(5)


def now(state: str = "raised") -> Alert:
    return replace(alert(4, "critical", state), time=time.time())


def test_an_alert_arrives_with_its_headline_as_title(service: Service) -> None:
    notify = Notify(Apprise(service.url))
    notify.emit(snapshot(4), [now(), now("cleared")], [])
    notify.close("finished")
    raised, cleared = service.posted
    assert (raised["title"], raised["type"]) == ("r1 is not learning. Restart", "failure")
    assert raised["message"] == now().message.partition("\n")[2]
    assert cleared["type"] == "success"


def test_a_refusal_is_counted_and_neither_it_nor_success_shows_the_url(
    service: Service, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    notify = Notify(Apprise(service.url))
    notify.emit(snapshot(4), [now()], [])
    service.status = 404
    notify.emit(snapshot(4), [replace(now(), detector="other")], [])
    notify.close("finished")
    assert (notify.delivery.failed + notify.delivery.sent, len(service.posted)) == (2, 2)
    assert "Canary" not in repr(notify) + str(vars(notify)) + "".join(capfd.readouterr())
    assert "Canary" not in caplog.text


def test_it_is_named_after_the_service_so_that_two_of_them_differ(service: Service) -> None:
    assert Notify(Apprise(service.url)).name == "apprise_json"


def test_readmes_recipes_are_urls_that_apprise_takes() -> None:
    urls = re.findall(r'Apprise\("([^"]+)"', (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [Apprise(url).name for url in urls] == [f"apprise_{s}" for s in ("ntfy", "discord", "tgram", "pagerduty")]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("CanaryToken", "the URL must begin with a service, such as ntfy:// or discord://"),
        ("nosuch://CanaryToken", "cannot use this nosuch:// URL; see https://appriseit.com/services/"),
        ("discord://CanaryToken", "cannot use this discord:// URL"),
    ],
)
def test_a_url_it_cannot_use_is_refused_without_showing_it(
    url: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ValueError, match="Apprise: ") as raised:
        Apprise(url)
    assert words in str(raised.value)
    assert "Canary" not in str(raised.value) + caplog.text


def test_without_the_package_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['apprise'] = None\nfrom stabmon.sinks.apprise import Apprise\nApprise('ntfy://x')"
    failed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert failed.stderr.splitlines()[-1] == (
        "ImportError: Apprise needs the package apprise: pip install 'stabmon[notify]'"
    )
