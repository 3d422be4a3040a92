"""stabmon / Run: one run, from its loss down to its layers."""

from __future__ import annotations

from dashboards.boards.run_inside import cost, layers, output, signals
from dashboards.grafana import (
    GREEN,
    GREY,
    ORANGE,
    RED,
    Json,
    dashboard,
    link,
    mapped,
    override,
    query,
    row,
    steps,
    transformation,
)
from dashboards.kinds import BAD, STATES, WHOLE, curves, dashed, stat, table, timeline, trend
from dashboards.selecting import JOB, RATE, RUN, firing, notes, series, standing, statistic, while_running

UID = "stabmon-run"


def board() -> Json:
    return dashboard(
        UID,
        "stabmon / Run",
        "One training run: its loss beside its baselines, its alerts, and what happens in its layers.",
        [JOB, RUN],
        notes(),
        [*_now(), *_alerts(), *_loss(), *signals(), *layers(), *output(), *cost()],
    ) | {"links": [link("stabmon"), link("Layer", "stabmon-layer"), link("Ranks", "stabmon-ranks")]}


def _now() -> list[Json]:
    colors = [override(state, color={"mode": "fixed", "fixedColor": color}) for state, color in STATES.items()]
    age = while_running(f"time() - max({series('last_step_timestamp_seconds')})")
    opened = series("alert_active", 'severity=~"warning|critical"')
    return [
        stat(
            "State",
            "running, finished, failed, stopped or preempted.",
            [query(f"{series('run_state')} == 1", "{{state}}", instant=True)],
            names=True,
            overrides=colors,
        ),
        stat("Step", "Completed optimizer steps.", [query(series("step"), instant=True)], defaults={"decimals": 0}),
        stat(
            "Loss",
            "Of the last step; nats for a cross-entropy.",
            [query(statistic("loss"), instant=True)],
            defaults={"decimals": 3},
        ),
        stat(
            "Since last step",
            "Of a run that goes on; long for a hang, a long evaluation or a checkpoint.",
            [query(age, instant=True)],
            unit="s",
            defaults={"thresholds": steps((None, GREEN), (60, ORANGE), (300, RED)), "noValue": "ended"},
        ),
        stat(
            "Ranks",
            "How many are scraped now.",
            [query(f"count({series('step', rank='')})", instant=True)],
        ),
        stat(
            "Non-finite steps",
            "Steps with a loss, gradient, activation or update that is not finite.",
            [query(f"sum(increase({series('nonfinite_steps_total', rank='')}[$__range]))", instant=True)],
            defaults=BAD,
        ),
        stat(
            "Open alerts",
            "Warnings and critical ones.",
            [query(f"sum({opened})", instant=True)],
            defaults=BAD,
        ),
        stat(
            "Start",
            "Whether the run is known to start from pretrained weights.",
            [query(statistic("pretrained"), instant=True)],
            defaults={
                "mappings": mapped(_0=("from scratch", GREY), _1=("pretrained", GREY)),
                "noValue": "not known yet",
            },
        ),
    ]


def _alerts() -> list[Json]:
    raised = f"sum by (detector, severity) (increase({series('alerts_total', rank='')}{RATE})) > 0"
    return [
        row("Alerts"),
        timeline(
            "Detectors",
            "What stabmon has open, by detector: only detectors that had an alert in this time range.",
            [query(standing(), "{{detector}}")],
        ),
        timeline("Rules that fire", "Prometheus' alert rules for this run.", [query(firing(), "{{alertname}}")]),
        table(
            "Alerts raised in this time range",
            "The step that the detector last raised at is beside it.",
            [
                query(
                    f"sum by (detector) (increase({series('alerts_total', rank='')}[$__range])) > 0",
                    instant=True,
                    table=True,
                ),
                query(f"max by (detector) ({series('alert_last_step', rank='')})", instant=True, table=True),
            ],
            transformations=[
                transformation("joinByField", byField="detector", mode="inner"),
                transformation(
                    "organize",
                    excludeByName={"Time": True, "Time 1": True, "Time 2": True},
                    renameByName={"Value #A": "alerts", "Value #B": "last at step"},
                    indexByName={},
                ),
            ],
            overrides=[override("alerts", decimals=0), override("last at step", decimals=0)],
        ),
        curves(
            "Alerts raised",
            "When, by detector and severity.",
            [query(raised, "{{detector}} {{severity}}")],
            size=(12, 8),
            custom={"drawStyle": "bars", "fillOpacity": 60},
            defaults={"decimals": 0, "min": 0, "noValue": "none"},
        ),
    ]


def _loss() -> list[Json]:
    guesses = {
        "unigram loss": statistic("unigram_loss"),
        "bigram or class mean loss": f"{statistic('bigram_loss')} or {statistic('class_mean_loss')}",
        "uniform loss": statistic("uniform_loss"),
    }
    lines = [
        query(statistic("loss"), "loss"),
        query(statistic("loss", suffix="_window_max"), "highest of the last minute"),
    ]
    lines += [query(expr, name) for name, expr in guesses.items()]
    lines += [query(statistic("eval_loss"), "evaluation"), query(statistic("probe_loss"), "probe")]
    return [
        row("Loss"),
        curves(
            "Loss over time",
            "With what a model would score that ignores its input (unigram), sees one token of it (bigram), or of a "
            "classifier's input knows the class means.",
            lines,
            size=(12, 9),
            overrides=[dashed(name) for name in guesses],
        ),
        trend(
            "Loss over the step", "The loss as it was scraped.", series("step"), statistic("loss"), "loss", size=(12, 9)
        ),
        curves(
            "Learning rate",
            "Of the first parameter group.",
            [query(statistic("learning_rate"), "learning rate")],
            unit="sci",
        ),
        curves(
            "Gradient norm",
            "Of all gradients, before clipping, and its highest of the last minute.",
            [
                query(statistic("total_grad_norm"), "gradient norm"),
                query(statistic("total_grad_norm", suffix="_window_max"), "highest of the last minute"),
            ],
            unit="sci",
            log=True,
        ),
        curves(
            "Skipped steps",
            "1 where a loss scaler skipped the step.",
            [query(statistic("skipped_steps"), "skipped")],
            defaults=WHOLE,
        ),
    ]
