"""A run that goes on while it is looked at: news, silence, ends, restarts of trainer and server, odd clocks."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stabmon.records import PLANNED, Event
from stabmon.server.thread import Server
from tests.browser.conftest import TOKEN, Browser, address
from tests.browser.made import Made


@pytest.fixture
def run(tmp_path: Path) -> Made:
    """A run of which a step ends about now."""
    return Made(tmp_path / "r1.stabmon", start=time.time() - 60)


@pytest.fixture
def server(browser: Browser, run: Made) -> Iterator[Server]:
    """As in the training process."""
    made = Server(lambda: b"stabmon_step 1\n", port=0, run_log=run.path, token=TOKEN)
    yield made
    browser.open("about:blank")
    made.stop()


def is_dimmed(browser: Browser) -> bool:
    return bool(browser.run("return document.body.classList.contains('stale')"))


def test_new_rows_alerts_and_the_end_arrive_without_a_reload(browser: Browser, server: Server, run: Made) -> None:
    run.steps(60)
    browser.open(server.page_url)
    browser.until_shown("Healthy", ".verdict")
    browser.until(lambda: {"loss", "norm_input_msq"} <= set(browser.drawn()))
    browser.run("window.same = true")
    run.steps(10, loss=lambda step: 2.25)
    browser.until(lambda: (browser.tile("Step"), browser.tile("Loss")) == ("70", "2.25 nats"))
    browser.until_shown("loss 2.25 nats", "#loss .legend")
    assert browser.text(".shown") == "steps 1 to 70"
    run.steps(1, alerts=[run.alert(71)])
    browser.until_shown("NOT LEARNING since step 51", ".verdict h2")
    browser.until_shown("r1 is not learning", "#alerts")
    browser.until(lambda: "critical since step 51" in browser.text(".judges"))
    run.close("failed")
    browser.until(lambda: browser.text("#state") == "failed")
    browser.until_shown("Failed", "#freshness")
    assert browser.run("return window.same") is True
    assert browser.complaints() == []


def test_how_long_a_planned_run_still_takes_is_guessed_and_goes_with_it(
    browser: Browser, server: Server, run: Made
) -> None:
    run.steps(60, events=[Event(0, run.start, PLANNED, {"steps": 12_060})])
    browser.open(server.page_url)
    browser.until(lambda: browser.tile("Step") == "60 of 12,060, some 3 h 20 min left")
    browser.until_shown("Step 60 of 12,060, loss 2.05, ", ".verdict")
    assert "Some 3 h 20 min left." in browser.text(".verdict")
    run.close("stopped")
    browser.until(lambda: browser.tile("Step") == "60 of 12,060")


def test_a_run_before_its_first_step_says_so_and_its_charts_come_with_it(
    browser: Browser, server: Server, run: Made
) -> None:
    browser.open(server.page_url)
    browser.until_shown("No step yet", ".verdict")
    browser.until_shown("The run has begun ", ".verdict")
    browser.until(lambda: re.fullmatch(r"no step yet, for \d+ (s|min)", browser.text("#freshness")))
    run.start = time.time() - 1
    run.steps(1)
    browser.until_shown("No alert so far", ".verdict")
    browser.until(lambda: {"loss", "norm_input_msq", "norm_gain"} <= set(browser.drawn()))
    assert browser.text(".shown") == "steps 1 to 1"
    assert browser.complaints() == []


def test_a_run_that_fell_silent_is_dimmed_and_says_for_how_long(browser: Browser, server: Server, run: Made) -> None:
    run.start = time.time() - 100
    run.steps(60)
    browser.open(server.page_url)
    browser.until_shown("No data for", ".verdict")
    browser.until_shown("no data for", "#freshness")
    browser.until(lambda: is_dimmed(browser))


def test_while_steps_come_a_clock_that_is_set_does_not_make_them_old(
    browser: Browser, server: Server, run: Made
) -> None:
    run.steps(60)
    browser.open(server.page_url)
    browser.until_shown("Healthy", ".verdict")
    run.start -= 7200  # the clock of the training goes back two hours
    run.steps(10)
    browser.until(lambda: browser.tile("Step") == "70")
    assert re.fullmatch(r"last step (just now|\d+ s ago)", browser.text("#freshness"))
    assert not is_dimmed(browser)
    run.start += 14400
    run.steps(10)
    browser.until_shown("The clock of the training is 2 h ahead of this server's", ".trouble")
    browser.choose(".toolbar label:nth-of-type(1) select", "time")
    browser.until(lambda: "loss" in browser.drawn())
    assert browser.complaints() == []


def test_a_server_that_dies_and_comes_back_is_found_again_in_the_same_view(
    browser: Browser, server: Server, run: Made
) -> None:
    run.steps(200)
    browser.open(f"{server.page_url}#from=50&to=150&layer=h.2.ln_1")
    browser.until_shown("Layer 2: h.2.ln_1", "#layer h2")
    port = server.port
    server.stop()
    browser.until_shown("Connection lost at", "#freshness")
    browser.until_shown("Trying again every few seconds.", ".trouble")
    assert is_dimmed(browser)
    again = Server(lambda: b"", port=port, run_log=run.path, token=TOKEN)
    try:
        run.start = time.time() - 201
        run.steps(1, loss=lambda step: 1.5)
        browser.until(lambda: (browser.tile("Step"), browser.tile("Loss")) == ("201", "1.5 nats"))
        browser.until(lambda: "Connection lost" not in browser.text("#freshness"))
        assert not is_dimmed(browser)
        assert browser.run("return location.hash") == "#from=50&to=150&layer=h.2.ln_1"
        assert browser.text(".shown") == "steps 50 to 150"
    finally:
        browser.open("about:blank")
        again.stop()


def test_a_run_log_that_goes_is_told_and_what_was_read_of_it_looks_old_until_it_is_back(
    browser: Browser, folder: Server, run: Made
) -> None:
    run.steps(60)
    browser.open(address(folder, "r1"))
    browser.until_shown("Healthy", ".verdict")
    browser.until(lambda: "loss" in browser.drawn())
    for file in run.path.parent.glob("r1.stabmon*"):
        file.unlink()
    browser.until_shown("Cannot be read since", "#freshness")
    browser.until_shown("The server says: there is no run", ".trouble")
    assert is_dimmed(browser)
    assert browser.tile("Step") == "60"
    run.path.write_text("no run log", encoding="utf-8")
    browser.until_shown("r1.stabmon is not a readable stabmon run log", ".trouble")
    run.path.unlink()
    Made(run.path, start=time.time() - 40).steps(40)
    browser.until(lambda: browser.tile("Step") == "40")
    browser.until(lambda: not is_dimmed(browser))
    assert browser.text(".trouble") == ""


def test_a_server_with_another_token_asks_for_the_new_address(browser: Browser, server: Server, run: Made) -> None:
    run.steps(60)
    browser.open(server.page_url)
    browser.until_shown("Healthy", ".verdict")
    server.stop()
    browser.until_shown("Connection lost at", "#freshness")
    other = Server(lambda: b"", port=server.port, run_log=run.path, token="another-token")
    try:
        browser.until_shown("The server asks for another token: it was started anew.", ".trouble")
        assert browser.tile("Step") == "60"  # what was read stays
    finally:
        browser.open("about:blank")
        other.stop()


def test_a_training_that_starts_anew_under_the_same_name_is_shown_instead(
    browser: Browser, folder: Server, run: Made
) -> None:
    run.steps(300)
    browser.open(address(folder, "r1", "from=10&to=200"))
    browser.until(lambda: browser.tile("Step") == "300")
    run.close("stopped")
    run.path.unlink()
    anew = Made(run.path, start=time.time() - 40)
    anew.steps(40, loss=lambda step: 4.0)
    browser.until(lambda: (browser.tile("Step"), browser.tile("Loss")) == ("40", "4 nats"))
    browser.until(lambda: browser.text(".shown") == "steps 10 to 40")
    assert browser.text("#state") == "running"
