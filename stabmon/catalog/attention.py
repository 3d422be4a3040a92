"""Attention, routers of experts, and the logits of the output."""

from stabmon.catalog.statistic import Statistic

TABLE = (
    Statistic(
        "attention_logit_max",
        "sublayer",
        "1",
        "Largest number that an attention layer's softmax is given (scaled, capped, visible keys, some queries).",
        "max",
    ),
    Statistic(
        "attention_entropy",
        "sublayer",
        "1",
        "Entropy of the attention weights / ln(visible keys): mean over heads and queries; 1 = even, 0 = one key.",
    ),
    Statistic("attention_entropy_min", "sublayer", "1", "attention_entropy of the head that has the lowest."),
    Statistic(
        "router_load_max",
        "sublayer",
        "1",
        "Tokens of a router's busiest expert / those of an even load; 1 = even, the number of experts = all to one.",
    ),
    Statistic(
        "router_entropy", "sublayer", "1", "Entropy of a router's load over its experts / ln(experts); 1 = even."
    ),
    Statistic("dead_experts", "sublayer", "1", "Share of a router's experts that no token went to in the step."),
    Statistic("log_z", "model", "nats", "Mean over tokens of log Z, the log of the sum of exp(output logits)."),
    Statistic("log_z_msq", "model", "1", "Mean square of log Z over tokens: what a z-loss multiplies."),
    Statistic("logit_max", "model", "1", "Largest absolute output logit.", "max"),
    Statistic("logit_mean", "model", "1", "Mean output logit over tokens and vocabulary."),
)
