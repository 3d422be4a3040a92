from pathlib import Path

import pytest

from stabmon.records import RunState
from stabmon.server.standing import Standing
from stabmon.server.verdict import Verdict, duration, silent_after, verdict
from tests.server.recorded import STARTED, Writing, alert


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    return Writing(tmp_path / "r1.stabmon")


def told(writing: Writing, age: float = 1.0) -> Verdict:
    standing = Standing(writing.path)
    standing.refresh()
    return verdict(standing, STARTED + writing.last + age)


def test_a_run_without_a_step_says_so(writing: Writing) -> None:
    assert told(writing).title == "No step yet"


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (2.0, ", loss 2, 0.4 nats below the bigram baseline."),
        (2.41, ", loss 2.41, what the bigram baseline scores."),
        (2.8, ", loss 2.8, 0.3 nats below the unigram baseline."),
        (3.12, ", loss 3.12, what the unigram baseline scores."),
        (4.1, ", loss 4.1, 1 nats above the unigram baseline."),
        (5.49, ", loss 5.49, what the uniform baseline scores."),
        (7.5, ", loss 7.5, 2 nats above the uniform baseline."),
        (1239.5, ", loss 1.24e+03, 1,234 nats above the uniform baseline."),
        (float("nan"), "."),
    ],
)
def test_a_healthy_run_tells_step_and_loss_beside_the_baselines(writing: Writing, loss: float, words: str) -> None:
    writing.step(1200, loss=loss)
    assert told(writing) == Verdict("healthy", "Healthy", f"Step 1,200{words}")


def test_where_the_newest_step_has_no_loss_the_one_before_is_told(writing: Writing) -> None:
    for count, loss in ((60, 2.0), (1, 3.0), (1, float("nan"))):
        writing.step(count, loss=loss)
    assert told(writing).text.startswith("Step 62, loss 3, ")


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (93.6, "Step 50, loss 93.6, recent mean 105, 100 nats above the uniform baseline."),
        (105.2, "Step 50, loss 105, 100 nats above the uniform baseline."),
        (105.52, "Step 50, loss 106, 100 nats above the uniform baseline."),
    ],
)
def test_where_the_newest_loss_is_not_the_mean_that_is_compared_both_are_told(
    writing: Writing, last: float, words: str
) -> None:
    writing.step(49, loss=105.5)
    writing.step(1, loss=last)
    assert told(writing).text == words


def test_a_loss_that_is_not_finite_is_never_called_healthy(writing: Writing) -> None:
    writing.step(60, loss=float("inf"))
    found = told(writing)
    assert (found.level, found.title) == ("warning", "The loss is not finite")
    assert found.text == "Step 60, loss not finite. No alert was raised for it."


@pytest.mark.parametrize(("state", "level"), [("failed", "critical"), ("stopped", "ended")])
def test_a_run_that_ended_without_a_step_says_so(writing: Writing, state: RunState, level: str) -> None:
    writing.close(state)
    found = told(writing)
    assert (found.level, found.title, found.text) == (
        level,
        f"{state.capitalize()} before its first step",
        "No step was completed.",
    )


def test_without_targets_there_are_no_baselines_to_stand_beside(writing: Writing) -> None:
    nothing = dict.fromkeys(("bigram_loss", "unigram_loss", "uniform_loss"), float("nan"))
    writing.step(60, **nothing)
    assert told(writing).text == "Step 60, loss 2."


def test_the_first_49_steps_are_not_called_healthy(writing: Writing) -> None:
    writing.step(49)
    assert told(writing).title == "No alert so far"
    writing.step()
    assert told(writing).title == "Healthy"


def test_an_open_alert_is_the_verdict_with_its_words_and_since_when(writing: Writing) -> None:
    writing.step(11, loss=3.1, alerts=[alert(11)])
    assert told(writing) == Verdict(
        "critical",
        "NOT LEARNING since step 9: every token gets the same answer, worst in block 1. Restart with lr <= 3e-4.",
        "Step 11, loss 3.1, what the unigram baseline scores.",
    )


def test_the_worst_of_several_open_alerts_comes_first(writing: Writing) -> None:
    writing.step(50, alerts=[alert(50, "warning", detector="residual_blowup", action="is blowing up"), alert(50)])
    found = told(writing)
    assert found.level == "critical"
    assert found.title.endswith("worst in block 1. Restart with lr <= 3e-4. (and 1 more)")
    assert found.text == "Is blowing up. Step 50, loss 2, 0.4 nats below the bigram baseline."


def test_what_waiting_costs_is_said_beside_the_title(writing: Writing) -> None:
    writing.step(
        50, alerts=[alert(50, action="is blowing up: it grows since step 48. Cut to 1/10 now; the loss breaks")]
    )
    found = told(writing)
    assert found.title == "BLOWING UP since step 48: it grows, worst in block 1. Cut to 1/10 now."
    assert found.text.startswith("The loss breaks. Step 50")


def test_names_of_statistics_are_not_shouted(writing: Writing) -> None:
    writing.step(
        50, alerts=[alert(50, layer=None, action="has values that are not finite since step 48 (grad_sq). Stop")]
    )
    assert told(writing).title == "VALUES THAT ARE NOT FINITE (grad_sq) since step 48. Stop."


def test_names_of_layers_and_numbers_are_not_shouted(writing: Writing) -> None:
    writing.step(50, alerts=[alert(50, layer=None, action="is not finite at lr 2e-3 (h.3.norm, blocks.final). Stop")])
    assert told(writing).title == "NOT FINITE AT lr 2e-3 (h.3.norm, blocks.final) since step 48. Stop."


@pytest.mark.parametrize(
    ("action", "title"),
    [
        ("will not learn at lr 2e-3: it sits. Restart", "WILL NOT LEARN AT lr 2e-3 since step 48: it sits. Restart."),
        ("uses an Adam without warm-up. Stop", "USES AN Adam WITHOUT WARM-UP since step 48. Stop."),
        ("is 3 nats above its KL. Stop", "3 nats ABOVE ITS KL since step 48. Stop."),
    ],
)
def test_only_words_are_shouted_and_names_and_units_stay_as_they_are(writing: Writing, action: str, title: str) -> None:
    writing.step(50, alerts=[alert(50, layer=None, action=action)])
    assert told(writing).title == title


def test_the_verdict_says_what_it_is_based_on_and_who_could_not_judge(writing: Writing) -> None:
    writing.judged_by({"spike": ("loss",), "attention_blowup": ("attention_logit_max",)})
    writing.step(60)
    assert told(writing).basis == (
        "Based on 1 of 2 detectors, which judged 60 steps; the loss is compared as the mean of the newest steps."
    )


def test_an_alert_that_has_ended_leaves_the_run_healthy(writing: Writing) -> None:
    writing.step(50, alerts=[alert(50)])
    writing.step(20, alerts=[alert(70, state="cleared")])
    assert told(writing).title == "Healthy"


def test_silence_is_said_instead_of_old_numbers_shown_as_new(writing: Writing) -> None:
    writing.step(60)
    assert told(writing, age=29).title == "Healthy"
    found = told(writing, age=40)
    assert (found.level, found.title) == ("silent", "No data for 40 s")
    assert "What was last seen: Step 60" in found.text


def test_silence_does_not_make_an_open_alert_look_better(writing: Writing) -> None:
    writing.step(60, alerts=[alert(60)])
    found = told(writing, age=40)
    assert (found.level, found.title) == (
        "critical",
        "No data for 40 s. NOT LEARNING since step 58: every token gets the same answer, worst in block 1. "
        "Restart with lr <= 3e-4.",
    )


def test_slow_steps_are_given_ten_of_them(writing: Writing) -> None:
    writing.step(60, step_seconds=60.0)
    standing = Standing(writing.path)
    standing.refresh()
    assert silent_after(standing) == 600
    assert told(writing, age=599).title == "Healthy"
    assert told(writing, age=601).title == "No data for 10 min"


@pytest.mark.parametrize(
    ("state", "level", "title"),
    [("finished", "ended", "Finished"), ("stopped", "ended", "Stopped"), ("failed", "critical", "Failed")],
)
def test_a_run_that_is_over_says_how(writing: Writing, state: str, level: str, title: str) -> None:
    writing.step(60)
    writing.close(state)  # type: ignore[arg-type]
    found = told(writing, age=1e6)
    assert (found.level, found.title) == (level, title)
    assert found.text == "Step 60, loss 2, 0.4 nats below the bigram baseline. No alert was open."


def test_a_run_that_ends_with_an_open_alert_does_not_look_well(writing: Writing) -> None:
    writing.step(60, alerts=[alert(60)])
    writing.close("finished")
    assert told(writing).title.startswith("Finished. NOT LEARNING since step 58: ")
    assert told(writing).level == "critical"


@pytest.mark.parametrize(
    ("seconds", "words"), [(40.4, "40 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 d")]
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words
