"""The numbers that a runbook names are those that its detector judges by."""

from math import exp
from pathlib import Path

import pytest

from stabmon.detectors import default_detectors
from stabmon.detectors.thresholds import (
    attention,
    blowup,
    dead_layers,
    logits,
    loss,
    nonfinite,
    precision,
    ranks,
    shift,
    stall,
    units,
    updates,
    wiring,
)
from stabmon.records import RUNBOOKS


def told(value: float) -> str:
    """As people write it: .3, 50, 1,000, .002, 1e-4."""
    if abs(value) < 0.002:
        return power(value)
    text = f"{value:,.0f}" if value == int(value) else f"{value:g}"
    return text.removeprefix("0")


def power(value: float) -> str:
    return f"{value:.0e}".replace("e-0", "e-")


def factor(logarithm: float) -> str:
    return f"{exp(logarithm):.0f}"


def percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


WORDS = {2: "two", 3: "three", 5: "five", 8: "eight", 10: "ten", 12: "dozen", 20: "twenty", 30: "thirty", 4: "four"}

PHRASES: dict[str, list[str]] = {
    "attention_blowup": [
        f"p > {told(attention.EXPONENT)} over the last 30 % of the run, for {attention.HOLD_STEPS} steps or a fifth of",
        f"from step {attention.FIRST_STEP} on",
        f"S > {told(attention.LARGE)}, or entropy < {told(attention.SHARP)} and {told(attention.FALLEN)} times under",
        f"where {WORDS[attention.TOGETHER_LAYERS]} layers or more do it together",
        f"over the last {told(attention.TOGETHER_STEPS)} steps the geometric mean of S",
        f"grows as t^{told(attention.TOGETHER_EXPONENT)} or faster and {told(attention.TOGETHER_GROWN)}-fold",
        f"falls as 1/t or faster and {told(attention.TOGETHER_FALLEN)}-fold",
        f"does not fall by {percent(attention.LEARNS)}",
        f"S > {told(attention.HUGE)} and twice its first value",
        f"once the loss is {percent(attention.SUFFERS)} over its best level",
        f"with S > {told(attention.CLIP)} by sqrt({told(attention.CLIP)} / S)",
    ],
    "context_stall": [
        f"`context_share` < {told(stall.COLLAPSED)} for {stall.PLATEAU_STEPS} steps without rising",
        f"`context_share` < {told(stall.SUNK)} within {stall.SOON_STEPS} steps of its fall under "
        f"{told(stall.COLLAPSED)}",
        f"or < {told(stall.SLOW_LOST)}; or {stall.PATIENT_STEPS} steps on a plateau",
        f"worth more than {told(stall.LEARNABLE)} nats",
        f"within {told(stall.FLAT)} a step of 0 for {stall.FLAT_STEPS} steps",
        f"< {told(stall.LOST)} for {stall.LOST_STEPS} steps",
        f"it sank slowly and is < {told(stall.SLOW_LOST)} for {stall.LOST_STEPS}",
        f"< {told(stall.LOW)} and falling by {told(-stall.FALLING)} a step for {stall.LOW_STEPS}",
        f"rises by more than {told(stall.RISING)} per step for {stall.RISING_STEPS} steps",
        f"had been {told(stall.KNEW)} nats under the unigram loss, and has been at most {told(stall.KEPT)} under it "
        f"for {stall.RELAPSE_STEPS} steps",
        f"the same for {stall.RELAPSE_LONG} steps",
        f"or the probe's has been < {told(stall.DEEP)} for {stall.DEEP_STEPS}",
        f"came back over {told(stall.RECOVERED)} {stall.IDLE_STEPS} steps ago, and the loss",
        f"the same {stall.IDLE_LONG} steps after",
    ],
    "dead_layers": [
        f"gradient < {power(dead_layers.RATIO)} of the last block's for {dead_layers.HOLD_STEPS} steps and "
        f"{dead_layers.HOLD_READINGS} readings",
        f"`epsilon_share` > {told(dead_layers.EPSILON)} for {dead_layers.HOLD_STEPS} steps",
    ],
    "dead_units": [f"after {WORDS[units.READINGS]} readings in a row", "half of the hidden units, and a quarter more"],
    "diverged": [
        f"has lost {percent(loss.DIVERGED_SHARE)} or more of its progress",
        f"had fallen by less than {percent(loss.DIVERGED_PROGRESS)}",
        f"Before step {loss.EARLY_STEPS}",
    ],
    "exploded": [
        f"{WORDS[round(exp(loss.EXPLODED_LEAST))]} times the loss (before step {loss.EARLY_STEPS}: "
        f"{WORDS[round(exp(loss.EXPLODED_EARLY))]} times) and {WORDS[int(loss.EXPLODED_NOISE)]} times the noise",
        f"or, from step {loss.EARLY_STEPS} on, {WORDS[round(exp(loss.EXPLODED_START))]} times the start",
    ],
    "flat": [
        f"began at {told(loss.FLAT_FIRST[0])} to {told(loss.FLAT_FIRST[1])} nats",
        f"still above {percent(loss.FLAT_LEVEL)} of that",
        f"began at {told(loss.FLAT_GUESS)} nats or more",
        f"warning needs {loss.FLAT_POINTS} points, step {told(loss.FLAT_STEPS)}",
        f"critical from {told(loss.FLAT_FIRST[0])} nats on",
        f"standard errors < {told(loss.FLAT_SLOWEST)}",
        f"the info {loss.SITS_POINTS} points",
    ],
    "gradient_spike": [
        f"over {factor(updates.JUMP)} times the median of the last {updates.TREND}",
        f"over {factor(updates.JUMP_ALONE)} times the median and",
        f"by e a step on average and never by less than e^{told(updates.GROWTH_EACH)}",
        f"each over {factor(updates.SLOW_LEAST)} times its level and {told(updates.SLOW_SPREADS)} standard deviations",
        "odds of 1e4 to 1",
    ],
    "logit_drift": [
        f"rms of log Z is {told(logits.LEVEL)} or more",
        f"the last {told(logits.LONG_STEPS)} steps and more",
        f"from step {logits.FIRST_STEP} on",
    ],
    "loss_shift": [
        f"any other rise that lasts {shift.LASTS_ELSE} points; {shift.SAME_STEPS} steps of one batch",
        f"told after {shift.SAME_STEPS} repeats, critical after {shift.SAME_LONG}",
        f"(KL <= {told(shift.KL)}, length <= {told(shift.LONGER)} times the usual one)",
        f"{told(shift.SPREADS)} standard deviations and {told(shift.LEAST)} nats",
    ],
    "nonfinite": [
        f"More than {nonfinite.SKIPS} in a row",
        f"values above {told(nonfinite.ZEROS_AFTER)} (and above a thousandth",
    ],
    "precision": [
        f"within x{factor(precision.HEADROOM)} of 65,504",
        f"overflows within {precision.OVERFLOW_STEPS}",
        f"all blocks together, {told(precision.LOST)} or more for {WORDS[precision.LOST_READINGS]} readings",
        f"less than {told(precision.SHRUNK)} of what was meant",
        f"{percent(precision.SWAMPED)} or more for {WORDS[precision.SWAMPED_READINGS]} readings, from step "
        f"{precision.SWAMPED_STEP} on",
    ],
    "rank_trouble": [
        f"differ by more than {told(ranks.EQUAL)}",
        f"the highest loss {ranks.LOSS_READINGS} times in a row, by half or more",
        "by a tenth or more",
    ],
    "residual_blowup": [
        f"p > {told(blowup.EXPONENT)} over the last 30 % of the run, or over the last "
        f"{told(blowup.RATE_STEPS)} steps if n "
        f"also grows by {percent(blowup.RATE)} a step; held for {blowup.HOLD_STEPS} steps; judged from step "
        f"{blowup.FIRST_STEP} on, with n over {told(blowup.GROWN)} times its first value",
        f"`trust_ratio` < {told(blowup.TRUST)} {WORDS[blowup.TRUST_READINGS]} times in a row",
        f"`output_change_kl` > {told(blowup.SHOCK)}",
        f"context share under {told(blowup.PLATEAU)} when it began",
        f"`context_share` < {told(blowup.COLLAPSED)} when it began",
    ],
    "spike": ["a change of the learning rate by x1.5"],
    "update_shock": [
        f"the probe's loss rose by {told(updates.OVERSHOT)} nats or more",
        f"the last {WORDS[updates.LOSSES_SINCE]} losses before a later reading are each over all of the "
        f"{WORDS[updates.LOSSES_BEFORE]} before the update",
        f"at once if it rose by over {told(updates.EXPLODED)} nat",
        f"two with KL over {told(updates.HOT)} and {WORDS[int(updates.HOT_RATIO)]} times the run's own "
        f"median that kept "
        f"less than {told(updates.TRUST)}",
        f"KL of {WORDS[updates.EDGE_READINGS]} readings over {told(updates.EDGE)} and together less than "
        f"{told(updates.EDGE_TRUST)} kept",
        f"The limit is {told(updates.SHOCK)} nats, or {told(updates.SHOCK_RISE)} times the median of the last "
        f"{WORDS[updates.SHOCK_READINGS]} readings if that is less (but not under {told(updates.SHOCK_FLOOR)}), or "
        f"{WORDS[int(updates.SHOCK_RATIO)]} times that median if that is more; "
        f"{told(updates.SHOCK_UNKNOWN)} nat before",
        f"While the loss falls by {percent(updates.LEARNS)} in a {WORDS[updates.LEARNS_LOSSES]} steps",
        f"Readings of the first {updates.SETTLED_STEP} steps",
        f"context share under {told(updates.PLATEAU_SHARE)}",
    ],
    "wiring": [
        f"what shows after step {told(wiring.LAST_STEP)} only",
        f"in {WORDS[wiring.UNMOVED_READINGS]} readings from the first on",
        f"rises in {percent(wiring.KEPT_RISES)} of the first {wiring.KEPT_READINGS} steps and to "
        f"{told(wiring.KEPT_GROWTH)} times the first",
        f"adds more than {told(wiring.BRANCH)} per feature",
        f"falls to {told(wiring.SUM_FALLS)} or less",
        f"under {told(wiring.LEAK_SHARE_SOON)} of `bigram_loss` within {wiring.LEAK_SOON} steps, or "
        f"{told(wiring.LEAK_SHARE)} within {told(wiring.LAST_STEP)}",
    ],
}


def missing(page: Path, phrases: list[str]) -> list[str]:
    text = " ".join(page.read_text().split())
    return [phrase for phrase in phrases if phrase not in text]


@pytest.mark.parametrize("detector", PHRASES)
def test_a_runbook_names_the_lines_that_its_detector_judges_by(detector: str) -> None:
    assert missing(RUNBOOKS / f"{detector}.md", PHRASES[detector]) == []


def test_every_detector_has_its_phrases() -> None:
    assert {detector.name for detector in default_detectors()} == PHRASES.keys()
