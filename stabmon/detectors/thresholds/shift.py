"""Thresholds of `loss_shift`, and where they come from."""

MEMORY = 64
"""Readings, or steps, before a rise that it is compared with: the memory of the trend (loss.CHANGE_POINTS). Chosen."""
LEAST = 12
"""Readings before which nothing is said. Chosen."""
NOW = 3
"""Readings whose median is where a baseline is now: one odd batch does not move it. Chosen."""
MOVED_SPREADS = 4.0
"""Standard deviations of one reading. Chosen: the median of three is that far off in 1 of 10^8."""
MOVED_LEAST = 0.1
"""Nats. Chosen."""

UPDATES = 16
"""Readings of the update's length that make its usual one. Chosen."""
KL = 0.2
"""Nats. Measured on 29 runs of a toy language model: healthy 3e-3 to 2e-2, first step of a learning rate x30: 1.8;
labels shuffled from a step on: 8e-3 in that step."""
TRUST = 0.3
"""The same runs: healthy .85 to .95, first step of a learning rate x30: -.38, shuffled labels: 1.07."""
LONGER = 3.0
"""Times its median. Chosen: gradients of shuffled labels make Adam's update hardly longer."""

LASTS = 8
"""Points after which a data fault is critical: two before `diverged` can tell of it. Chosen; one constant batch was
over in less than ten, but its baselines are back after one."""
LASTS_ELSE = 12
"""Points after which any other rise is a shift and no spike. Chosen."""
AT_ONCE = 1.609
"""ln 5: a rise that `exploded` calls at once (loss.EXPLODED_LEAST)."""
IGNORANT = 0.1
"""Nats below the unigram loss of before: a loss above that is one of a model that knows next to nothing."""

SAME = 0.1
"""Of the usual change of the unigram loss from batch to batch. The change of one batch seen again is about
1/(64 batches) of it."""
SAME_STEPS = 12
"""In a row: a warning. By chance .07^12 for Gaussian changes. Chosen."""
SAME_LONG = 24
"""In a row: critical. Chosen."""
