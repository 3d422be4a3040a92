"""Pictures of the page for the docs: `python -m tests.browser.pictures FOLDER [RECORDINGS]`.

Three trainings of the detection benchmark, which take some minutes unless they lie in RECORDINGS (as `stabmon bench
detection --runs RECORDINGS` leaves them), are judged again and shown; a fourth is the healthy one with made-up values
that are not finite.
"""

import io
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image
from selenium import webdriver

from stabmon.bench.detection.live import record, run_log
from stabmon.bench.detection.scenarios import SCENARIOS
from stabmon.detectors import default_detectors
from stabmon.pipeline import build
from stabmon.records import Snapshot
from stabmon.runlog import RunLogWriter, path_of, read
from stabmon.server.thread import Server
from tests.browser.conftest import TOKEN, Browser, address

SEED = 100
RUNS = {"healthy": "healthy-text", "stall": "stall-text-8", "blow-up": "blow_up-text-ramp"}
BROKEN_AT = 150
Change = Callable[[Snapshot], Snapshot]


def main(folder: Path, recordings: Path) -> None:
    """Writes run-<name>.png, list.png and phone.png."""
    logs = Path(tempfile.mkdtemp())
    for name, scenario in RUNS.items():
        judged(recorded(scenario, recordings), logs, name, lambda snapshot: snapshot)
    judged(recorded(RUNS["healthy"], recordings), logs, "not-finite", broken)
    server = Server(lambda: b"", port=0, folder=logs, token=TOKEN)
    browser = Browser(chromium())
    try:
        for name in (*RUNS, "not-finite"):
            shoot(browser, address(server, name), folder / f"run-{name}.png", 1280, 1500)
        shoot(browser, address(server, "stall", "alert=context_stall:11"), folder / "phone.png", 390, 844)
        shoot(browser, server.page_url, folder / "list.png", 1280, 420)
    finally:
        browser.driver.quit()
        server.stop()
        shutil.rmtree(logs)


def recorded(name: str, recordings: Path) -> Path:
    """Its run log, trained where it is not there."""
    scenario = next(one for one in SCENARIOS if one.name == name)
    path = run_log(scenario, SEED, recordings)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path if path.exists() else record(scenario, SEED, recordings)


def judged(path: Path, folder: Path, name: str, change: Change) -> None:
    """The run once more, with scores and alerts, as if it had ended now."""
    known = read(path)
    run = replace(known.run, name=name)
    pipeline = build(run, default_detectors(), [RunLogWriter(path_of(folder, name), run)])
    for snapshot, events in known.feeds():
        pipeline.feed(change(snapshot), events)
    pipeline.close("finished")


def broken(snapshot: Snapshot) -> Snapshot:
    """From a step on the upper half of the network is not finite, and so is the loss."""
    if snapshot.step < BROKEN_AT:
        return snapshot
    blocks = max(site.layer or 0 for site in snapshot.layout.sites) + 1
    upper = [layer is None or layer >= blocks // 2 for layer in layers_of(snapshot)]
    values = snapshot.values.copy()
    values[np.isfinite(values) & upper] = np.inf
    return replace(snapshot, values=values)


def layers_of(snapshot: Snapshot) -> Iterator[int | None]:
    """Of each column that a broken network breaks; -1: of what it does not, such as the learning rate."""
    for statistic, site in snapshot.layout.columns:
        kept = statistic.endswith(("_seconds", "_rate", "_steps")) or statistic.split("_")[0] in (
            "uniform",
            "unigram",
            "bigram",
        )
        yield -1 if kept else snapshot.layout.site(site).layer if site else None


def chromium() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def shoot(browser: Browser, url: str, path: Path, width: int, height: int) -> None:
    """Once nothing more is drawn; in few colours, which is small."""
    browser.size(width, height)
    browser.open(url)
    before: list[str] = []
    for _ in range(60):
        time.sleep(1)
        now = browser.drawn() if "run=" in url else browser.texts(".runs tr")
        if now and now == before:
            break
        before = now
    picture = Image.open(io.BytesIO(browser.driver.get_screenshot_as_png())).convert("RGB")
    picture.quantize(255, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    main(out, Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.mkdtemp()))
