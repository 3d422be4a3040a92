"""How far an update moves the output, on the fixed probe."""

from stabmon.catalog.statistic import Statistic, quotient, ratio

TABLE = (
    Statistic(
        "probe_context_share",
        "model",
        "1",
        "Share of the output variance that depends on the position, on the probe, eval mode.",
    ),
    Statistic("probe_loss", "model", "nats", "Loss on the probe before the update, eval mode."),
    Statistic(
        "output_msq",
        "model",
        "1",
        "Mean square of the output on the probe, centred where it predicts classes.",
        exported=False,
    ),
    Statistic(
        "output_change_msq",
        "model",
        "1",
        "Mean square of the output's change by one update, on the probe.",
        exported=False,
    ),
    Statistic(
        "output_change_context_msq",
        "model",
        "1",
        "The part of output_change_msq that differs between positions.",
        exported=False,
    ),
    Statistic(
        "total_output_change_ratio",
        "model",
        "1",
        "RMS change of the output by one update / RMS of the output.",
        of=("output_change_msq", "output_msq"),
        formula=ratio,
    ),
    Statistic(
        "output_change_context_ratio",
        "model",
        "1",
        "Position-dependent part of the output change / the whole change (RMS).",
        of=("output_change_context_msq", "output_change_msq"),
        formula=ratio,
    ),
    Statistic(
        "output_change_kl",
        "model",
        "nats",
        "KL divergence per token between the predictions before and after one update.",
    ),
    Statistic(
        "output_change_error",
        "model",
        "1",
        "Relative standard error of total_output_change_ratio: 0 = exact difference, else estimated (KL: twice it).",
    ),
    Statistic(
        "block_output_change_error",
        "model",
        "1",
        "Relative standard error of the blocks' output_change_ratio: 0 = exact difference, else estimated.",
    ),
    Statistic("actual_loss_change", "model", "nats", "Change of the probe's loss by one update.", exported=False),
    Statistic(
        "predicted_loss_change", "model", "nats", "Gradient of the probe's loss times the update.", exported=False
    ),
    Statistic(
        "trust_ratio",
        "model",
        "1",
        "Actual / predicted change of the probe's loss; 1 = the step did what the gradient promised.",
        of=("actual_loss_change", "predicted_loss_change"),
        formula=quotient,
    ),
    Statistic(
        "block_output_change_msq",
        "block",
        "1",
        "Mean square output change on the probe when this block alone takes its update.",
        exported=False,
    ),
    Statistic(
        "block_output_msq",
        "block",
        "1",
        "Mean square of the centred output on the probe, repeated per block.",
        exported=False,
    ),
    Statistic(
        "output_change_ratio",
        "block",
        "1",
        "RMS output change when this block alone takes its update / RMS of the output.",
        of=("block_output_change_msq", "block_output_msq"),
        formula=ratio,
    ),
)
