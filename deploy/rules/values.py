"""Alerts on the numbers themselves, for runs whose detectors are switched off or of a kind they do not know.

Where a threshold is a detector's own, it is read from the detectors' table.
"""

from __future__ import annotations

from math import exp

from deploy.rules.rule import LOSS, STEP, Rule, Timing, while_running, worst_layers
from stabmon.detectors.thresholds import blowup, loss, updates

GROWTH = 4
"""Times in an hour, beside the exponent. Chosen: what doubles twice is worth a look."""
GAIN = (1e-3, 1e3)
"""Chosen: inputs of a norm a thousand times too large or too small for float16."""
_OWN = "by (job, run)"
_STEPS = f"max {_OWN} (stabmon_step)"


def rules(timing: Timing) -> list[Rule]:
    return [*_nonfinite(timing), *_signals(timing), *_gains(), _diverging()]


def _nonfinite(timing: Timing) -> list[Rule]:
    # A gradient that is not finite is an ordinary step of a loss scaler; the detector counts those.
    counted = f'increase(stabmon_nonfinite_steps_total{{source!="gradient"}}[{timing.scrapes(8)}])'
    lost = f"max {_OWN} (abs(stabmon_loss) == Inf or stabmon_loss != stabmon_loss)"
    return [
        Rule(
            "StabmonNonfinite",
            "critical",
            f"sum {_OWN} ({counted}) > 0",
            f"{{{{ $labels.run }}}}: values are Inf or NaN{STEP}",
            f"Loss, activations or updates were not finite.{LOSS}\nWhat to do first: stop, and go back to the last "
            f"checkpoint; check that its weights are finite.{worst_layers('stabmon_norm_input_msq')}",
            page="nonfinite",
            keep=timing.scrapes(20),
        ),
        Rule(
            "StabmonLossNaN",
            "critical",
            while_running(lost),
            f"{{{{ $labels.run }}}}: the loss stays Inf or NaN{STEP}",
            "The last loss that was read is not finite, and so were those before it.\nWhat to do first: stop, and go "
            "back to the last checkpoint; check that its weights are finite.",
            page="nonfinite",
            hold=timing.scrapes(4),
        ),
    ]


def _signals(timing: Timing) -> list[Rule]:
    usual = "quantile_over_time(0.5, stabmon_grad_norm[1h])"
    enough = f"count_over_time(stabmon_grad_norm[1h]) >= {updates.TREND}"
    spike = f"max {_OWN} (stabmon_grad_norm_window_max / ({usual} and {enough})) > {exp(updates.JUMP_ALONE):.3g}"
    rise = f"max {_OWN} (stabmon_norm_input_msq / stabmon_norm_input_msq offset 1h)"
    power = f"({_STEPS} / max {_OWN} (stabmon_step offset 1h)) ^ {blowup.EXPONENT:.3g}"
    change = f"max {_OWN} (stabmon_output_change_ratio_window_max) > {updates.FIRST_CHANGE}"
    return [
        Rule(
            "StabmonGradSpike",
            "warning",
            while_running(f"{spike}\nand on (job, run) {_STEPS} > {updates.EARLY_STEPS}"),
            f'{{{{ $labels.run }}}}: the gradient of a block jumped x{{{{ $value | printf "%.3g" }}}}{STEP}',
            f"Within a minute a block's gradient was over {exp(updates.JUMP_ALONE):.3g} times its median of an hour."
            f"{LOSS}\nWhat to do first: keep the last checkpoint, and look at the batches."
            f"{worst_layers('stabmon_grad_norm_window_max')}",
            page="gradient_spike",
            keep=timing.scrapes(20),
        ),
        Rule(
            "StabmonNormInputGrowth",
            "warning",
            while_running(f"{rise} > on (job, run) {power}\nand {rise} > {GROWTH}"),
            f'{{{{ $labels.run }}}}: a norm\'s input grew x{{{{ $value | printf "%.3g" }}}} in an hour{STEP}',
            f"Faster than step^{blowup.EXPONENT:.3g}, which no healthy run does.{LOSS}\nWhat to do first: cut the "
            f"learning rate to a tenth, or end the ramp that it is on.{worst_layers('stabmon_norm_input_msq')}",
            page="residual_blowup",
            hold="10m",
        ),
        Rule(
            "StabmonUpdateTooLarge",
            "warning",
            while_running(f"{change}\nand on (job, run) {_STEPS} > {updates.SETTLED_STEP}"),
            f"{{{{ $labels.run }}}}: updates of a block move the output by {{{{ $value | humanizePercentage }}}}{STEP}",
            f"Again and again, not once.{LOSS}\nWhat to do first: cut the learning rate to a third."
            f"{worst_layers('stabmon_output_change_ratio_window_max')}",
            page="update_shock",
            hold="90s",  # longer than the window of the maximum: one update alone is no alert
        ),
    ]


def _gains() -> list[Rule]:
    def rule(name: str, aggregate: str, side: str, limit: float, what: str) -> Rule:
        return Rule(
            name,
            "warning",
            while_running(f"{aggregate} {_OWN} (stabmon_norm_gain) {side} {limit:g}"),
            f'{{{{ $labels.run }}}}: a norm multiplies by {{{{ $value | printf "%.3g" }}}}{STEP}',
            f"{what}{LOSS}\nWhat to do first: look which layers they are, and how long it has been so.",
            page="residual_blowup",
            hold="5m",
        )

    low, high = GAIN
    return [
        rule("StabmonGainCollapse", "min", "<", low, "Its input is so long that nearly no gradient passes it."),
        rule("StabmonGainExplosion", "max", ">", high, "Its input is so short that gradients and noise explode in it."),
    ]


def _diverging() -> Rule:
    now = f"max {_OWN} (avg_over_time(stabmon_loss[5m]))"
    best = f"(min {_OWN} (min_over_time(avg_over_time(stabmon_loss[5m])[1h:1m])) > 0)"
    factor = exp(loss.DIVERGED_EARLY)
    return Rule(
        "StabmonLossDiverging",
        "warning",
        while_running(f"{now} > {factor:.3g} * {best}\nand on (job, run) {_STEPS} > {loss.EARLY_STEPS}"),
        f"{{{{ $labels.run }}}}: the loss is twice its best of an hour{STEP}",
        'Mean of five minutes {{ $value | printf "%.4g" }}.\nWhat to do first: go back to the last checkpoint '
        "from before the rise, at a third of the learning rate.",
        page="diverged",
        hold="5m",
    )
