"""stabmon / Ranks: the processes of one run, and what is to be equal on them."""

from __future__ import annotations

from dashboards.grafana import Json, dashboard, link, query, row
from dashboards.kinds import BAD, ONE_RANK, WHOLE, curves, heatmap, stat
from dashboards.selecting import JOB, RATE, RUN, log10, notes, of_layer, overhead, series, statistic, while_running

UID = "stabmon-ranks"


def board() -> Json:
    return dashboard(
        UID,
        "stabmon / Ranks",
        "The processes of a run: who is behind, who is slow, whose copy of the model differs.",
        [JOB, RUN],
        notes(),
        [*_now(), *_time(), *_equal()],
    ) | {"links": [link("stabmon"), link("Run", "stabmon-run")]}


def _now() -> list[Json]:
    step = series("step", rank="")
    missing = f"max({series('world_size')}) - count(count by (rank) ({step}))"
    return [
        stat(
            "World size",
            "As the run was started.",
            [query(series("run_info"), "{{world_size}}", instant=True)],
            names=True,
            size=(4, 4),
        ),
        stat(
            "Ranks missing",
            "They do not answer, or Prometheus does not know of them.",
            [query(missing, instant=True)],
            size=(4, 4),
            defaults=BAD | {"noValue": "not known"},
        ),
        stat(
            "Ranks read",
            "By stabmon's own collective; absent with one rank.",
            [query(statistic("ranks_read"), instant=True)],
            defaults=ONE_RANK,
            size=(4, 4),
        ),
        stat(
            "Ranks lost",
            "A part of stabmon failed there; absent with one rank.",
            [query(statistic("ranks_lost"), instant=True)],
            size=(4, 4),
            defaults=BAD | ONE_RANK,
        ),
        stat(
            "Steps apart",
            "Foremost less hindmost rank, as scraped.",
            [query(f"max({step}) - min({step})", instant=True)],
            size=(4, 4),
        ),
        stat(
            "Parts failed",
            "Parts of stabmon that were dropped, on any rank.",
            [query(f"sum(increase({series('part_failures_total', rank='')}[$__range]))", instant=True)],
            size=(4, 4),
            defaults=BAD,
        ),
    ]


def _time() -> list[Json]:
    step = series("step", rank="")
    behind = f"scalar(max({step})) - max by (rank) ({step})"
    age = while_running(f"time() - max by (rank) ({series('last_step_timestamp_seconds', rank='')})", "rank")
    total, count = (series(f"step_duration_seconds_{part}", rank="") for part in ("sum", "count"))
    mean = f"sum by (rank) (rate({total}{RATE})) / sum by (rank) (rate({count}{RATE}))"
    return [
        row("Time"),
        curves(
            "Steps behind the foremost",
            "Scrapes are not simultaneous: a few steps are none.",
            [query(behind, "rank {{rank}}")],
            defaults={"min": 0},
        ),
        curves(
            "Since the last step",
            "A rank that hangs stops all others.",
            [query(age, "rank {{rank}}")],
            unit="s",
            defaults={"min": 0},
        ),
        curves("Step time", "Mean.", [query(mean, "rank {{rank}}")], unit="s"),
        curves(
            "What stabmon costs",
            "Share of the wall time.",
            [query(overhead("rank"), "rank {{rank}}")],
            unit="percentunit",
            defaults={"min": 0},
        ),
        curves(
            "Steps lost on their way to the host",
            "They were taken, but not seen.",
            [query(f"sum by (rank) (increase({series('dropped_rows_total', rank='')}{RATE}))", "rank {{rank}}")],
            defaults=WHOLE,
        ),
        curves(
            "Last step", "How long it took.", [query(statistic("step_seconds", rank=""), "rank {{rank}}")], unit="s"
        ),
    ]


def _equal() -> list[Json]:
    return [
        row("What is to be equal on all ranks (absent with one rank)"),
        curves(
            "Spread of the loss",
            "(Highest - lowest) / larger.",
            [query(statistic("rank_loss_spread"), "loss")],
            size=(12, 8),
        ),
        curves(
            "Largest spread of weights and gradients",
            "Over the layers; 0 where copies are equal.",
            [
                query(f"max({statistic('rank_weight_spread')})", "weights"),
                query(f"max({statistic('rank_grad_spread')})", "gradients"),
            ],
            unit="sci",
            defaults=ONE_RANK,
            size=(12, 8),
        ),
        heatmap(
            "Weights differ",
            "log10 of the spread between ranks; -12: equal.",
            log10(of_layer("rank_weight_spread")),
            defaults=ONE_RANK,
        ),
        heatmap(
            "Gradients differ",
            "log10 of the spread between ranks; -12: equal.",
            log10(of_layer("rank_grad_spread")),
            defaults=ONE_RANK,
        ),
    ]
