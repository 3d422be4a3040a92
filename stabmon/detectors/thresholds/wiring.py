"""Thresholds of `wiring`: what a model and its loop look like in the first steps when something is not connected.

n is a norm's input, mean square; at the first step weights are as initialised.
"""

LAST_STEP = 1000
"""What shows later is not looked for, and infos end: within what a resume is shown again. Chosen."""
ORIGIN_STEP = 12
"""By then a start from pretrained weights is known, where targets are. Chosen."""
UNTRAINED_SCALE = (0.95, 2.0)
"""Mean square that norms put out, as gain^2 x variance. Live: 1.00 to 1.56 over all norms of 55 runs at their start,
the more the tokens' lengths differ. A pretrained body under a new head is not known by its loss, but by its gammas."""

UNMOVED_READINGS = 10
"""In a row, from the first on, without a gradient or without a step. Chosen: zero-initialised gates get theirs at the
second."""
UNSTEPPED_GRADIENT = 1e-3
"""Of the median block's gradient. Under it (a stall: 1e-12) steps may vanish in float32's rounding. Chosen."""

KEPT_READINGS = 20
KEPT_STEPS = 40
"""The readings of the gradient's norm lie in so many steps. Chosen."""
KEPT_RISES = 0.85
"""Share of steps in which the norm rises. Live: 1.0 where gradients are kept (5 runs), at most .58 in 556 others."""
KEPT_GROWTH = 3.0
"""Norm at the last reading / at the first. Live: 4.3 to 7.4 where gradients are kept; no other run that rises in .55
of its steps is over 1.3."""
KEPT_BLOCKS = 0.9
"""Share of the parts whose own gradient has grown as well, by however little: a head initialised at 0 makes the
blocks' grow, but not its own. Live: all of them where gradients are kept (5 runs), by 1.01 to 15. Chosen."""

BRANCH = 30.0
"""Mean square that one sub-layer adds to the stream at the start, its input having 1. Live: at most 1.9 in 35 Pre-LN
runs with Xavier's or GPT-2's weights, 314 with weights four times as large; Post-LN's median input is at most 3.5
(DeepNorm) in 24 runs, 90 with such weights. He's: 4 or less (by arithmetic)."""
BRANCH_GROWTH = 3.0
"""And the stream grows by that factor: a shortcut that is itself a layer (ResNet, between stages) does not."""
SUM_FALLS = 0.7
"""x + f is not smaller than x where f does not know x. Live: at the start n falls to .91 of the norm's before at the
least in 35 Pre-LN runs (.89 without a causal mask); without a residual, at 5 of 12 norms to between .22 and .5."""
SUM_FALLS_SHARE = 1 / 3
SUM_FALLS_LEAST = 3
POST_SUM = 0.8
"""Post-LN: n at the start is that of x (1 for gamma = 1) and of f: median over the norms. Live: 1.0 to 3.5 in 24 runs,
.4 without a residual."""

BIAS_STEPS = 5
BIAS_BETA_1 = (0.8, 0.95)
BIAS_BETA_2 = (0.9, 0.9999)
"""What people use. The factor by which steps without bias correction grow from step 1 to 5 is then 1.5 to 2.2.
Live: 1.83 without the correction (1 run), .95 to 1.00 with it (22 runs)."""
BIAS_AGREE = 1.1
"""Largest / smallest such factor over the blocks: it is one number for all parameters. Live: 1.002 (1 run)."""

LEAK_SOON = 300
LEAK_SHARE_SOON = 0.5
"""Of the bigram loss, within 300 steps. Live: the lowest of 54 runs whose neighbours are worth something is at .93,
those that see their targets at .09 (text) and .58 (Markov chain: not seen in 300 steps). Chosen; public logs of small
models of characters (16,000 tokens a step), quoted from memory, are at .8 after 250 steps and at .6 after 500."""
LEAK_SHARE = 0.3
"""The same within 1,000 steps: .5 is reached by then. Chosen."""
LEAK_READINGS = 9
LEARNABLE = 0.1
"""Nats that the left neighbour is worth: else the targets are no sequence (classes), or a copying task."""
BATCHES = 256
BATCHES_KNOWN = 6
BATCH_ALIKE = 0.05
"""Of the last nine batches so many have a unigram and a bigram loss within 5 % of their usual change of what another of
the last 256 had: the same batches again. Live: six of nine are within 3 % for 1, 2 and 4 batches that repeat, within 6
to 20 % where all are new; a leak that chance takes for such batches is told a step later."""
BATCH_CHANGE = 1e-3
"""Nats: the usual change is no smaller. Of one batch from the start it is what the counts still learn. Chosen."""
