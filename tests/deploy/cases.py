"""What each alert says to made-up series, by promtool: when it is quiet, when it fires and with which words, and when
it is over. A sample every 15 s, from 0 on; `a+bxn` is promtool's: a, then n more, each b higher.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    """`at`: time -> whether it fires then. Texts and labels are those of its first firing."""

    alert: str
    series: Mapping[str, str]
    at: Sequence[tuple[str, bool]]
    summary: str = ""
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    """One series of run r1, rank 0."""
    all_labels = {"job": "stabmon", "instance": "gpu-1:7466", "run": "r1", "rank": "0", **labels}
    return {f"{name}{{{','.join(f'{k}={chr(34)}{v}{chr(34)}' for k, v in all_labels.items())}}}": values}


def running(values: str = "1+0x400", **labels: str) -> dict[str, str]:
    return series("stabmon_run_state", values, state="running", **labels)


STEPS = series("stabmon_step", "100+10x400")
LOSS = series("stabmon_loss", "3.125+0x400")
RUN = {**running(), **STEPS, **LOSS}


def layers(name: str, role: str, *values: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, one in enumerate(values):
        found |= series(name, one, layer=f"{number:03d}", **{role: "ln_1" if role == "norm" else "block"})
    return found


SIMILAR = layers("stabmon_token_similarity", "norm", *(f"0.{n}+0x400" for n in (2, 99, 3, 98, 97, 96, 95)))
STALL = {"severity": "critical", "detector": "context_stall"}
STALL_TEXT = """Step 180, since step 90. Loss 3.125.
What to do first: Restart with a warm-up of 300 steps or more, or with a third of the learning rate.
Worst layers by stabmon_token_similarity: 001 ln_1 0.99, 003 ln_1 0.98, 004 ln_1 0.97, 005 ln_1 0.96, 006 ln_1 0.95."""
SPIKE_TEXT = """Step 180. Loss 3.125.
What to do first: Let it run; if the loss is not back within 50 points, go back to a checkpoint from before it."""

JUDGED = [
    Case(
        "StabmonCriticalAlert",
        {
            **RUN,
            **SIMILAR,
            **series("stabmon_alerts_total", "0+0x7 1+0x400", **STALL),
            **series("stabmon_alert_active", "0+0x7 1+0x31 0+0x400", **STALL),
            **series("stabmon_alert_since_step", "_x8 90+0x400", detector="context_stall"),
        },
        [("1m45s", False), ("2m", True), ("14m", True), ("16m", False)],
        "r1: context_stall is critical at step 180",
        STALL_TEXT,
        {"detector": "context_stall"},
    ),
    Case(
        "StabmonCriticalAlert",
        {
            **running("0+0x400"),
            **series("stabmon_alerts_total", "1+0x400", **STALL),
            **series("stabmon_alert_active", "1+0x400", **STALL),
        },
        [("0s", False), ("5m", False)],
        why="a run that ended with an open alert, served from its log",
    ),
    Case(
        "StabmonCriticalAlert",
        {**RUN, **series("stabmon_alert_active", "1+0x400", **STALL)},
        [("0s", True)],
        "r1: context_stall is critical at step 100",
        "Step 100. Loss 3.125.\nWhat to do first: Restart with a warm-up of 300 steps or more, or with a third of the "
        "learning rate.",
        {"detector": "context_stall"},
        why="an alert that was open before the first scrape",
    ),
    Case(
        "StabmonWarningAlerts",
        {
            **RUN,
            **series("stabmon_alerts_total", "0+0x7 1+0x400", severity="warning", detector="spike"),
            **series("stabmon_alert_active", "0+0x400", severity="warning", detector="spike"),
        },
        [("1m45s", False), ("2m", True), ("8m", True), ("10m", False)],
        "r1: spike warns at step 180",
        SPIKE_TEXT,
        {"detector": "spike"},
        why="a spike of one step, which no scrape saw",
    ),
    Case(
        "StabmonWarningAlerts",
        {**RUN, **series("stabmon_alerts_total", "0+0x3 1+0x400", severity="warning", detector="of_mine")},
        [("1m", True)],
        "r1: of_mine warns at step 140",
        "Step 140. Loss 3.125.\nWhat to do first: See the run's page.",
        {"detector": "of_mine"},
        why="a detector of the user's own",
    ),
]

INPUTS = layers("stabmon_norm_input_msq", "norm", "1+0x400", "7+0x400")
BLOCKS = layers("stabmon_grad_norm", "block", "1+0x400", "2+0x400")
CHANGES = layers("stabmon_output_change_ratio_window_max", "block", "0.01+0x39 0.6+0x39 0.01+0x400", "0.02+0x400")
UPDATE_TEXT = """Again and again, not once. Loss 3.125.
What to do first: cut the learning rate to a third.
Worst layers by stabmon_output_change_ratio_window_max: 000 block 0.6, 001 block 0.02."""
GAIN_LOOK = "\nWhat to do first: look which layers they are, and how long it has been so."

VALUES = [
    Case(
        "StabmonNonfinite",
        {
            **RUN,
            **INPUTS,
            **series("stabmon_nonfinite_steps_total", "0+0x7 1+0x400", source="loss"),
            **series("stabmon_nonfinite_steps_total", "0+1x400", source="gradient"),
        },
        [("1m45s", False), ("2m", True), ("8m", True), ("10m", False)],
        "r1: values are Inf or NaN at step 180",
        """Loss, activations or updates were not finite. Loss 3.125.
What to do first: stop, and go back to the last checkpoint; check that its weights are finite.
Worst layers by stabmon_norm_input_msq: 001 ln_1 7, 000 ln_1 1.""",
    ),
    Case(
        "StabmonLossNaN",
        {**running(), **STEPS, **series("stabmon_loss", "3+0x7 +Inf+0x15 3+0x400")},
        [("2m45s", False), ("3m", True), ("5m45s", True), ("6m", False)],
        "r1: the loss stays Inf or NaN at step 220",
        "The last loss that was read is not finite, and so were those before it.\nWhat to do first: stop, and go back "
        "to the last checkpoint; check that its weights are finite.",
    ),
    Case(
        "StabmonGradSpike",
        {**RUN, **BLOCKS, **layers("stabmon_grad_norm_window_max", "block", "1+0x400", "2+0x79 60+0x3 2+0x400")},
        [("19m45s", False), ("20m", True), ("25m", True), ("26m", False)],
        "r1: the gradient of a block jumped x30 at step 900",
        """Within a minute a block's gradient was over 10 times its median of an hour. Loss 3.125.
What to do first: keep the last checkpoint, and look at the batches.
Worst layers by stabmon_grad_norm_window_max: 001 block 60, 000 block 1.""",
    ),
    Case(
        "StabmonNormInputGrowth",
        {
            **running(),
            **LOSS,
            **series("stabmon_step", "1000+10x400"),
            # Steps grow x3.4 in the hour, and their cube x39; the input x81 at the end of it.
            **layers("stabmon_norm_input_msq", "norm", "1+0x400", "1+0x200 81+0x80 2+0x400"),
        },
        [("60m", False), ("70m", True), ("72m", False)],
        "r1: a norm's input grew x81 in an hour at step 3800",
        """Faster than step^3, which no healthy run does. Loss 3.125.
What to do first: cut the learning rate to a tenth, or end the ramp that it is on.
Worst layers by stabmon_norm_input_msq: 001 ln_1 81, 000 ln_1 1.""",
    ),
    Case(
        "StabmonUpdateTooLarge",
        {**RUN, **CHANGES},
        [("11m15s", False), ("11m30s", True), ("19m45s", True), ("20m", False)],
        "r1: updates of a block move the output by 60% at step 560",
        UPDATE_TEXT,
    ),
    Case(
        "StabmonGainCollapse",
        {**RUN, **layers("stabmon_norm_gain", "norm", "1+0x400", "1+0x7 0.0005+0x31 1+0x400")},
        [("6m45s", False), ("7m", True), ("10m", False)],
        "r1: a norm multiplies by 0.0005 at step 380",
        f"Its input is so long that nearly no gradient passes it. Loss 3.125.{GAIN_LOOK}",
    ),
    Case(
        "StabmonGainExplosion",
        {**RUN, **layers("stabmon_norm_gain", "norm", "1+0x400", "1+0x7 5000+0x31 1+0x400")},
        [("6m45s", False), ("7m", True), ("10m", False)],
        "r1: a norm multiplies by 5e+03 at step 380",
        f"Its input is so short that gradients and noise explode in it. Loss 3.125.{GAIN_LOOK}",
    ),
    Case(
        "StabmonLossDiverging",
        {**running(), **STEPS, **series("stabmon_loss", "2+0x79 8+0x39 2+0x400")},
        [("22m", False), ("27m", True), ("36m", False)],
        "r1: the loss is twice its best of an hour at step 1180",
        "Mean of five minutes 8.\nWhat to do first: go back to the last checkpoint from before the rise, at a third of "
        "the learning rate.",
    ),
]


def state(name: str, values: str, **labels: str) -> dict[str, str]:
    return series("stabmon_run_state", values, state=name, **labels)


GONE_TEXT = """It was running when it was last seen, and did not say that it finished, failed, stopped or was \
preempted: killed (memory, node, kill -9), or out of reach. Loss 3.125.
What to do first: look at the scheduler and at the kernel's log of its node; then resume from the last checkpoint."""
ALIVE_40 = {
    **running("1+0x39 stale"),
    **state("finished", "0+0x39 stale"),
    **series("stabmon_step", "100+10x39 stale"),
    **series("stabmon_loss", "3.125+0x39 stale"),
}


def ended(how: str) -> Case:
    values = {**running("1+0x37 0 0 stale"), **state(how, "0+0x37 1 1 stale")}
    return Case("StabmonRunVanished", values, [("12m", False), ("20m", False)], why=f"it said that it {how}")


MISSING_TEXT = """They are gone or never came, or Prometheus does not know of them; others of the run are scraped.
What to do first: look at the nodes of those ranks, and whether each rank is a target of Prometheus."""

RUNS = [
    Case(
        "StabmonRunStalled",
        {**RUN, **series("stabmon_last_step_timestamp_seconds", "0+15x40 600+0x39 1200+15x400")},
        [("15m", False), ("15m15s", True), ("19m45s", True), ("21m", False)],
        "r1: no step for 5m 15s at step 710",
        """The process answers, but trains no more: a collective that waits, storage, a data loader, or an evaluation \
of over 5m. Loss 3.125.
What to do first: py-spy dump on every rank.""",
    ),
    Case(
        "StabmonRunStalled",
        {**running("0+0x100"), **series("stabmon_last_step_timestamp_seconds", "0+0x100")},
        [("20m", False)],
        why="a run that has finished",
    ),
    Case(
        "StabmonRunVanished",
        ALIVE_40,
        [("10m45s", False), ("11m", True), ("24m", True), ("26m", False)],
        "r1: gone without an end at step 490",
        GONE_TEXT,
    ),
    ended("finished"),
    ended("preempted"),
    ended("stopped"),
    ended("failed"),
    Case(
        "StabmonRunVanished",
        {**running("1+0x39 stale"), **running("_x60 1+0x100", instance="gpu-2:7466")},
        [("11m", True), ("15m15s", False), ("25m", False)],
        "r1: gone without an end",
        GONE_TEXT.replace(" Loss 3.125.", ""),
        why="it was resumed on another machine",
    ),
    Case(
        "StabmonRunFailed",
        {
            **{name: values.replace("400", "10 stale") for name, values in {**STEPS, **LOSS}.items()},
            **state("failed", "0+0x7 1+0x2 stale"),
            **series("stabmon_last_step_timestamp_seconds", "0+15x10 stale"),
        },
        [("1m45s", False), ("2m", True), ("7m", True), ("8m", False)],
        "r1: ended by an exception at step 180",
        "The training raised. Loss 3.125.\nWhat to do first: read the end of its log.",
    ),
    Case(
        "StabmonRunFailed",
        {**state("failed", "1+0x400"), **series("stabmon_last_step_timestamp_seconds", "-9000+0x400")},
        [("10m", False)],
        why="it failed long ago, and its log is still served",
    ),
    Case(
        "StabmonTargetDown",
        {
            'up{job="stabmon",instance="gpu-1:7466"}': "1+0x39 0+0x39 1+0x400",
            **running("1+0x39 stale"),
            **series("stabmon_step", "100+10x400", rank="1", instance="gpu-2:7466"),
        },
        [("10m45s", False), ("11m", True), ("20m15s", False)],
        "r1: gpu-1:7466 does not answer at step 540",
        "A training ran there when it was last scraped.\nWhat to do first: look whether the process lives, and at "
        "Prometheus' page of targets.",
        {"instance": "gpu-1:7466"},
    ),
    Case(
        "StabmonTargetDown",
        {'up{job="stabmon",instance="gpu-1:7466"}': "1+0x39 0+0x100", **running("1+0x37 0 0 stale")},
        [("15m", False)],
        why="the training there had finished",
    ),
    Case(
        "StabmonRankMissing",
        {**RUN, **series("stabmon_step", "100+10x39 stale", rank="1", instance="gpu-2:7466")},
        [("11m45s", False), ("12m", True), ("26m", False)],
        "r1: 1 of its ranks are missing at step 580",
        MISSING_TEXT,
        why="served by a rank 0 that does not tell how many there are",
    ),
    Case(
        "StabmonRankMissing",
        {
            **RUN,
            **series("stabmon_world_size", "4+0x400"),
            **series("stabmon_step", "100+10x400", rank="1", instance="gpu-2:7466"),
            **series("stabmon_step", "_x40 500+10x400", rank="2", instance="gpu-3:7466"),
            **series("stabmon_step", "_x60 700+10x400", rank="3", instance="gpu-4:7466"),
        },
        [("1m45s", False), ("2m", True), ("14m45s", True), ("15m", False)],
        "r1: 2 of its ranks are missing at step 180",
        MISSING_TEXT,
        why="two ranks that come late",
    ),
    Case(
        "StabmonRankMissing",
        {
            **RUN,
            **series("stabmon_world_size", "2+0x39 1+0x400"),
            **series("stabmon_step", "100+10x39 stale", rank="1", instance="gpu-2:7466"),
        },
        [("9m", False), ("12m", False), ("14m", False)],
        why="it goes on with fewer ranks",
    ),
    Case(
        "StabmonRankDesync",
        {
            **RUN,
            **series("stabmon_steps_total", "0+10x400"),
            # 20 steps in two scrapes are no difference, nor are 50 more.
            **series("stabmon_step", "30+10x39 429+10x39 900+10x400", rank="1", instance="gpu-2:7466"),
        },
        [("9m45s", False), ("11m45s", False), ("12m", True), ("20m15s", False)],
        "r1: its ranks are 71 steps apart at step 580",
        "Ranks that train one model take their steps together.\nWhat to do first: look whether each rank has its own "
        "run name, and which rank is behind.",
    ),
]

MONITOR = [
    Case(
        "StabmonOverheadHigh",
        series("stabmon_monitor_seconds_total", "0+1.5x100 150+0.15x400"),
        [("14m", False), ("16m", True), ("36m", False)],
        "r1: stabmon takes 10% of the time",
        "What to do first: a larger `every`, or level `light`.",
    ),
    Case(
        "StabmonNotificationsFailing",
        {
            **series("stabmon_notifications_total", "0+0x7 1+0x400", channel="slack", outcome="failed"),
            **series("stabmon_notifications_total", "0+1x400", channel="notify", outcome="sent"),
        },
        [("1m45s", False), ("2m", True), ("13m", False)],
        "r1: alerts do not get through to slack",
        "What to do first: look at the run's log for what it answered.",
        {"channel": "slack"},
    ),
    Case(
        "StabmonPartFailures",
        series("stabmon_part_failures_total", "0+0x7 1+0x400", part="spike"),
        [("1m45s", False), ("2m", True), ("13m", False)],
        "r1: stabmon's spike raised, and was dropped",
        "The training is not touched by it; what that part read or sent is missing from now on.\nWhat to do first: its "
        "traceback is in the run's log; please report it.",
        {"part": "spike"},
    ),
    Case(
        "StabmonSeriesDropped",
        series("stabmon_series_dropped", "0+0x7 500+0x60 0+0x400"),
        [("11m45s", False), ("12m", True), ("18m", False)],
        "r1: 500 series are not served",
        "The run has more series than its limit; layers are left out.\nWhat to do first: watch fewer layers "
        "(`include`), or raise the limit.",
    ),
]

CASES = [*JUDGED, *VALUES, *RUNS, *MONITOR]
