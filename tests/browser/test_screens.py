"""From a phone to a large screen, light and dark, without a mouse, read aloud."""

import time
from collections.abc import Iterator

import pytest
from axe_core_python.selenium import Axe

from stabmon.server.thread import Server
from tests.browser.conftest import TOKEN, Browser, address
from tests.browser.made import Made

SHIFT = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const { value, sources } of list.getEntries()) {
    window.shifts.push([value, ...sources.map(({ node }) => node?.id || node?.className || node?.nodeName)]);
  }
}).observe({ type: "layout-shift", buffered: true })
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("screens")
    run = Made(folder / "sick.stabmon", start=time.time() - 150)
    run.steps(100)
    run.steps(1, alerts=[run.alert(101)])
    run.steps(49)
    Made(folder / "other.stabmon").steps(60)
    made = Server(lambda: b"", port=0, folder=folder, token=TOKEN)
    yield made
    made.stop()


@pytest.fixture
def page(browser: Browser, served: Server) -> Iterator[Browser]:
    yield browser
    assert browser.complaints() == []
    browser.open("about:blank")


def violations(browser: Browser) -> list[str]:
    """What axe-core finds, with where."""
    found = Axe().run(browser.driver)["violations"]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_run_and_list(page: Browser, served: Server, scheme: str) -> None:
    page.colours(scheme)
    page.open(address(served, "sick", "layer=h.2.ln_1"))
    page.until(lambda: {"loss", "norm_input_msq"} <= set(page.drawn()))
    page.press("In words and as a table: Loss, in nats")
    page.press("keys")
    assert violations(page) == []
    page.open(served.page_url)
    page.until_shown("sick", ".runs")
    assert violations(page) == []


@pytest.mark.parametrize("width", [390, 3840])
def test_it_fits_the_screen(page: Browser, served: Server, width: int) -> None:
    page.size(width, 844 if width == 390 else 2160)
    page.open(address(served, "sick"))
    page.until_shown("What to do", ".alert")
    page.to("#loss")
    page.until(lambda: "loss" in page.drawn())
    assert page.run("return document.documentElement.scrollWidth") <= width
    side_by_side = """
    const tops = [...document.querySelectorAll(".charts .panel:not(.wide)")].map((e) => e.getBoundingClientRect().top);
    return tops.filter((top) => top === tops[0]).length
    """
    assert page.run(side_by_side) == (1 if width == 390 else 4)
    lefts = "return [...document.querySelectorAll('figure, .alert, .verdict')].map((e) => e.getBoundingClientRect())"
    assert all(box["left"] >= 0 and box["right"] <= width for box in page.run(lefts))


def test_colours_follow_the_system_and_then_the_button(page: Browser, served: Server) -> None:
    page.colours("dark")
    page.open(address(served, "sick"))
    page.until(lambda: "loss" in page.drawn())

    def ground() -> int:
        return int(page.run("return Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g))"))

    assert ground() < 60
    page.press("colours: auto")
    page.press("colours: dark")
    page.until_shown("colours: light", "#theme")
    assert ground() > 200
    axis = (
        "return echarts.getInstanceByDom(document.querySelector('#loss .chart')).getOption().yAxis[0].axisLabel.color"
    )
    page.until(lambda: page.run(axis) == "rgb(86, 98, 112)")
    page.open(address(served, "sick"))
    page.until_shown("colours: light", "#theme")
    page.press("colours: light")


def test_nothing_moves_while_it_loads(page: Browser, served: Server) -> None:
    for width, height in ((1280, 900), (390, 844)):
        page.size(width, height)
        page.open(address(served, "sick"))
        page.run(SHIFT)
        page.until_shown("What to do", ".alert")
        page.to("#loss")  # on a phone it lies below what is to do
        page.until(lambda: "loss" in page.drawn())
        page.to("#profile")
        page.until(lambda: {"profile", "picture"} <= set(page.drawn()))
        shifts = page.run("return window.shifts")
        assert sum(shift[0] for shift in shifts) < 0.05, shifts  # 0.1 is what browsers call good


def test_everything_can_be_reached_and_used_without_a_mouse(page: Browser, served: Server) -> None:
    page.open(address(served, "sick"))
    page.until(lambda: "loss" in page.drawn())
    unreachable = """
    const all = [...document.querySelectorAll("main :is(button, select, input, a, summary, .chart)")];
    const folded = (e) => e.closest("details:not([open])") && e.tagName !== "SUMMARY";
    return all.filter((e) => !folded(e) && e.checkVisibility() && e.tabIndex !== 0).map((e) => e.outerHTML)
    """
    assert page.run(unreachable) == []
    nameless = """
    const named = (e) => e.ariaLabel || e.innerText || e.labels?.length || e.getAttribute("aria-labelledby");
    const all = [...document.querySelectorAll(":is(button, select, input, a, summary, .chart)")];
    return all.filter((e) => e.checkVisibility() && !named(e)).map((e) => e.outerHTML)
    """
    assert page.run(nameless) == []
    page.keys("#norm_input_msq .chart", "\ue013")  # up: no layer yet, so the highest or the lowest
    page.until(lambda: page.find("#layer").is_displayed())
    page.keys(".alert h3 button", "\ue007")  # enter
    page.until_shown("Layer 3: h.3.ln_1", "#layer h2")
