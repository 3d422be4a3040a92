import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stabmon.server.thread import Server
from tests.browser.conftest import Browser
from tests.server.recorded import Writing, alert, snapshot

TOKEN = "open-sesame"
DRAWN = """
return [...document.querySelectorAll("canvas")].filter((canvas) => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(pixels.buffer)).size > 20;
}).length
"""


TILE = """
const tiles = [...document.querySelectorAll(".tile")];
return tiles.find((tile) => tile.firstChild.textContent === arguments[0])?.lastChild.textContent
"""


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    """A run of which a step ends now."""
    return Writing(tmp_path / "r1.stabmon", start=time.time())


@pytest.fixture
def server(browser: Browser, writing: Writing) -> Iterator[Server]:
    made = Server(lambda: b"stabmon_step 1\n", port=0, run_log=writing.path, token=TOKEN)
    yield made
    browser.open("about:blank")
    made.stop()


@pytest.fixture
def folder(browser: Browser, tmp_path: Path) -> Iterator[Server]:
    made = Server(lambda: b"", port=0, folder=tmp_path, token=TOKEN)
    yield made
    browser.open("about:blank")
    made.stop()


def tile(browser: Browser, title: str) -> str:
    return str(browser.run(TILE, title)).strip()


def test_verdict_numbers_charts_and_alert_are_shown(browser: Browser, server: Server, writing: Writing) -> None:
    writing.step(60, loss=3.1, monitor_seconds=0.02, step_seconds=1.0)
    writing.step(1, loss=3.1, alerts=[alert(61)])
    browser.open(server.page_url)
    browser.until_shown("Critical since step 59", ".verdict")
    assert "Is not learning: every token gets the same answer. Restart with lr <= 3e-4." in browser.text(".verdict")
    assert browser.text("#name") == "r1"
    assert browser.text("#state") == "running"
    assert tile(browser, "Step") == "61"
    assert tile(browser, "Loss") == "3.1 nats"
    assert tile(browser, "Position-dependent output") == "50 %"
    assert tile(browser, "stabmon's own time").startswith("2.0 %")
    card = browser.text(".alert")
    for words in (
        "r1 is not learning",
        "layer 1 (h.1.ln)",
        "loss\n3.1",
        "norm input msq\nnot finite",
        "Cut the learning rate",
    ):
        assert words in card
    browser.until(lambda: browser.run(DRAWN) >= 6)  # loss, another curve, four pictures
    titles = browser.run("return [...document.querySelectorAll('.panel h2')].map((h) => h.textContent)")
    assert {"Length of every norm's input", "Gain of every norm", "Gradient of every block"} <= set(titles)


def test_new_rows_and_alerts_arrive_without_a_reload_and_the_console_stays_empty(
    browser: Browser, server: Server, writing: Writing
) -> None:
    writing.step(60)
    browser.open(server.page_url)
    browser.until_shown("Healthy", ".verdict")
    browser.run("window.same = true")
    writing.start = time.time() - 61
    writing.step(3, loss=2.25)
    browser.until(lambda: (tile(browser, "Step"), tile(browser, "Loss")) == ("63", "2.25 nats"))
    writing.step(1, alerts=[alert(64, "warning")])
    browser.until_shown("Warning since step 62", ".verdict")
    browser.until_shown("r1 is not learning", "#alerts")
    assert browser.run("return window.same") is True
    assert browser.complaints() == []


def test_no_other_host_is_asked_and_the_token_leaves_the_address(
    browser: Browser, server: Server, writing: Writing
) -> None:
    writing.step(60)
    browser.open(server.page_url)
    browser.until(lambda: browser.run(DRAWN))
    assert browser.run("return location.href") == f"{server.url}/"
    assert browser.run("return document.cookie") == ""  # HttpOnly
    asked = browser.requested()
    assert any("/api/v1/stream" in url for url in asked)
    assert [url for url in asked if not url.startswith((f"{server.url}/", "data:", "about:"))] == []
    browser.open(f"{server.url}/")  # the cookie opens it again
    browser.until_shown("Healthy", ".verdict")


def test_hostile_names_are_shown_as_text(browser: Browser, folder: Server, tmp_path: Path) -> None:
    hostile = "<img src=x onerror=document.title='owned'>"
    run = Writing(tmp_path / "<b>run.stabmon", name=hostile, start=time.time() - 60)
    run.step(59)
    run.step(1, alerts=[alert(60, run=hostile, site=hostile, action=hostile, cause=hostile, remedies=(hostile,))])
    browser.open(folder.page_url)
    browser.until_shown("<b>run", ".runs")
    browser.run("document.querySelector('.runs a').click()")
    browser.until_shown(hostile, ".verdict")
    browser.until_shown(f"{hostile} {hostile}", ".alert h3")
    browser.until(lambda: browser.run(DRAWN))
    assert browser.text("#name") == hostile
    assert browser.run("return document.querySelectorAll('main img, main script, .runs b').length") == 0
    assert "owned" not in browser.driver.title.replace(hostile, "")
    assert browser.complaints() == []


def test_a_run_that_fell_silent_is_dimmed_and_says_for_how_long(
    browser: Browser, server: Server, writing: Writing
) -> None:
    writing.start = time.time() - 100
    writing.step(60)
    browser.open(server.page_url)
    browser.until_shown("No data for", ".verdict")
    browser.until_shown("no data for", "#freshness")
    assert browser.run("return document.body.classList.contains('stale')") is True


def test_when_the_server_is_gone_the_page_says_since_when(browser: Browser, server: Server, writing: Writing) -> None:
    writing.start = time.time() - 60
    writing.step(60)
    browser.open(server.page_url)
    browser.until_shown("last step", "#freshness")
    server.stop()
    browser.until_shown("Connection lost at", "#freshness")
    # Each second the page looks again whether there is something to do; that must not make it forget.
    browser.run("window.looks = 0; setInterval(() => window.looks++, 500)")
    browser.until(lambda: browser.run("return window.looks") >= 4)
    assert "Connection lost at" in browser.text("#freshness")
    assert browser.run("return document.body.classList.contains('stale')") is True


def test_a_run_before_its_first_step_says_so(browser: Browser, server: Server, writing: Writing) -> None:
    browser.open(server.page_url)
    browser.until_shown("No step yet", ".verdict")
    browser.until_shown("no step yet", "#freshness")
    writing.start = time.time()
    writing.step(1)
    browser.until_shown("No alert so far", ".verdict")
    browser.until(lambda: browser.run(DRAWN) >= 5)  # the pictures have come with it
    assert "Gain of every norm" in browser.text(".charts")
    assert browser.complaints() == []


def test_a_finished_run_is_told_as_finished(browser: Browser, server: Server, writing: Writing) -> None:
    writing.step(60)
    browser.open(server.page_url)
    browser.until_shown("Healthy", ".verdict")
    writing.close("finished")
    browser.until_shown("Finished", ".verdict")
    assert browser.text("#state") == "finished"


def test_without_the_token_there_is_a_page_that_says_where_it_is(browser: Browser, server: Server) -> None:
    for address in (f"{server.url}/", f"{server.url}/?token=wrong-token"):
        browser.open(address)
        assert "The address that stabmon printed when it started has it" in browser.text()
    assert browser.run("return getComputedStyle(document.querySelector('main')).maxWidth") != "none"  # it is styled


def test_a_run_without_run_log_says_that_there_is_nothing_to_show(browser: Browser) -> None:
    server = Server(lambda: b"", port=0, token=TOKEN)
    try:
        browser.open(server.page_url)
        browser.until_shown("This run writes no run log")
        assert browser.complaints() == []
    finally:
        browser.open("about:blank")
        server.stop()


def test_a_folder_is_a_list_that_leads_to_its_runs(browser: Browser, folder: Server, tmp_path: Path) -> None:
    older = Writing(tmp_path / "older.stabmon")
    older.step(5, loss=3.0)
    older.close("failed")
    (tmp_path / "text.stabmon").write_text("x" * 4096, encoding="utf-8")
    browser.open(folder.page_url)
    browser.until_shown("Cannot be read: text.stabmon is not a readable stabmon run log", ".runs")
    assert "Failed" in browser.text(".runs")
    newer = Writing(tmp_path / "sub" / "newer.stabmon", name="newer", start=time.time())
    newer.step(60)
    browser.until_shown("sub/newer", ".runs tbody tr:first-child")
    browser.run("document.querySelector('.runs a').click()")
    browser.until_shown("Healthy", ".verdict")
    assert browser.text("#name") == "newer"


def test_a_long_run_can_be_looked_at_by_its_last_steps(browser: Browser, server: Server, writing: Writing) -> None:
    for step in range(1, 1601):
        writing.emit(snapshot(step, start=writing.start, layers=step % 10 == 0))
    browser.open(server.page_url)
    browser.until_shown("last 1,000", ".panel")
    browser.requested()
    browser.run("[...document.querySelectorAll('button')].find((b) => b.textContent === 'last 1,000').click()")
    browser.until(lambda: [url for url in browser.requested() if "statistic=loss" in url and "from=601" in url])
    assert browser.complaints() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_light_and_dark(browser: Browser, server: Server, writing: Writing, scheme: str) -> None:
    writing.step(60)
    writing.step(1, alerts=[alert(61)])
    browser.size(390, 844)
    browser.colours(scheme)
    browser.open(server.page_url)
    browser.until(lambda: browser.run(DRAWN) >= 6)
    assert browser.run("return document.documentElement.scrollWidth") <= 390
    ground = browser.run("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (max(ground) < 80) == (scheme == "dark")
