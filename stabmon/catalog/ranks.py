"""Several processes: what is to be equal on all of them, and how many are heard. Absent where there is one."""

from stabmon.catalog.statistic import Statistic

TABLE = (
    Statistic("ranks_read", "model", "1", "Ranks of which everything was read in the step."),
    Statistic(
        "ranks_lost", "model", "1", "Ranks of which something was not read, since a part of stabmon failed there."
    ),
    Statistic(
        "rank_loss_spread", "model", "1", "(Highest - lowest loss of a rank) / the larger size of the two, in the step."
    ),
    Statistic("rank_loss_highest", "model", "1", "Number of the rank that has the highest loss.", exported=False),
    Statistic(
        "rank_weight_spread",
        "block",
        "1",
        "(Largest - smallest) / largest over the ranks, of a block's sum of squared weights: 0 where copies are equal.",
    ),
    Statistic(
        "rank_grad_spread",
        "block",
        "1",
        "(Largest - smallest) / largest over the ranks, of a block's sum of squared gradients: 0 when averaged.",
    ),
)
