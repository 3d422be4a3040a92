"""The list of a folder's runs."""

import time
from pathlib import Path

import pytest

from stabmon.server.thread import Server
from tests.browser.conftest import Browser
from tests.browser.made import Made


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, Made]:
    """`bad` stalls, `good` runs, `old` failed; one file is no run log."""
    old = Made(tmp_path / "old.stabmon")
    old.steps(5, loss=lambda step: 3.0)
    old.close("failed")
    bad = Made(tmp_path / "bad.stabmon", start=time.time() - 60)
    bad.steps(60, loss=lambda step: 3.1, alerts=[bad.alert(60)])
    good = Made(tmp_path / "good.stabmon", start=time.time() - 60)
    good.steps(60)
    (tmp_path / "text.stabmon").write_text("x" * 4096, encoding="utf-8")
    return {"old": old, "bad": bad, "good": good}


def names(browser: Browser) -> list[str]:
    return [name for name in browser.texts(".runs tbody td:nth-child(2)") if name]


def test_runs_are_listed_sorted_found_compared_and_opened(
    browser: Browser, folder: Server, runs: dict[str, Made]
) -> None:
    browser.open(folder.page_url)
    browser.until_shown("Cannot be read: text.stabmon is not a readable stabmon run log", ".runs")
    rows = {text.split("\t")[1]: text for text in browser.texts(".runs tbody tr")}
    assert "NOT LEARNING since step 40" in rows["bad"]
    assert "failed" in rows["old"]
    assert rows["old"].split("\t")[4:6] == ["5", "3"]  # step, loss
    assert "Healthy" in rows["good"]
    assert browser.run("return document.querySelectorAll('.runs svg.spark').length") == 3
    browser.press("Loss", ".runs")
    browser.until(lambda: names(browser)[:3] == ["good", "old", "bad"])
    assert "sort=loss" in browser.run("return location.hash")
    browser.press("Loss", ".runs")
    browser.until(lambda: names(browser)[:3] == ["bad", "old", "good"])
    browser.choose(".filters select", "failed")
    browser.until(lambda: names(browser) == ["old"])
    browser.choose(".filters select", "any state")
    browser.find(".filters input").send_keys("LEARNING")
    browser.until(lambda: names(browser) == ["bad"])
    browser.open(browser.run("return location.href"))
    browser.until(lambda: names(browser) == ["bad"])
    browser.find(".filters input").clear()
    browser.find(".filters input").send_keys(" ")
    browser.until(lambda: len(names(browser)) == 4)
    for run in ("bad", "good"):
        browser.run(f"document.querySelector('[aria-label=\"Compare {run}\"]').click()")
    browser.press("Compare 2 runs")
    browser.until(lambda: any(text.startswith("loss of ") for text in browser.texts("#loss .chip-of")))
    assert {text.split(" ")[-3] for text in browser.texts("#loss .chip-of")} >= {"bad", "good"}
    assert browser.complaints() == []


def test_the_list_is_kept_up(browser: Browser, folder: Server, runs: dict[str, Made], tmp_path: Path) -> None:
    browser.open(folder.page_url)
    browser.until_shown("good", ".runs")
    Made(tmp_path / "sub" / "newer.stabmon", start=time.time() - 60).steps(60)
    runs["good"].steps(7)
    browser.until_shown("sub/newer", ".runs")
    browser.until(lambda: any("good\t" in text and "\t67\t" in text for text in browser.texts(".runs tbody tr")))
    browser.press("sub/newer", ".runs")
    browser.until_shown("Healthy", ".verdict")
    assert browser.text("#name") == "newer"
    browser.press("stabmon", "header")
    browser.until_shown("sub/newer", ".runs")


def test_on_a_phone_no_number_is_broken(browser: Browser, folder: Server, runs: dict[str, Made]) -> None:
    browser.size(390, 844)
    runs["bad"].steps(1, loss=lambda step: float("inf"))
    browser.open(folder.page_url)
    browser.until_shown("finite", ".runs")
    lines = """
    const shown = [...document.querySelectorAll(".runs td.number")].filter((cell) => cell.offsetParent);
    return shown.map((cell) => {
      const words = document.createRange();
      words.selectNodeContents(cell);
      return [cell.textContent, new Set([...words.getClientRects()].map(({ top }) => top)).size];
    })
    """
    found = browser.run(lines)
    assert ["60", 1] in found
    assert [text for text, rows in found if rows > len(text.split())] == []
    assert browser.run("return document.documentElement.scrollWidth") <= 390


def test_an_empty_folder_says_what_will_be_shown(browser: Browser, folder: Server, tmp_path: Path) -> None:
    browser.open(folder.page_url)
    browser.until_shown("No runs yet")
    Made(tmp_path / "first.stabmon").steps(1)
    browser.until_shown("first", ".runs")
    assert browser.complaints() == []
