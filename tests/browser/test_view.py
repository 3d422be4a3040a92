"""Zoom, axes, smoothing, layers, comparison, files: what a person does on the page of a run."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stabmon.records import Event
from stabmon.server.thread import Server
from tests.browser.conftest import TOKEN, Browser, address
from tests.browser.made import Made

LOSS = "#loss .chart"
PICTURE = "#norm_input_msq .chart"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`long`: 1,200 steps, stalled since step 800 at block 3, resumed at 400; `other`: 600 steps at a lower loss."""
    folder = tmp_path_factory.mktemp("runs")
    long = Made(folder / "long.stabmon", start=time.time() - 1300)
    unseen = {"what": "attention", "why": "No attention layer was called.", "todo": "Call it through the model."}
    long.steps(1, events=[Event(1, long.start + 1, "not_seen", unseen)])
    long.steps(399)
    long.steps(1, values={"eval_loss": 2.2}, events=[Event(401, long.start + 401, "resume", {"at": 400})])
    long.steps(418)
    long.steps(1, alerts=[long.alert(820)])
    long.steps(380, score=3.0)
    other = Made(folder / "other.stabmon")
    other.steps(600, loss=lambda step: 1.0)
    other.close()
    return folder


@pytest.fixture(scope="module")
def served(runs: Path) -> Iterator[Server]:
    made = Server(lambda: b"", port=0, folder=runs, token=TOKEN)
    yield made
    made.stop()


@pytest.fixture
def page(browser: Browser, served: Server) -> Iterator[Browser]:
    browser.open(address(served, "long"))
    browser.until(lambda: {"loss", "norm_input_msq"} <= set(browser.drawn()))
    yield browser
    assert browser.complaints() == []
    browser.open("about:blank")


def fragment(browser: Browser) -> str:
    return str(browser.run("return location.hash.slice(1)"))


def shown(browser: Browser) -> tuple[int, int]:
    """First and last step, as the page says."""
    first, last = browser.until(lambda: re.findall(r"[\d,]+", browser.text(".shown")))
    return int(first.replace(",", "")), int(last.replace(",", ""))


def option(browser: Browser, selector: str, which: str) -> Any:
    """Of what a chart draws: `xAxis[0].type`."""
    script = "const option = echarts.getInstanceByDom(document.querySelector(arguments[0])).getOption();"
    return browser.run(f"{script} return option.{which}", selector)


def ends(browser: Browser, selector: str) -> tuple[float, float]:
    """Of the horizontal axis, as the chart has it."""
    return float(option(browser, selector, "xAxis[0].min")), float(option(browser, selector, "xAxis[0].max"))


def turn_wheel(browser: Browser, **keys: bool) -> None:
    """Over the loss, towards more detail."""
    script = """
    const event = new WheelEvent("wheel", { ...arguments[0], bubbles: true, cancelable: true });
    document.querySelector("#loss .chart").dispatchEvent(event)
    """
    browser.run(script, {"deltaY": -100, "clientX": 640, "clientY": 500, **keys})


def test_a_drag_over_one_chart_zooms_all_and_a_double_click_shows_the_whole_run(page: Browser) -> None:
    page.drag(LOSS, 0.25, 0.5)
    first, last = shown(page)
    assert abs(first - 300) < 10
    assert abs(last - 600) < 10
    page.until(lambda: ends(page, PICTURE) == ends(page, LOSS) == (first, last))
    assert fragment(page) == f"from={first}&to={last}"
    page.run("document.querySelector(arguments[0]).dispatchEvent(new MouseEvent('dblclick', {bubbles: true}))", LOSS)
    assert shown(page) == (1, 1200)
    assert fragment(page) == ""


def test_wheel_buttons_and_keys_zoom_and_move(page: Browser) -> None:
    turn_wheel(page, ctrlKey=True)
    width = shown(page)[1] - shown(page)[0]
    assert abs(width - 1199 * 0.7788) < 3  # e^-.25
    page.press("Show fewer steps")
    assert abs(shown(page)[1] - shown(page)[0] - width / 2) < 3
    before = shown(page)
    turn_wheel(page, shiftKey=True)
    assert abs(before[0] - shown(page)[0] - width / 20) < 3
    page.press("Later steps")
    assert shown(page)[0] > before[0]
    page.keys(LOSS, "-", "-")
    assert shown(page) == (1, 1200)
    page.keys(LOSS, "+", "\ue014")  # the right arrow
    assert abs(shown(page)[0] - 451) < 5
    page.keys(LOSS, "0")
    assert shown(page) == (1, 1200)
    page.press("last 100")
    assert shown(page) == (1101, 1200)
    page.drag(LOSS, 0.2, 0.7, shift=True)
    assert abs(shown(page)[0] - 1051) < 4


def test_the_cursor_stands_at_the_same_step_in_every_chart_and_tells_the_values(page: Browser) -> None:
    page.hover(LOSS, 0.5)
    page.until_shown("at step 60", ".pointer")
    step = int(page.text(".pointer").split(",")[0].removeprefix("at step "))
    assert abs(step - 600) <= 3
    assert page.texts("#loss .chip-of") == [
        "loss 2 nats",  # 2 + 3 / 600, to three digits
        "evaluation 2.2 nats",
        "bigram baseline 2.4 nats",
        "unigram baseline 3.1 nats",
        "uniform baseline 5.55 nats",
    ]
    left = "return document.querySelector(arguments[0]).style.left"
    in_picture = float(page.run(left, "#norm_input_msq .cursor")[:-2])
    width = page.find(PICTURE).size["width"] - 68 - 14
    assert abs((in_picture - 68) / width - (step - 1) / 1199) < 0.01
    page.hover(PICTURE, 0.5, 0.99)
    page.until_shown("layer 0 (h.0.ln_1)", "#norm_input_msq .legend")
    page.keys(LOSS, "Shift+\ue012")  # an arrow reads values without a mouse
    page.until(lambda: page.run("return document.querySelector('#loss .cursor').hidden") is False)


def test_a_click_on_a_row_shows_the_layer_beside_its_neighbours(page: Browser) -> None:
    assert page.find("#layer").is_displayed() is False
    page.click(PICTURE, 0.5, 0.62)  # 12 rows, the lowest at the bottom: the fifth
    page.until_shown("Layer 2: h.2.ln_1, beside its neighbours", "#layer h2")
    assert fragment(page) == "layer=h.2.ln_1"
    page.to("#layer-norm_input_msq")
    three = ["1 ln_2 2,400", "2 ln_1 3,600", "2 ln_2 3,600"]
    page.until(lambda: page.texts("#layer-norm_input_msq .chip-of") == three)
    page.to("#layer-grad_norm")
    page.until(lambda: page.texts("#layer-grad_norm .chip-of") == ["1 block 1.41", "2 block 1.73", "3 block 2"])
    page.keys(PICTURE, "\ue013")  # up
    page.until_shown("Layer 2: h.2.ln_2", "#layer h2")
    page.keys(PICTURE, "\ue00c")
    page.until(lambda: not page.find("#layer").is_displayed())
    page.click("#profile .chart", 0.98)
    page.until_shown("Layer 5: h.5.ln_2", "#layer h2")


def test_an_alert_zooms_every_chart_and_chooses_its_layer(page: Browser, served: Server) -> None:
    page.press("✖ long is not learning: every token gets the same answer. Restart with lr <= 3e-4", ".alert")
    assert shown(page) == (775, 845)  # steps 800 to 820, 25 more at each side
    page.until_shown("Layer 3: h.3.ln_1", "#layer h2")
    page.until(lambda: ends(page, PICTURE) == (775, 845))
    assert page.run("return document.querySelector('.alert').getAttribute('aria-current')") == "true"
    there = page.run("return location.href")
    assert "layer=h.3.ln_1" in there
    assert "alert=context_stall%3A820" in there
    page.open(there)  # a link shows the same view
    page.until(lambda: shown(page) == (775, 845))
    page.until_shown("Layer 3: h.3.ln_1", "#layer h2")
    page.until(lambda: page.run("return document.querySelector('.alert')?.getAttribute('aria-current')") == "true")


def test_a_click_on_an_alert_brings_its_layer_into_view_and_says_so(page: Browser) -> None:
    page.press("✖ long is not learning: every token gets the same answer. Restart with lr <= 3e-4", ".alert")
    edges = """
    const box = (part) => document.querySelector(part).getBoundingClientRect();
    return [box("#layer h2").top - box(".toolbar").bottom, innerHeight - box("#layer .chart").bottom]
    """
    under_the_bar, above_the_end = page.run(edges)
    assert 0 <= under_the_bar < 40
    assert above_the_end > 0
    page.until(lambda: {"layer-norm_input_msq", "layer-norm_gain"} <= set(page.drawn()))
    assert page.run("return document.activeElement.innerText") == "Layer 3: h.3.ln_1, beside its neighbours"
    said = page.run("return document.querySelector('.toolbar [role=status]').textContent")
    assert said == "steps 775 to 845. Layer 3: h.3.ln_1, beside its neighbours."


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_the_toolbar_covers_no_heading_that_is_jumped_to(page: Browser, width: int) -> None:
    page.size(width, 844)
    covered = """
    const bar = document.querySelector(".toolbar");
    const reach = (element) => { element.scrollIntoView(); return element.getBoundingClientRect(); };
    const hides = (element) => {
      const { top, bottom } = reach(element);
      return top < bar.getBoundingClientRect().bottom && bottom > bar.getBoundingClientRect().top;
    };
    const all = [...document.querySelectorAll("h2, h3")].filter((e) => e.checkVisibility());
    return [all.length, all.filter(hides).map((e) => e.innerText)]
    """
    page.until(lambda: page.run(covered)[1] == [])
    assert page.run(covered)[0] > 15


REACHED = """
const chart = echarts.getInstanceByDom(document.querySelector("#loss .chart"));
const [style, colour] = arguments;
const shapes = chart.getZr().storage.getDisplayList().filter((shape) => shape.style[style] === colour);
const points = shapes.flatMap(({ shape }) => shape.points ?? []);
const heights = points.map(([, y]) => chart.convertFromPixel({ yAxisIndex: 0 }, y));
return [Math.min(...heights), Math.max(...heights)]
"""


def test_one_step_that_differs_among_thousands_is_drawn_to_its_end(
    browser: Browser, folder: Server, tmp_path: Path
) -> None:
    made = Made(tmp_path / "spiky.stabmon")
    made.steps(4000, loss=lambda step: 6.0 if step == 2000 else 2.0)
    browser.open(address(folder, "spiky"))
    browser.until(lambda: "loss" in browser.drawn())
    blue = browser.run("return getComputedStyle(document.querySelector('#loss .key')).borderTopColor")
    for what in ("stroke", "fill"):  # the line, and the band that holds what lies under each of its points
        assert browser.run(REACHED, what, blue) == pytest.approx([2.0, 6.0], abs=0.01)


def test_axis_smoothing_and_logarithm_are_kept_in_the_address(page: Browser) -> None:
    drawn = "series[0].data.length"
    page.choose(".toolbar label:nth-of-type(1) select", "time")
    page.until(lambda: option(page, LOSS, "xAxis[0].type") == "time")
    assert ends(page, LOSS)[1] - ends(page, LOSS)[0] == pytest.approx(1199e3, abs=2)  # a step a second, in ms
    assert option(page, LOSS, drawn) == 5
    page.choose(".toolbar label:nth-of-type(2) select", "100")
    page.until(lambda: option(page, LOSS, drawn) == 6)  # the loss as it is, behind the smooth one
    page.press("Logarithmic axis: Loss, in nats")
    page.until(lambda: option(page, LOSS, "yAxis[0].type") == "log")
    page.open(page.run("return location.href"))
    page.until(lambda: "loss" in page.drawn())
    page.until(lambda: option(page, LOSS, drawn) == 6)
    assert (option(page, LOSS, "xAxis[0].type"), option(page, LOSS, "yAxis[0].type")) == ("time", "log")


def test_another_run_is_drawn_beside_this_one(page: Browser, served: Server) -> None:
    page.press("compare")
    page.run("document.querySelector('.choices input').click()")
    page.until_shown("other 1 nats", "#loss .legend")
    assert "with=other" in page.run("return location.search")
    assert "loss of long" in page.text("#loss .legend")
    page.open(address(served, "long", **{"with": "other"}))
    page.until_shown("other 1 nats", "#loss .legend")
    assert page.text(".compare summary") == "beside 1 other"


def test_every_chart_has_its_values_in_words_and_as_a_table(page: Browser) -> None:
    words = page.run("return document.querySelector('#loss-words').textContent")
    assert "loss: 2 at step 1,200" in words
    assert "highest 5 at step 2." in words  # two steps are a point here
    assert page.run("return document.querySelector('#loss .chart').getAttribute('aria-describedby')") == "loss-words"
    page.press("In words and as a table: Length of every norm's input")
    page.until_shown("12 rows, steps 1 to 1,200. Lowest", "#norm_input_msq .text")
    assert "highest 7,200 in layer 5 (h.5.ln_1) at step" in page.text("#norm_input_msq .text")
    rows = page.texts("#norm_input_msq table tr:last-child td")
    assert rows[1:] == [f"{1200 * layer:,}" for layer in (1, 2, 3, 4, 5, 6) for _ in range(2)]


def test_a_chart_can_be_taken_along_as_picture_and_as_values(page: Browser, tmp_path: Path) -> None:
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    page.press("Save as a picture: Loss, in nats")
    picture = tmp_path / "long-loss.png"
    page.until(picture.exists)
    page.until(lambda: picture.stat().st_size > 5000)
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    page.press("last 100")
    page.press("Save the values: Loss, in nats")
    values = tmp_path / "long-loss.csv"
    page.until(values.exists)
    lines = page.until(lambda: values.read_text(encoding="utf-8").splitlines())
    assert lines[0].startswith("step,time,loss")
    assert lines[-1].split(",")[0] == "1200"
    assert float(lines[-1].split(",")[2]) == pytest.approx(2.0025, abs=1e-4)
    page.press("Save the values: Length of every norm's input")
    page.until((tmp_path / "long-norm_input_msq.csv").exists)


def test_profile_updates_detectors_events_settings_and_cost_are_there(page: Browser) -> None:
    page.to("#profile")
    page.until_shown("now (step 1,200)", "#profile .legend")
    assert "where such a model starts" in page.text("#profile .legend")
    page.hover("#profile .chart", 0.99)
    page.until_shown("layer 5 (h.5.ln_2)", "#profile .legend")
    assert "7,200" in page.text("#profile .legend")
    for key, value in (("change", "0.01"), ("kl", "0.001 nats"), ("trust", "0.9"), ("context", "0.632")):
        page.to(f"#{key}")
        page.until(lambda key=key: key in page.drawn())  # type: ignore[misc]
        assert value in page.text(f"#{key} .legend")
    page.to("#scores")
    page.until(lambda: {"scores", "score-lines"} <= set(page.drawn()))
    assert "context stall 3" in page.text("#score-lines .legend")
    page.click("#scores .chart", 0.5, 0.95)
    page.until(lambda: page.texts("#score-lines .chip-of") == ["residual blowup 0.5"])
    table = page.text(".judges")
    assert "context stall\t✖ critical since step 800\t3" in table
    assert "residual blowup\t✓ quiet\t0.5" in table
    assert "step 401: resume (at 400)" in page.text(".events")
    page.press("Not seen: attention", ".verdict")
    page.until_shown("attention: No attention layer was called. Call it through the model.", ".verdict")
    facts = page.text(".facts")
    assert "device\ncpu" in facts
    assert "10 ms (1.0 % of it)" in "".join(page.texts(".facts"))
    assert "level\nstandard" in "".join(page.texts(".facts"))
