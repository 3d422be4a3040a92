"""What the optimizer's state says of each block."""

from stabmon.catalog.statistic import Statistic, root

TABLE = (
    Statistic(
        "rms_t_msq",
        "block",
        "1",
        "Mean of g^2 / max(v_hat, eps^2) over a block's coordinates, v_hat of the same step.",
        exported=False,
    ),
    Statistic(
        "adam_update_msq",
        "block",
        "1",
        "Mean square of what the learning rate multiplies, m_hat / (sqrt(v_hat) + eps).",
        exported=False,
    ),
    Statistic(
        "epsilon_share",
        "block",
        "1",
        "Share of a block's coordinates with sqrt(v_hat) below 10 epsilon, whose updates epsilon shrinks.",
    ),
    Statistic(
        "rms_t",
        "block",
        "1",
        "RMS of gradient / sqrt(second moment) of a block: above 2.3 the second moment lags behind.",
        of=("rms_t_msq",),
        formula=root,
    ),
    Statistic(
        "adam_update_rms",
        "block",
        "1",
        "RMS of what the learning rate multiplies, m_hat / (sqrt(v_hat) + eps), in a block.",
        of=("adam_update_msq",),
        formula=root,
    ),
)
