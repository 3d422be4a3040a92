"""stabmon / Run, its lower half: what happens inside the network, and what stabmon costs."""

from __future__ import annotations

from dashboards.grafana import Json, query, row, transformation
from dashboards.kinds import UNREAD, curves, dashed, heatmap, profile, table
from dashboards.selecting import RATE, log10, of_layer, overhead, series, statistic


def signals() -> list[Json]:
    return [
        row("What the output depends on"),
        curves(
            "Position-dependent output",
            "Share of the variance of the last norm's output that depends on the position. Near 0: all tokens get the "
            "same answer.",
            [
                query(statistic("context_share"), "training batch"),
                query(statistic("probe_context_share"), "probe"),
            ],
            unit="sci",
            log=True,
        ),
        curves(
            "Last norm's input",
            "Mean square; it grows with the residual stream.",
            [query(statistic("final_norm_input_msq"), "mean square")],
            unit="sci",
            log=True,
        ),
        curves(
            "Largest of the layers",
            "Over all layers, as it is now.",
            [
                query(f"max({statistic(name)})", name.replace("_", " "))
                for name in ("grad_norm", "update_ratio", "norm_gain", "token_similarity")
            ],
            unit="sci",
            log=True,
        ),
    ]


def layers() -> list[Json]:
    low = statistic("grad_norm", 'layer!=""')
    module = f'label_replace({series("layer_info")}, "block", "$1", "role", "(.*)")'
    worst = f"topk(10, {low} * on (layer, block) group_left (module) {module})"
    return [
        row("Layers"),
        heatmap(
            "Norm input", "log10 of the mean square, largest of a layer's norms.", log10(of_layer("norm_input_msq"))
        ),
        heatmap("Norm gain", "log10 of what a norm multiplies by, forward and backward.", log10(of_layer("norm_gain"))),
        heatmap("Gradient", "log10 of the norm of a layer's gradients.", log10(of_layer("grad_norm"))),
        heatmap(
            "Output change",
            "log10 of how far a layer's update moves the output.",
            log10(of_layer("output_change_ratio")),
        ),
        heatmap("Token similarity", "1: all tokens alike.", of_layer("token_similarity")),
        heatmap("Update ratio", "log10 of update / weights.", log10(of_layer("update_ratio"))),
        profile("gradient norm", "Of each layer, now.", of_layer("grad_norm"), unit="sci", size=(12, 8)),
        table(
            "Largest gradients now",
            "Ten layers, with the name of the module.",
            [query(worst, instant=True, table=True)],
            unit="sci",
            transformations=[
                transformation(
                    "organize",
                    excludeByName={name: True for name in ("Time", "job", "run", "rank", "instance", "__name__")},
                    renameByName={"Value": "gradient norm"},
                    indexByName={},
                )
            ],
        ),
    ]


def output() -> list[Json]:
    return [
        row("What an update does to the output (probe), and the logits"),
        curves(
            "Output change by one update",
            "On the fixed probe: all of it, and the part of it that differs between positions.",
            [
                query(statistic("total_output_change_ratio"), "total"),
                query(statistic("output_change_context_ratio"), "position-dependent part"),
                query(statistic("output_change_kl"), "KL per token, nats"),
            ],
            unit="sci",
            log=True,
        ),
        curves(
            "Trust ratio",
            "Actual / predicted change of the probe's loss; 1: the step did what the gradient promised.",
            [query(statistic("trust_ratio"), "trust ratio"), query("vector(1)", "as promised")],
            overrides=[dashed("as promised")],
        ),
        curves(
            "Error of the estimates",
            "Relative standard error; 0 where the difference is exact.",
            [
                query(statistic("output_change_error"), "total"),
                query(statistic("block_output_change_error"), "per block"),
            ],
        ),
        curves(
            "Logits",
            "Level standard or deep. Where they drift far, bfloat16 rounds them.",
            [query(statistic(name), name.replace("_", " ")) for name in ("log_z", "logit_max", "logit_mean")],
            defaults=UNREAD,
        ),
        curves(
            "Mean square of log Z",
            "Level standard or deep. What a z-loss multiplies.",
            [query(statistic("log_z_msq"), "mean square")],
            defaults=UNREAD,
            unit="sci",
            log=True,
        ),
    ]


def cost() -> list[Json]:
    duration = series("step_duration_seconds_bucket")
    quantiles = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    return [
        row("Speed and cost"),
        curves(
            "Step time",
            "Wall time of a step: half are faster, 95 and 99 of 100.",
            [query(f"histogram_quantile({q}, sum by (le) (rate({duration}{RATE})))", name) for name, q in quantiles]
            + [query(statistic("step_seconds"), "last")],
            unit="s",
        ),
        curves("Steps per second", "Of rank 0.", [query(f"rate({series('steps_total')}{RATE})", "steps/s")]),
        curves(
            "What stabmon costs",
            "Share of the wall time that it takes in the training thread, by rank.",
            [query(overhead("rank"), "rank {{rank}}")],
            unit="percentunit",
        ),
    ]
