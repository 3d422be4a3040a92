"""Thresholds of `loss_shift`, and where they come from."""

MEMORY = 64
"""Readings, or steps, before a rise that it is compared with: the memory of a trend (loss.CHANGE_POINTS). Chosen."""
NOW = 3
"""Readings whose median is where a number is now: one odd batch does not move it. Chosen."""
SPREADS = 4.0
"""Standard deviations of one reading. Chosen: two of three Gaussian ones are that far up in one of 3e8 cases."""
LEAST = 0.1
"""Nats. Chosen."""

UPDATES = 16
"""Readings of the update's length that make its usual one. Chosen."""
KL = 0.2
"""Nats. Measured on 29 runs of a toy language model: healthy 3e-3 to 2e-2, first step of a learning rate x30: 1.8;
labels shuffled from a step on: 8e-3 in that step (live: 7e-3)."""
LONGER = 3.0
"""Times its median. Chosen: gradients of shuffled labels make Adam's update hardly longer."""
JUMP = 0.405
"""ln 1.5: a change of the learning rate that is known (loss.CHANGE)."""

LASTS = 8
"""Points after which a data fault is critical: two before `diverged` can tell of it. Chosen; one constant batch was
over in less than ten, but its baselines are back after one."""
LASTS_ELSE = 12
"""Points after which any other rise is a shift and no spike. Chosen."""
AT_ONCE = 5.0
"""Times the loss of before: a rise that `exploded` calls at once (loss.EXPLODED_LEAST)."""
IGNORANT = -0.1
"""Nats over the unigram loss, of now or of before: a loss above that is one of a model that knows next to nothing.
Live (labels shuffled, text): .4 over it for five steps, then .03."""
AS_FIRST = 0.1
"""Of the run's first loss: so near to it, right after a resume, is a model that starts anew. Seen: a byte model resumed
without its checkpoint went from 2.36 to 5.55, its first loss."""

SAME = 0.1
"""Of the usual change of the unigram loss from batch to batch. Counted on six streams of text and of a Markov chain:
one batch seen again after 200 others changes it by .006 to .03 of that."""
SAME_STEPS = 8
"""In a row: a warning. By chance .05^8 for Gaussian changes. Live: 319 trainings with batches that are all new had 3 in
a row at most (103,000 steps)."""
SAME_USUAL = 0.15
"""Of the 64 changes before them, so many as small: then some in a row are no news. Of Gaussian changes .054 are; where
half of the batches have targets of the commoner class alone, a quarter."""
SAME_LONG = 24
"""In a row: critical. Chosen."""
EVEN = 1e-3
"""Nats under the even guess. Live: after a change of tokenizer the unigram loss was exactly that of the even guess."""
