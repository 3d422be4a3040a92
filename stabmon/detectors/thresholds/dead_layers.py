"""Every threshold of the detector of layers that hardly learn, and where it comes from."""

RATIO = 1e-2
"""A block's gradient over the last block's. First study, 29 runs of 8 layers: under it at step 10 to 25 in all four
stalls, never in the 22 other runs that could learn (least: 1.1e-2, so it takes HOLD_STEPS as well)."""
FELL = 0.1
"""Where no norm of the block is placed after the sum, the ratio has also fallen under this part of what it was in the
run's first steps. Chosen: Pre-LN's lower layers have the larger gradients (live: ratio .8 to 50)."""
START_STEPS = 50
START_READINGS = 5
"""Steps, and readings, that a block's own start is the median of; nothing is judged before. Chosen: a run's dense
beginning."""
HOLD_STEPS = 50
HOLD_READINGS = 5
"""Without a break for so many steps and readings. Chosen: a batch's noise makes single ratios of .02 where the next is
.5 (live: Post-LN just off a plateau)."""

EPSILON = 0.5
"""Share of a block's coordinates with sqrt(v_hat) under 10 epsilon. Chosen: most of what it should learn. Live: at most
.04 in healthy and stalled networks of 6 layers, whose v still remembers the first gradients; embeddings, which are not
judged, .6 to .75 for their rare tokens."""
CONVERGED = 0.02
"""Loss over the first loss. Chosen: of a run that has learnt all there is, gradients vanish everywhere."""
