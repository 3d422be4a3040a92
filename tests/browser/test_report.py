"""The report, opened from disk."""

from pathlib import Path

import pytest

from stabmon.report import report
from tests.browser.conftest import Browser
from tests.replays.files import diverging_losses, table
from tests.server.recorded import Writing, alert

HOSTILE = "</script><img src=x onerror=document.title='owned'>\u2028🦆"
WIDER = "return document.documentElement.scrollWidth - innerWidth"
TOO_WIDE = """
// Before a printer's page is laid out no chart hears that it is narrower.
document.querySelector("main").style.maxWidth = "718px";
const right = (element) => element.getBoundingClientRect().right;
const cut = (canvas) => right(canvas) > right(canvas.closest("figure")) + 1;
return [...document.querySelectorAll("figure canvas")].filter(cut).map((canvas) => canvas.closest("figure").id)
"""
CANVASES = "return document.querySelectorAll('figure canvas, .chart canvas').length"


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def stall(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of two blocks with an alert at step 61, and a name that is an attack."""
    folder = tmp_path_factory.mktemp("stall")
    run = Writing(folder / "r1.stabmon", name=HOSTILE)
    run.step(60, loss=3.1)
    run.step(1, loss=3.1, alerts=[alert(61, run=HOSTILE, cause=HOSTILE)])
    run.step(60, loss=3.0)
    run.close()
    return written(folder / "report.html", report(run.path))


def test_it_opens_from_disk_shows_what_the_page_shows_and_asks_for_nothing(browser: Browser, stall: str) -> None:
    browser.open(stall)
    browser.until_shown("since step 59", ".verdict")
    browser.until(lambda: browser.run(CANVASES) >= 3)
    page = browser.text()
    for words in ("Cut the learning rate", "norm input msq", "as of", "Made by stabmon", "It asks for nothing"):
        assert words in page
    assert "/api/v1" not in page
    assert [url for url in browser.requested() if not url.startswith(("file:", "data:", "about:"))] == []
    assert browser.complaints() == []


def test_hostile_names_are_text_and_no_other_script_can_run(browser: Browser, stall: str) -> None:
    browser.open(stall)
    browser.until_shown("</script><img src=x", "#name")
    assert "owned" not in browser.driver.title.split("onerror")[0]
    browser.run("const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)")
    assert browser.run("return window.ran ?? 0") == 0
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())


def test_a_layer_and_an_alert_are_chosen_and_the_steps_zoomed_as_live(browser: Browser, stall: str) -> None:
    browser.open(f"{stall}#from=40&to=80&layer=h.1.ln")
    browser.until_shown("steps 40 to 80")
    browser.until_shown("Layer 1: h.1.ln, beside its neighbours")
    assert browser.complaints() == []


def test_a_runbook_is_shown_without_a_server(browser: Browser, stall: str) -> None:
    browser.open(stall)
    browser.until_shown("runbook", "#alerts")
    browser.run("document.querySelector('#alerts a[href^=\"runbook/\"]').click()")
    browser.until_shown("every token gets the same answer", "dialog pre")
    browser.run("document.querySelector('dialog button').click()")
    browser.until(lambda: browser.run("return document.querySelector('dialog')") is None)
    assert browser.run("return location.protocol") == "file:"


def test_on_paper_all_charts_are_there_and_none_is_wider_than_its_panel(browser: Browser, stall: str) -> None:
    browser.open(stall)
    shown = browser.run(
        "return [...document.querySelectorAll('figure')].filter((f) => f.offsetParent).map((f) => f.id)"
    )
    assert len(shown) >= 5
    browser.until(lambda: sorted(browser.drawn()) == sorted(shown))  # without anybody scrolling there
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        browser.run("dispatchEvent(new Event('beforeprint'))")
        assert browser.run("return document.querySelectorAll('details:not(.hints):not([open])').length") == 0
        assert browser.run(TOO_WIDE) == []
        assert browser.run("return document.querySelector('.toolbar').offsetParent") is None
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_another_tools_file_on_a_phone_says_what_was_read_and_what_was_not(browser: Browser, tmp_path: Path) -> None:
    address = written(tmp_path / "out.html", report(table(tmp_path / "<b>log.csv", diverging_losses())))
    browser.size(390, 844)
    browser.open(address)
    browser.until_shown("since step 2", ".verdict")
    assert browser.text("#name") == "<b>log.csv"
    page = browser.text()
    assert "Loss read from 'loss', step from 'step'." in page
    assert browser.text("#state") == "recorded"
    assert "Not seen: inside the network" in page
    assert "axis" not in browser.text(".toolbar")  # the file tells no times
    assert not {"Position-dependent output", "Gradient norm", "Step time"} & set(browser.texts(".tile dt"))
    browser.press("Not seen: inside the network")
    browser.until_shown("What loss_shift, context_stall", ".verdict")
    assert browser.run(WIDER) <= 0
    assert browser.complaints() == []


def test_two_runs_are_shown_beside_each_other(browser: Browser, tmp_path: Path) -> None:
    paths = [table(tmp_path / "a.csv", diverging_losses()), table(tmp_path / "b.csv", diverging_losses(turn=250))]
    browser.open(written(tmp_path / "out.html", report(paths)))
    browser.until_shown("b.csv", "main")
    assert browser.text("#name") == "a.csv"
