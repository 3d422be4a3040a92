"""What a person says of an alert, and where it is told."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stabmon.records import CHECKPOINT, EVALUATION, Event
from stabmon.runlog.marks import Mark, add_mark
from stabmon.runlog.told import Told, add_told
from stabmon.server.thread import Server
from tests.browser.conftest import Browser, address
from tests.browser.made import Made


@pytest.fixture
def run(tmp_path: Path) -> Made:
    """An alert has ended, another is open."""
    made = Made(tmp_path / "sick.stabmon", start=time.time() - 302)
    made.steps(100)
    made.steps(1, alerts=[made.alert(101, "warning", detector="loss_shift", site="", layer=None, action="shifts")])
    made.steps(99)
    cleared = made.alert(201, "warning", state="cleared", detector="loss_shift", site="", layer=None, since=81)
    made.steps(1, alerts=[cleared])
    made.steps(100, alerts=[made.alert(301)])
    return made


@pytest.fixture
def page(browser: Browser, folder: Server, run: Made) -> Iterator[Browser]:
    browser.open(address(folder, "sick"))
    browser.until_shown("sick is not learning", ".alert")
    yield browser
    assert browser.complaints() == []


def test_an_alert_says_evidence_cause_remedies_and_what_was_ruled_out(page: Browser) -> None:
    assert "NOT LEARNING since step 281" in page.text(".verdict h2")
    card = page.text(".alert")
    for words in (
        "critical · context stall · step 301 · since step 281 (",
        " ago) · layer 3 (h.3.ln_1)",
        "context share\n1e-6\nloss\n3.1",
        "Why: The first updates were too large.",
        "Ruled out: nothing to learn: bigram gap .7",
        "What to do, in this order:\nCut the learning rate\nWarm up",
    ):
        assert words in card.replace("\n\n", "\n")
    assert page.run("return document.querySelector('.alert a').getAttribute('href')") == "runbook/context_stall"
    page.press("1 earlier")
    page.until_shown("over at step 201", ".earlier .alert")
    assert "sick shifts" in page.text(".earlier .alert")


def test_an_alert_can_be_acknowledged_and_the_mark_taken_back(page: Browser, folder: Server) -> None:
    page.press("Acknowledge", ".alert")
    page.until_shown("Acknowledged, ", ".alert")
    page.open(address(folder, "sick"))  # it lies in the run log
    page.until_shown("Acknowledged, ", ".alert")
    page.press("Take it back", ".alert")
    page.until_shown("False alarm", ".alert")
    assert "Acknowledged" not in page.text(".alert")


def test_what_somebody_else_says_is_shown_with_its_note_and_of_another_day_with_the_day(
    page: Browser, run: Made
) -> None:
    yesterday = time.time() - 86_400
    add_mark(run.path, Mark("context_stall:301", "acknowledged", 301, yesterday, note="<b>on it</b> 🙂"))
    page.until_shown("<b>on it</b> 🙂.", ".alert")
    day = page.run("return new Date(arguments[0]).toLocaleDateString()", 1000 * yesterday)
    assert f"Acknowledged, {day}, " in page.text(".alert")
    assert str(day) not in page.text(".alert .where")  # the alert is of today


def test_who_acknowledges_and_a_note_are_shown_and_the_name_is_known_next_time(page: Browser, folder: Server) -> None:
    page.find(".alert input[placeholder='your name']").send_keys("<i>Ada</i>")
    page.find(".alert input[placeholder=note]").send_keys("lr was a typo")
    page.press("Acknowledge", ".alert")
    page.until(lambda: re.search(r"Acknowledged by <i>Ada</i>, .+: lr was a typo\.", page.text(".alert")))
    page.press("Take it back", ".alert")
    page.until_shown("False alarm", ".alert")
    page.open(address(folder, "sick"))
    page.until_shown("False alarm", ".alert")
    fields = page.run(
        "return [...document.querySelector('.alert').querySelectorAll('.wider')].map(({ value }) => value)"
    )
    assert fields == ["<i>Ada</i>", ""]
    page.run("localStorage.clear()")


def test_an_alert_says_since_when_by_the_clock_what_to_go_back_to_and_who_was_told(page: Browser, run: Made) -> None:
    clock = page.run("return new Date(1000 * arguments[0]).toLocaleTimeString()", run.start + 281)
    page.until(lambda: re.search(rf"since step 281 \({clock}, \d+ (s|min) ago\)", page.text(".alert .where")))
    page.until(lambda: re.search(rf"It began at {clock}, \d+ (s|min) ago\.", page.text(".verdict")))
    assert "Last checkpoint" not in page.text(".alert")  # this run told of none
    saved = [Event(step, run.start + step, CHECKPOINT, {"name": f"checkpoint-{step}"}) for step in (200, 290)]
    run.steps(1, events=saved)
    page.until_shown("Last checkpoint before it: step 200 (checkpoint-200).", ".alert")
    page.until(lambda: page.tile("Last good checkpoint").startswith("200 checkpoint-200, "))
    assert "Told" not in page.text(".alert")
    at = time.time()
    add_told(run.path, Told("context_stall:301", "apprise_ntfy", "failed", at, "raised <b>OSError</b>"))
    add_told(run.path, Told("context_stall:301", "slack", "sent", at))
    told = page.run("return new Date(1000 * arguments[0]).toLocaleTimeString()", at)
    page.until_shown(f"Told: Apprise ntfy not: raised <b>OSError</b>; Slack at {told}.", ".alert")


def test_what_is_not_finite_is_said_to_be_so_in_evidence_and_in_events(page: Browser, run: Made) -> None:
    broken = run.alert(302, detector="nonfinite", evidence={"loss": float("inf")}, action="breaks")
    run.steps(1, alerts=[broken], events=[Event(302, run.start + 302, EVALUATION, {"eval_loss": float("nan")})])
    page.until_shown("sick breaks", "main")
    assert "Infinity" not in page.text("main")
    assert "loss not finite" in " ".join(page.text("main").split())
    page.until_shown("evaluation (eval loss not finite)", ".events")


NAMED = """
const drawn = document.querySelector("#loss canvas")?.closest(".chart");
const { series } = drawn ? echarts.getInstanceByDom(drawn).getOption() : {};
return series?.at(-1)?.markLine?.data.map(({ label }) => label.formatter) ?? []
"""


@pytest.mark.parametrize(
    ("width", "names"), [(1280, ["! loss shift", "✖ context stall"]), (390, ["!", "✖ context stall"])]
)
def test_names_of_alerts_on_the_chart_do_not_lie_on_each_other_and_the_worst_has_its_own(
    browser: Browser, folder: Server, tmp_path: Path, width: int, names: list[str]
) -> None:
    near = Made(tmp_path / "near.stabmon")
    near.steps(40, alerts=[near.alert(40, "warning", detector="loss_shift")])
    near.steps(10, alerts=[near.alert(50)])
    near.steps(50)
    browser.size(width, 844)
    browser.open(address(folder, "near"))
    browser.until_shown("is not learning", ".alert")
    browser.to("#loss")
    browser.until(lambda: browser.run(NAMED) == names)


@pytest.mark.parametrize("steps", ["", "0", "1.5", "1000001"])
def test_a_mute_of_a_number_of_steps_that_is_none_is_told_without_asking_the_server(page: Browser, steps: str) -> None:
    page.run("document.querySelector('.alert input').value = arguments[0]", steps)
    page.press("Mute for", ".alert")
    page.until_shown("Not saved: give a whole number of steps, 1 to 1,000,000.", ".alert")


def test_a_name_that_turns_the_direction_of_writing_turns_no_other_words(page: Browser, run: Made) -> None:
    add_mark(run.path, Mark("context_stall:301", "acknowledged", 301, time.time(), note="yes", by="\u202eada"))
    page.until_shown("Acknowledged by", ".alert")
    ends = """
    const said = document.querySelector(".alert [role=status]");
    const place = (text) => {
      const walker = document.createTreeWalker(said, NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) if (walker.currentNode.data.includes(text)) break;
      const range = document.createRange();
      range.selectNodeContents(walker.currentNode);
      return range.getBoundingClientRect().left;
    };
    return [place("Acknowledged"), place("ada"), place("yes")]
    """
    places = page.run(ends)
    assert places == sorted(places)
    assert "by \u202eada, " in page.text(".alert").replace("\n", "")


def test_a_detector_can_be_muted_for_some_steps(page: Browser) -> None:
    page.find(".alert input").clear()
    page.find(".alert input").send_keys("500")
    page.press("Mute for", ".alert")
    page.until_shown("Muted until step 801", ".alert")
    page.until_shown("muted", ".judges")
    page.until(lambda: "NOT LEARNING" not in page.text(".verdict h2"))


def test_a_false_alarm_makes_no_verdict(page: Browser) -> None:
    page.press("False alarm", ".alert")
    page.until_shown("Called a false alarm", ".alert")
    page.until(lambda: "NOT LEARNING" not in page.text(".verdict h2"))


def test_a_mark_that_cannot_be_kept_says_so_in_a_sentence(page: Browser, folder: Server) -> None:
    folder.stop()
    page.press("Acknowledge", ".alert")
    page.until_shown("Not saved: the server cannot be reached.", ".alert")
    page.complaints()  # the browser's own words on a refused connection
