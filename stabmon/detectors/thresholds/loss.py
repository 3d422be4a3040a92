"""Every threshold of the detectors that judge the loss alone, and where it comes from.

z = ln loss: a rise of .1 is 10 % of the loss. A point is one logged value. "Recorded" means measured on the public
recorded runs of docs/recorded.md (917,000 points); "chosen" that round numbers were taken and then held against them.
"""

EARLY_STEPS = 200
"""Recorded: before it, warm-up and batch norm's first statistics raise healthy losses by up to .45."""

DIVERGED_SHARE = 0.4
"""Of the progress ln(first loss / best level). Chosen; .4 of it is what a person calls lost."""
DIVERGED_LEAST = 0.05
"""Chosen, for losses with little progress."""
DIVERGED_PROGRESS = 0.1
"""Under it nothing was learnt that could be lost, so no critical. Live: a GAN's generator loss falls by 1.6 %, and
rises to x1.9. Chosen."""
DIVERGED_NOISE = 4.0
"""Standard deviations of a point, now or when the best level was reached, whichever is less: swings that came with its
loss must not hide it. The quartile of 12 points of pure noise is never there."""
DIVERGED_EARLY = 0.69
"""ln 2, before step 200. Recorded: batch-norm starts rise by up to .45, runs that diverge there by 1.2 and more."""

EXPLODED_SHARE = 2.0
"""Of the progress. Chosen."""
EXPLODED_LEAST = 1.609
"""ln 5. Chosen."""
EXPLODED_NOISE = 20.0
"""Standard deviations of a point. Chosen."""
EXPLODED_START = 2.303
"""ln 10, above the first loss (and the median of the first 12 points, if that is more: one may be low by chance). Of a
run that swings by whole factors the noise tells nothing. From the first study of these logs."""
EXPLODED_EARLY = 3.4
"""ln 30, before step 200. Recorded: starts that recover rise by up to x11, those that end a run by x90 and more."""

RUN_LENGTH = 1e5
"""Promised points between false alarms of the slow test (sequential.py), for noise of any law."""
SPIKE_LAST = 4
"""Points in a row that have the size: the fewest whose ranks can make 1e5 to 1. Recorded: with their mean, or three of
them, a few of mixup's hard batches were enough."""
SPIKE_SPREADS = 2.0
"""Standard deviations (three MAD). Recorded: real losses are not exchangeable even after whitening; without the size
gates there are 85 alarms in 1e5 points."""
SPIKE_LEAST = 0.03
"""Chosen: 3 % of the loss is nothing to act on."""
SPIKE_QUANTILE = 0.98
"""Of the last 256 rises: as high as the highest five of them."""
SPIKE_POINTS = 64
"""After which a spike that lasts is the new level: as long as the trend's memory."""

JUMP_NOISE = 8.0
"""Standard deviations. Robust z at 8 has 26 false alarms in 1e4 points of t3 noise alone, hence the other two gates."""
JUMP_LEAST = 0.10
"""Chosen: 10 % of the loss."""
JUMP_TAILS = 2.0
"""Times the 98 % quantile of the last 256 rises of single points over the twelve before them. Chosen."""

CHANGE = 0.405
"""ln 1.5: a change of the learning rate from one point to the next that is a known change. A smooth schedule has none
after its first few points."""
CHANGE_POINTS = 64
"""Points after a known change that are learnt from and not judged: the trend's memory."""

FLAT_POINTS = 20
FLAT_STEPS = 1000
"""Chosen: the earliest that a person would give up."""
FLAT_FIRST = (6.0, 20.0)
"""Nats. Recorded: below are losses with a base rate far under their start, above are CTC losses in their first fall."""
FLAT_LEVEL = 0.55
"""Of the first loss. Recorded: stuck language and image models sit at .6 to 1.05 of it."""
FLAT_GUESS = 13.0
"""Nats: ln of 442,000. The largest vocabularies in use have 262,000 entries (12.5), so a run that begins above it has
been thrown there, and learns once the learning rate is cut. Recorded, in sample: two runs that sit at 18.7 nats and
fall to 8.8 within a point of the cut; stuck ones begin at 6.9 to 11.5."""
FLAT_EXPONENT = 0.02
"""beta = -d ln L / d ln t, two standard errors under this. Scaling laws have .05 and more."""
FLAT_SLOWEST = 0.002
"""beta less two standard errors is under this, or the loss falls for sure, if slowly: an info. Recorded: runs that
never learned have 0 or less when they are first called."""
FLAT_RISE = 0.1
"""A loss that rises faster than step^.1 is not flat; `diverged` watches it."""
FLAT_AGAIN = 1.1
"""Looks again when the run is 10 % longer; two looks in a row must agree."""
SITS_POINTS = 100
"""Points, and FLAT_STEPS, before any flat loss gets an info. Chosen."""
DROP_EXPONENT = 0.05
"""Two standard errors over this, it falls again."""
