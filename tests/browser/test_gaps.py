"""Steps that a log does not have, in the charts."""

from pathlib import Path

import pytest

from stabmon.report import report
from stabmon.server.thread import Server
from tests.browser.conftest import Browser, address
from tests.browser.made import Made

SPANS = """
const made = echarts.getInstanceByDom(document.querySelector("#loss .chart"));
const colour = getComputedStyle(document.querySelector("#loss .key")).borderTopColor;
const shapes = made.getZr().storage.getDisplayList();
const lines = shapes.filter(({ type, style }) => type === "polyline" && style.stroke === colour);
const step = ([x]) => Math.round(made.convertFromPixel({ xAxisIndex: 0 }, x));
return lines.map(({ shape: { points } }) => [step(points[0]), step(points.at(-1))])
"""


def spans(browser: Browser) -> list[list[int]]:
    """First and last step of each line that the loss is drawn as."""
    browser.until(lambda: "loss" in browser.drawn())
    return sorted(browser.run(SPANS))


def test_where_steps_are_missing_the_line_breaks_live_and_in_a_report(
    browser: Browser, folder: Server, tmp_path: Path
) -> None:
    made = Made(tmp_path / "gap.stabmon")
    made.steps(1000)
    made.last = 4999
    made.steps(1000)
    browser.open(address(folder, "gap"))
    (first, second) = spans(browser)
    assert [first, second] == [pytest.approx([1, 1000], abs=10), pytest.approx([5000, 5999], abs=10)]
    page = tmp_path / "gap.html"
    page.write_text(report(made.path), encoding="utf-8")
    browser.open(page.as_uri())
    assert len(spans(browser)) == 2


@pytest.mark.parametrize(
    "steps",
    [
        [*range(1, 101), *range(200, 5001, 100)],  # each step at first, then every hundredth
        [2**power for power in range(20)],
        [1, 2, 1000],
    ],
    ids=["every-hundredth", "powers-of-two", "three"],
)
def test_a_log_that_tells_of_fewer_steps_from_some_step_on_has_no_gap(
    browser: Browser, tmp_path: Path, steps: list[int]
) -> None:
    log, page = tmp_path / "log.csv", tmp_path / "log.html"
    log.write_text("step,loss\n" + "".join(f"{step},{2 + 1 / step}\n" for step in steps))
    page.write_text(report(log), encoding="utf-8")
    browser.open(page.as_uri())
    assert spans(browser) == [pytest.approx([steps[0], steps[-1]], abs=2)]
