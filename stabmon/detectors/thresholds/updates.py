"""Every threshold of the detectors of gradients and updates, and where it comes from.

Gradient norms, update norms and KL divergences are judged as logarithms; a spread is the width of the middle half /
1.349. "Recorded" means the gradient norms of the public recorded runs of docs/recorded.md (734,000 points, mostly 100
steps apart); "measured" 29 trainings of a small decoder on random Markov data, thresholds set on the same runs.
"""

from math import log

RUN_LENGTH = 1e4
"""Promised readings between false alarms of the slow test (sequential.py). Gradients show in fewer steps than losses
do: the published leads are 1 to 8 steps."""
EARLY_STEPS = 100
"""Chosen: before it gradients fall with the first loss, by x10 and more."""
TREND = 64
"""Steps whose median is the level. Live: gradients grew x140 in 200 steps of an attention fault, which a shorter one
takes for the trend."""
BLOCK_TREND = 32
"""Readings whose median is a block's level; with the 128 that are ranked, a resume is shown them all again."""
LEAST_TREND = 12

SLOW_LAST = 4
"""Readings in a row that must be high: the fewest whose ranks can make 1e4 to 1."""
SLOW_LEAST = log(2)
"""Marin-32B: update norms of x2 came before loss spikes."""
SLOW_SPREADS = 2.0
"""Chosen, as of losses: real gradients are not exchangeable either. Recorded: with both gates no alarm of the slow
test in 734,000 points."""

JUMP = log(3)
"""Two of three points. BLOOM-176B: x3.9 four steps before the loss jumped, then x9.9, x66, x600."""
JUMP_SPREADS = 5.4
"""Eight median absolute deviations. Recorded: with x3, in two of three points, 9 warnings in 1e5 points."""
JUMP_ALONE = log(10)
"""One point. Recorded: 27 in 1e5 points, most of them one odd batch, hence no more than an info."""
POINTS = 64
"""After which a spike that lasts is the new level, and that are not judged after a known change."""
CHANGE = log(1.5)
"""Of the learning rate from one step to the next: a known change."""

GROWTH_STEPS = 4
GROWTH_EACH = 0.5
GROWTH = 1.0
"""Nats per step over four rises in a row, none under .5: an explosion that feeds itself. BLOOM-176B: 1.6 per step (1.4,
.9, 1.9, 2.2), before the loss jumped."""

PLATEAU_SHARE = 0.1
"""Context share. RMS_t of 2.3 and more came with 9 of 9 ends of plateaus, up to 95 steps before the loss fell; after
them the share is over this. Live: a stalled run that tried to escape moved its predictions by 1.1 nats in a step."""
PLATEAU_POINTS = 64
FALL_POINTS = 8
FALL_SPREADS = 1.0
"""Chosen: a loss whose last 8 have a median so far under that of the last 64 falls; 1 % of pure noise does."""

SETTLED_STEP = 30
"""Live: KL falls from up to .7 in the first steps to .01 and less by step 20, at every placement."""
SHOCK = 0.2
"""Nats. Measured: 2 of 3 faults, 1 of 24 other runs. Live: learning rates x30 and x100 (3 runs) give .52 to 3.7."""
SHOCK_RATIO = 5.0
SHOCK_RISE = 30.0
"""Times the median of the last eight readings."""
SHOCK_FLOOR = 0.1
"""Nats, of a run of small steps. Live: single updates of healthy runs give .062 after readings of .001, and .09 after
.006; no other of 50 runs without a fault of the optimizer is over half of its limit, but for one stalled run's attempt
to escape."""
SHOCK_READINGS = 8
SHOCK_UNKNOWN = 1.0
"""Nats, before there are eight readings, of a plateau or off it. Live: at the end of a plateau healthy runs reach .15,
where those on it are .003; learning rates x100 give 2.2 to 3.7."""
OVERSHOT = 0.05
"""Nats that the probe's loss rose by in one step, where the gradient promised a fall. Chosen. Alone it is a warning:
live, an update of a healthy run that learnt fast moved KL by .35 and raised the probe's loss by .19, all of which was
gone three steps later."""
EXPLODED = 1.0
"""Nats of the same rise, which are critical at once: the right answer is a third as likely as before. Chosen. Live:
learning rates x30 and x100 raise it by 1.0 to 4.5 on Markov chains, .23 to 1.6 on text."""
LEARNS = 0.15
LEARNS_LOSSES = 12
"""Share of the loss, by medians of so many losses, that it falls by in as many steps: a large update is then how it
learns. Live: the two healthy runs with the largest updates (1.2 and .8 of the limit; on digits, learnt in spurts) had
falls of 37 and 26 % then; by the noise of a batch of text it would fall so far in one of 1,000 readings."""
LOSSES_BEFORE = 8
LOSSES_SINCE = 5
"""Losses of batches before and after a smaller rise, which is critical where each of the latter is over all of the
former: by ranks alone, 1 in 1,287. Chosen."""

JUMPED = 1.5
"""Times the learning rate of the reading before, for it to be named as the cause. Chosen: as CHANGE."""

HOT = 0.03
HOT_RATIO = 3.0
"""Nats. Measured: an attention fault raises KL from .01 to .03. Live: runs without a fault pass it in no two of three
readings; their trust ratios are under .3 in up to a quarter (on a batch never trained on: half) of their readings."""
TRUST = 0.3
"""Two of three hot readings. Measured: 3 of 3 faults of the optimizer."""
EDGE = 0.05
EDGE_TRUST = 0.7
"""Measured: Post-LN at lr 3e-3, hot but training, has .05 and .73."""
EDGE_READINGS = 5
OWN_READINGS = 32
"""Of the run's own median: with probe_every at 50, what a resume is shown again holds 40."""
FIRST_STEP = 3
FIRST_CHANGE = 0.5
"""Relative change of the output by the first update. Measured: 1.25 Post-LN (stalls), .80 Pre-LN (recovers), .14
DeepNorm, .009 with a warm-up."""
