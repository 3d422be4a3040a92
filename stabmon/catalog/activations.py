"""Activations: their largest values, what each sub-layer adds to the residual stream, and dead units."""

import numpy as np

from stabmon.catalog.statistic import Array, Statistic, ratio


def lower_half(key: Array) -> Array:
    """The number in the lower 16 bits of a float32; NaN stays."""
    bits = key.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF)
    return np.where(np.isnan(key), np.float32(np.nan), bits.astype(np.float32))


def crest(largest: Array, msq: Array) -> Array:
    """Largest value over rms; NaN where all is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(msq == 0, np.float32(np.nan), largest / np.sqrt(msq))


TABLE = (
    Statistic(
        "activation_max",
        "norm",
        "1",
        "Largest absolute value at a norm's input, over all tokens that are not padding.",
        "max",
    ),
    Statistic(
        "activation_max_key",
        "norm",
        "1",
        "The largest value, rounded, and its channel in one number, so that the channel is that of the maximum.",
        "max",
        exported=False,
    ),
    Statistic(
        "range_used",
        "norm",
        "nats",
        "ln(largest absolute value / largest finite number of its dtype) at a norm's input; 0 = overflow.",
        "max",
        exported=False,
    ),
    Statistic(
        "activation_max_channel",
        "norm",
        "1",
        "Feature, counted from 0, in which a norm input's largest absolute value lies.",
        of=("activation_max_key",),
        formula=lower_half,
    ),
    Statistic(
        "activation_crest",
        "norm",
        "1",
        "Largest absolute value / rms of a norm's input.",
        of=("activation_max", "norm_input_msq"),
        formula=crest,
    ),
    Statistic(
        "precision_headroom",
        "norm",
        "nats",
        "ln(largest finite number of the dtype / largest absolute value) at a norm's input; 0 = overflow.",
        of=("range_used",),
        formula=np.negative,
    ),
    Statistic(
        "branch_msq", "sublayer", "1", "Mean square of what a sub-layer adds to the residual stream.", exported=False
    ),
    Statistic(
        "trunk_msq",
        "sublayer",
        "1",
        "Mean square of the residual stream that a sub-layer's output is added to.",
        exported=False,
    ),
    Statistic(
        "branch_cosine",
        "sublayer",
        "1",
        "Cosine between what a sub-layer adds and the residual stream it is added to, mean over tokens.",
    ),
    Statistic(
        "swamped_share",
        "sublayer",
        "1",
        "Share of coordinates in which a sub-layer adds so little that the sum rounds to the stream it is added to.",
    ),
    Statistic(
        "branch_ratio",
        "sublayer",
        "1",
        "RMS of what a sub-layer adds / RMS of the residual stream it is added to.",
        of=("branch_msq", "trunk_msq"),
        formula=ratio,
    ),
    Statistic(
        "dead_unit_share",
        "sublayer",
        "1",
        "Share of a feed-forward part's hidden units that stay under 1/100 of the mean size for every token of a step.",
    ),
    Statistic(
        "saturated_unit_share",
        "sublayer",
        "1",
        "Share of a feed-forward part's hidden units that stay over .999 of a bound of 1 for every token of a step.",
    ),
)
