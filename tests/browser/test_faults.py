"""Bad input: hostile names, values that are not finite, runs that hold next to nothing, a token that is wrong."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from stabmon.records import Event, Site
from stabmon.runlog.marks import marks_of
from stabmon.server.thread import Server
from tests.browser.conftest import TOKEN, Browser, address
from tests.browser.made import Made

HOSTILE = "<img src=x onerror=document.title='owned'>🙂"


def test_hostile_names_are_shown_as_text(browser: Browser, folder: Server, tmp_path: Path) -> None:
    run = Made(tmp_path / "<b>run.stabmon", name=HOSTILE, prefix=f"{HOSTILE}.", start=time.time() - 60)
    site = f"{HOSTILE}.1.ln_1"
    run.steps(59)
    told = run.alert(60, run=HOSTILE, site=site, layer=1, action=HOSTILE, cause=HOSTILE, remedies=(HOSTILE,))
    run.steps(1, alerts=[told], events=[Event(60, run.start + 60, "resume", {HOSTILE: HOSTILE})])
    other = Made(tmp_path / "other.stabmon", name=HOSTILE)
    other.steps(60)
    browser.open(folder.page_url)
    browser.until_shown("<b>run", ".runs")
    browser.run("[...document.querySelectorAll('.runs a')].find((a) => a.innerText.includes('<b>run')).click()")
    browser.until_shown(f"{HOSTILE} {HOSTILE}", ".alert h3")
    browser.press(f"✖ {HOSTILE} {HOSTILE}", ".alert")
    browser.until_shown(f"Layer 1: {site}", "#layer h2")
    browser.press("compare")
    browser.run("document.querySelector('.choices input').click()")
    browser.to("#loss")
    browser.until_shown(HOSTILE, "#loss .legend")
    browser.to("#profile")
    browser.until(lambda: "profile" in browser.drawn())
    browser.press("In words and as a table: Length of every norm's input")
    browser.until_shown(site, "#norm_input_msq table")
    assert browser.text("#name") == HOSTILE
    assert f"({HOSTILE} {HOSTILE})" in browser.text(".events")
    assert browser.run("return document.querySelectorAll('main img, main script, main b b, .runs b').length") == 0
    assert "owned" not in browser.driver.title.replace(HOSTILE, "")
    assert browser.complaints() == []


def odd(step: int, statistic: str, site: Site) -> float | None:
    """From step 40 on Inf everywhere, from step 50 on not read at all."""
    return None if step < 40 else float("inf") if step < 50 else float("nan")


def test_what_is_not_finite_is_marked_everywhere(browser: Browser, folder: Server, tmp_path: Path) -> None:
    run = Made(tmp_path / "odd.stabmon", start=time.time() - 60)
    run.steps(60, change=odd)
    browser.open(address(folder, "odd"))
    browser.until(lambda: {"loss", "norm_input_msq"} <= set(browser.drawn()))
    marks = "return echarts.getInstanceByDom(document.querySelector('#loss .chart')).getOption().series[0].markPoint"
    assert len(browser.run(marks)["data"]) == 10  # steps 40 to 49
    assert "loss not finite" in browser.text("#loss .legend")
    assert "not finite nats" not in browser.text()
    assert "Not finite at step 40 and 9 more." in browser.run("return document.querySelector('#loss-words').innerText")
    assert "not finite" in browser.text("#norm_input_msq .legend")
    words = browser.run("return document.querySelector('#norm_input_msq-words').textContent")
    assert "Not finite first in layer 0 (h.0.ln_1) at step 40." in words
    striped = """
    const canvas = document.querySelector("#norm_input_msq canvas");
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const colours = new Set();
    for (let i = 0; i < pixels.length; i += 4) colours.add(`${pixels[i]},${pixels[i + 1]},${pixels[i + 2]}`);
    return colours.has("255,45,149") && colours.has("16,16,16")
    """
    assert browser.run(striped) is True
    for key in ("profile", "change", "trust", "scores", "curve"):
        browser.to(f"#{key}")
        browser.until(lambda key=key: key in browser.drawn())  # type: ignore[misc]
    assert browser.complaints() == []


def test_a_run_of_one_step_and_one_of_none(browser: Browser, folder: Server, tmp_path: Path) -> None:
    one = Made(tmp_path / "one.stabmon")
    one.steps(1)
    one.close()
    none = Made(tmp_path / "none.stabmon")
    none.close("failed")
    browser.open(address(folder, "one"))
    browser.until(lambda: "norm_gain" in browser.drawn())
    assert browser.text(".shown") == "steps 1 to 1"
    browser.keys("#loss .chart", "+", "-", "0")
    browser.open(address(folder, "none"))
    browser.until_shown("No step", ".verdict")
    browser.until(lambda: browser.text("#state") == "failed")
    assert browser.texts("figure") == ["Loss, in nats"] or browser.texts("figure h3") == ["Loss, in nats"]
    assert browser.complaints() == []


def test_a_run_that_is_not_there_says_so(browser: Browser, folder: Server) -> None:
    browser.open(address(folder, "nowhere"))
    browser.until_shown("there is no run 'nowhere'")


def test_without_the_token_there_is_a_page_that_says_where_it_is(browser: Browser, folder: Server) -> None:
    for there in (f"{folder.url}/", f"{folder.url}/?token=wrong-token"):
        browser.open(there)
        assert "The address that stabmon printed when it started has it" in browser.text()
    assert browser.run("return getComputedStyle(document.querySelector('main')).maxWidth") != "none"  # it is styled


FOREIGN = """
const [address, done] = arguments;
const [json, text] = ["application/json", "text/plain"].map((type) => ({ headers: { "content-type": type } }));
const all = { method: "POST", credentials: "include", body: '{"kind": "false_alarm"}' };
const told = (way) => fetch(address, { ...all, ...way }).then((answer) => answer.type, () => "refused");
navigator.sendBeacon(address, new Blob([all.body], { type: "application/json" }));
const read = fetch(address.replace(/alerts.*mark/, "run"), { credentials: "include" });
const ways = [json, text, { ...text, mode: "no-cors" }, { ...json, mode: "no-cors" }];
Promise.all([...ways.map(told), read.then(() => "read", () => "refused")]).then(done)
"""


class Foreign(BaseHTTPRequestHandler):
    """A page of somebody else on the same host: cookies do not tell ports apart."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>foreign</title>")

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_a_page_from_elsewhere_can_neither_read_nor_mark_with_the_cookie(
    browser: Browser, folder: Server, tmp_path: Path
) -> None:
    run = Made(tmp_path / "r1.stabmon")
    run.steps(60, alerts=[run.alert(60)])
    browser.open(address(folder, "r1"))  # this browser has the cookie from here on
    browser.until_shown("Acknowledge", ".alert")
    with ThreadingHTTPServer(("127.0.0.1", 0), Foreign) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        browser.open(f"http://127.0.0.1:{elsewhere.server_port}/")
        mark = f"{folder.url}/api/v1/alerts/context_stall:60/mark?run=r1"
        found = browser.driver.execute_async_script(FOREIGN, mark)
        elsewhere.shutdown()
    assert found == ["refused", "refused", "opaque", "opaque", "refused"]  # opaque: sent, but as text
    browser.open(f"{folder.url}/?run=r1")
    browser.until_shown("Acknowledge", ".alert")
    assert marks_of(run.path) == []


def test_a_run_without_run_log_says_that_there_is_nothing_to_show(browser: Browser) -> None:
    server = Server(lambda: b"", port=0, token=TOKEN)
    try:
        browser.open(server.page_url)
        browser.until_shown("This run writes no run log")
        assert browser.complaints() == []
    finally:
        browser.open("about:blank")
        server.stop()


def test_no_other_host_is_asked_and_the_token_leaves_the_address(
    browser: Browser, folder: Server, tmp_path: Path
) -> None:
    Made(tmp_path / "r1.stabmon", start=time.time() - 60).steps(60)
    browser.open(address(folder, "r1"))
    browser.until(lambda: "loss" in browser.drawn())
    assert browser.run("return location.href") == f"{folder.url}/?run=r1"
    assert browser.run("return document.cookie") == ""  # HttpOnly
    asked = browser.requested()
    assert any("/api/v1/stream" in url for url in asked)
    assert [url for url in asked if not url.startswith((f"{folder.url}/", "data:", "about:"))] == []
    browser.open(f"{folder.url}/?run=r1")  # the cookie opens it again
    browser.until_shown("Healthy", ".verdict")
    assert browser.complaints() == []
