"""Headless Chromium (Debian's packages chromium and chromium-driver)."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from stabmon.server.thread import Server

PATIENCE = 60.0
"""Seconds until a page that does not show what it should is given up."""
TOKEN = "open-sesame"
_Found = TypeVar("_Found")
_DRAWN = """
return [...document.querySelectorAll(".panel canvas")].filter((canvas) => {
  const copy = new OffscreenCanvas(120, 60).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0, 120, 60);
  return new Set(new Uint32Array(copy.getImageData(0, 0, 120, 60).data.buffer)).size > 8;
}).map((canvas) => canvas.closest("figure").id)
"""
_TILE = """
const tiles = [...document.querySelectorAll(".tile")];
return tiles.find((tile) => tile.firstChild.textContent === arguments[0])?.lastChild.textContent ?? ""
"""


class Browser:
    """What the tests ask of it. `until` waits for a fact, and says what was there instead."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        # An address that differs behind the # alone would not be loaded anew.
        self.driver.get("about:blank")
        self.driver.get(url)

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str = "body") -> str:
        """What is shown there; "" where there is no such element."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def texts(self, selector: str) -> list[str]:
        return list(self.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", selector))

    def until(self, fact: Callable[[], _Found]) -> _Found:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if found := fact():
                    return found
            except StaleElementReferenceException:  # it was redrawn in between
                pass
            time.sleep(0.1)
        raise AssertionError(f"not within {PATIENCE} s; the page shows: {self.text()!r}")

    def until_shown(self, words: str, selector: str = "body") -> None:
        self.until(lambda: words in self.text(selector))

    def drawn(self) -> list[str]:
        """The charts that have something on their canvas, by their ids."""
        return list(self.run(_DRAWN))

    def tile(self, title: str) -> str:
        return str(self.run(_TILE, title)).strip()

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def to(self, selector: str) -> None:
        """Scroll there and wait until it is drawn, if it is a chart."""
        self.run("document.querySelector(arguments[0]).scrollIntoView({ block: 'center' })", selector)

    def press(self, words: str, inside: str = "body") -> None:
        """Click the button (or link, or heading of a fold) with these words."""
        script = """
        const all = [...document.querySelectorAll(`${arguments[1]} :is(button, a, summary)`)];
        const named = (e) => [e.innerText.trim(), e.ariaLabel].includes(arguments[0]);
        const found = all.find(named);
        found?.click();
        return Boolean(found)
        """
        self.until(lambda: self.run(script, words, inside))

    def choose(self, selector: str, value: str) -> None:
        """In a list of choices."""
        script = """
        const list = document.querySelector(arguments[0]);
        list.value = arguments[1];
        list.dispatchEvent(new Event("change", { bubbles: true }));
        return list.value === arguments[1]
        """
        assert self.run(script, selector, value)

    def drag(self, selector: str, begin: float, end: float, shift: bool = False) -> None:
        """On a chart, from one share of its plot's width to another."""
        xs = [self._across(selector, share) for share in (begin, end)]
        chain = ActionChains(self.driver, duration=20)
        if shift:
            chain.key_down(Keys.SHIFT)
        chain.move_to_element_with_offset(self.find(selector), xs[0], 0).click_and_hold()
        chain.move_to_element_with_offset(self.find(selector), (xs[0] + xs[1]) // 2, 0)
        chain.move_to_element_with_offset(self.find(selector), xs[1], 0).release()
        if shift:
            chain.key_up(Keys.SHIFT)
        chain.perform()

    def hover(self, selector: str, share: float, down: float = 0.5) -> None:
        """On a chart: shares of its plot's width, and of its height from above."""
        self._at(selector, share, down).perform()

    def click(self, selector: str, share: float, down: float = 0.5) -> None:
        self._at(selector, share, down).click().perform()

    def keys(self, selector: str, *keys: str) -> None:
        """With that element in focus."""
        self.run("document.querySelector(arguments[0]).focus()", selector)
        for key in keys:
            held = ActionChains(self.driver, duration=20)
            if key.startswith("Shift+"):
                held.key_down(Keys.SHIFT).send_keys(key.removeprefix("Shift+")).key_up(Keys.SHIFT)
            else:
                held.send_keys(key)
            held.perform()

    def size(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def colours(self, scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def complaints(self) -> list[str]:
        """Errors and warnings in the console since the last call: broken scripts, refused resources."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]

    def requested(self) -> list[str]:
        """Addresses asked for since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]

    def _across(self, selector: str, share: float) -> int:
        """Pixels from the middle of a chart, whose plot begins and ends where page/axes.js says."""
        left = 118 if selector.startswith("#scores") else 68
        width = self.find(selector).size["width"]
        return round(left + share * (width - left - 14) - width / 2)

    def _at(self, selector: str, share: float, down: float) -> ActionChains:
        self.to(selector)
        height = self.find(selector).size["height"]
        y = round(6 + down * (height - 30) - height / 2)
        return ActionChains(self.driver, duration=20).move_to_element_with_offset(
            self.find(selector), self._across(selector, share), y
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def chromium() -> Iterator[webdriver.Chrome]:
    driver = shutil.which("chromedriver")
    if driver is None:
        if os.environ.get("CI") == "true":
            pytest.fail("chromedriver is not there; install the Debian packages chromium and chromium-driver")
        pytest.skip("needs chromedriver (Debian packages chromium and chromium-driver)")
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield started
    started.quit()


@pytest.fixture
def browser(chromium: webdriver.Chrome) -> Browser:
    found = Browser(chromium)
    chromium.get("about:blank")
    chromium.execute_cdp_cmd("Network.clearBrowserCookies", {})
    found.size(1280, 900)
    found.colours("light")
    found.complaints()
    found.requested()
    return found


@pytest.fixture
def folder(browser: Browser, tmp_path: Path) -> Iterator[Server]:
    """Serves the run logs in `tmp_path`."""
    made = Server(lambda: b"", port=0, folder=tmp_path, token=TOKEN)
    yield made
    browser.open("about:blank")
    made.stop()


def address(server: Server, run: str, view: str = "", **more: str) -> str:
    """Of a run's page; `view`: what stands behind the #."""
    query = "".join(f"&{name}={value}" for name, value in more.items())
    return f"{server.url}/?token={TOKEN}&run={run}{query}{f'#{view}' if view else ''}"
