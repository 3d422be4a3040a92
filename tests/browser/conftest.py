"""Headless Chromium (Debian's packages chromium and chromium-driver)."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException

PATIENCE = 30.0
"""Seconds until a page that does not show what it should is given up."""
_Found = TypeVar("_Found")


class Browser:
    """What the tests ask of it. `until` waits for a fact, and says what was there instead."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get(url)

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str = "body") -> str:
        """What is shown there; "" where there is no such element."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def until(self, fact: Callable[[], _Found]) -> _Found:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if found := fact():
                    return found
            except StaleElementReferenceException:  # it was redrawn in between
                pass
            time.sleep(0.05)
        raise AssertionError(f"not within {PATIENCE} s; the page shows: {self.text()!r}")

    def until_shown(self, words: str, selector: str = "body") -> None:
        self.until(lambda: words in self.text(selector))

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
    found.open("about:blank")
    chromium.execute_cdp_cmd("Network.clearBrowserCookies", {})
    found.size(1280, 900)
    found.colours("light")
    found.complaints()
    found.requested()
    return found
