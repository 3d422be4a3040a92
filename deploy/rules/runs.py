"""Alerts on runs and their ranks: hanging, gone, failed, apart."""

from __future__ import annotations

from deploy.rules.rule import LOSS, STEP, Rule, Timing, duration, while_running

DAY = 86400
"""A run that has been silent for longer is an old one whose run log says that it never ended."""
DESYNC = 50
"""Steps, beside what a rank does between two scrapes. Chosen."""
_AGE = "time() - max by (job, run) (stabmon_last_step_timestamp_seconds)"


def rules(timing: Timing) -> list[Rule]:
    return [_stalled(timing), _vanished(timing), _failed(timing), _down(timing), *_ranks(timing)]


def _stalled(timing: Timing) -> Rule:
    return Rule(
        "StabmonRunStalled",
        "critical",
        while_running(f"{_AGE} > {timing.hang_seconds} < {DAY}"),
        f"{{{{ $labels.run }}}}: no step for {{{{ $value | humanizeDuration }}}}{STEP}",
        f"The process answers, but trains no more: a collective that waits, storage, a data loader, or an evaluation "
        f"of over {duration(timing.hang_seconds)}.{LOSS}\nWhat to do first: py-spy dump on every rank.",
    )


def _vanished(timing: Timing) -> Rule:
    back = timing.scrapes(60)

    def last(which: str) -> str:
        return f'max by (job, run) (last_over_time(stabmon_run_state{{state{which}"running"}}[{back}])) == 1'

    return Rule(
        "StabmonRunVanished",
        "critical",
        f"{last('=')}\nunless on (job, run) {last('!=')}\nunless on (job, run) group by (job, run) (stabmon_run_state)",
        f"{{{{ $labels.run }}}}: gone without an end{STEP}",
        f"It was running when it was last seen, and did not say that it finished, failed, stopped or was preempted: "
        f"killed (memory, node, kill -9), or out of reach.{LOSS}\nWhat to do first: look at the scheduler and at the "
        "kernel's log of its node; then resume from the last checkpoint.",
        hold=timing.scrapes(4),
        dashboard="stabmon-runs",
    )


def _failed(timing: Timing) -> Rule:
    recent = f"{_AGE} < {240 * timing.scrape_seconds}"
    return Rule(
        "StabmonRunFailed",
        "critical",
        f'max by (job, run) (stabmon_run_state{{state="failed"}}) == 1\nand on (job, run) {recent}',
        f"{{{{ $labels.run }}}}: ended by an exception{STEP}",
        f"The training raised.{LOSS}\nWhat to do first: read the end of its log.",
        keep=timing.scrapes(20),
        dashboard="stabmon-runs",
    )


def _down(timing: Timing) -> Rule:
    ran = (
        f'max by (job, run, instance) (last_over_time(stabmon_run_state{{state="running"}}[{timing.scrapes(60)}])) == 1'
    )
    return Rule(
        "StabmonTargetDown",
        "warning",
        f"{ran}\nand on (job, instance) up == 0",
        "{{ $labels.run }}: {{ $labels.instance }} does not answer" + STEP,
        "A training ran there when it was last scraped.\nWhat to do first: look whether the process lives, and at "
        "Prometheus' page of targets.",
        hold=timing.scrapes(4),
        dashboard="stabmon-exporter",
    )


def _ranks(timing: Timing) -> list[Rule]:
    seen = f"count by (job, run) (count by (job, run, rank) (last_over_time(stabmon_step[{timing.scrapes(60)}])))"
    now = "count by (job, run) (count by (job, run, rank) (stabmon_step))"
    all_ranks = f"(\n  max by (job, run) (stabmon_world_size)\n  or\n  {seen}\n)"
    spread = "max by (job, run) (stabmon_step) - min by (job, run) (stabmon_step)"
    window, both = timing.scrapes(8), 2 * timing.scrape_seconds
    allowed = f"{DESYNC} + {both} * max by (job, run) (rate(stabmon_steps_total[{window}]))"
    return [
        Rule(
            "StabmonRankMissing",
            "warning",
            while_running(f"{all_ranks} - {now} > 0"),
            "{{ $labels.run }}: {{ $value }} of its ranks are missing" + STEP,
            "They are gone or never came, or Prometheus does not know of them; others of the run are scraped.\nWhat to "
            "do first: look at the nodes of those ranks, and whether each rank is a target of Prometheus.",
            hold=timing.scrapes(8),
            dashboard="stabmon-ranks",
        ),
        Rule(
            "StabmonRankDesync",
            "warning",
            while_running(f"{spread} > {allowed}"),
            "{{ $labels.run }}: its ranks are {{ $value }} steps apart" + STEP,
            "Ranks that train one model take their steps together.\nWhat to do first: look whether each rank has its "
            "own run name, and which rank is behind.",
            page="rank_trouble",
            hold=timing.scrapes(8),
            dashboard="stabmon-ranks",
        ),
    ]
