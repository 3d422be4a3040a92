"""Norm layers: what comes in, what they multiply by, how alike the tokens are."""

from stabmon.catalog.statistic import Statistic

TABLE = (
    Statistic("final_norm_input_msq", "model", "1", "Mean square of the last norm's input, over tokens and features."),
    Statistic(
        "context_share",
        "model",
        "1",
        "Share of the last norm's output variance that depends on the position (training forward).",
    ),
    Statistic(
        "norm_input_msq", "norm", "1", "Mean square of a norm layer's input, over tokens and features (||x||^2/d)."
    ),
    Statistic(
        "norm_input_var",
        "norm",
        "1",
        "Mean square of what the norm divides by: centred for LayerNorm, raw for RMSNorm.",
    ),
    Statistic(
        "norm_gain", "norm", "1", "Factor a norm multiplies by, forward and backward: mean of rms(gamma)/sqrt(var+eps)."
    ),
    Statistic(
        "token_similarity", "norm", "1", "Mean pairwise cosine between tokens at a norm's input; 1 = all tokens alike."
    ),
)
