"""Every threshold of the detectors that judge whether a network still tells its inputs apart.

s is the context share; slopes are of ln s, per step. "Live": the calibration runs, and trainings of 8 layers, d = 128,
on bytes of source code (unigram loss 3.1, bigram loss 2.4) and on Markov data.
"""

COLLAPSED = 1e-4
"""s under it is a collapse. Live: stalled runs are there by step 10 to 20; healthy ones keep above 1e-3, but for hot
learning rates (Pre-LN at 1e-2: 6e-5 for 15 steps)."""
RECOVERED = 1e-3
"""s over it is no collapse any more. Ten times the former, so that noise does not open and close an alert."""
OVER_STEPS = 10
"""For so long, before what was found is forgotten. Live: attempts of stalled runs to escape touch 1e-3 for a few steps
and fall back to 1e-9."""
FIRST_STEP = 10
"""Live: before it healthy runs fall as fast as stalled ones."""

SUNK = 2e-6
SOON_STEPS = 60
"""Under it so soon after the collapse, a warning. Live (2 to 12 layers, width 48 to 128): 96 stalled
language models were under it by step 5 to 28, and 5 of 27 others that had collapsed, one of which stalled later. Of 12
layers at a low learning rate six were under it only 42 to 154 steps after, and all six resolved: what sinks slowly
turns."""
PROBE_SUNK = 1e-6
PROBE_SOON = 40
"""Or the probe's s, which batches do not hold up, so soon. Live, on text at lr 1.5e-3, where some stall and some learn
(100 seeds, 500 to 599): with this line 24 of 26 stalls are warned of in time, and 11 of 34 that learn too;
with 4e-7 it was 20 and 7. Of plateaus that ended at lower learning rates the lowest was at 7e-6."""
PLATEAU_STEPS = 60
PATIENT_STEPS = 800
"""A collapse that is not so deep, or not so soon, is told of after so many steps without rising, and warned of after so
many. Live: the longest plateau that ended by itself rose for good after 490 and left the unigram loss after 600."""

LOST = 1e-7
LOST_STEPS = 30
"""Under it and not rising for so long, of those that sank soon nothing turned up for good. Live: the lowest of such
plateaus that resolved were at 2.3e-7 and 3.4e-7. Of the stalls one, at lr 8.5e-4 where 7e-4 resolves, was at 8e-8 by
step 40, and still stalled at step 300 after a failed attempt; another came back from 1e-8 at step 350, learnt a quarter
of a nat and was at 4e-12 by step 800; the others were under 7e-8."""
SLOW_LOST = 1e-8
"""The same of one that sank slowly. Live: 12 layers came back from 4.7e-8, where they had been under 1e-7 for some 30
steps. Chosen: a fifth of it."""
DEEP = 1e-8
DEEP_STEPS = 10
"""The probe's s, which batches do not move, of one that sank soon. Live: of 15 plateaus that ended the lowest was at
7.9e-7, and at 1.7e-7 of 12 layers that sank slowly; a stall whose training share was under LOST for 25 steps only had
it at 1.5e-9."""
LOW = 1e-6
FALLING = -0.0075
LOW_STEPS = 55
"""Or, of one that sank soon, under this and falling by so much for so long. Live: on Markov data a stall may stay over
1e-7 for 150 steps, but falls by .008 to .02 a step; a run at lr 7e-4 that turned had fallen by .01 under 1e-6 for 45
steps, one at 2e-3 by .0075 for 34."""
SWAMPED = 11.0
SWAMPED_GROWN = 4.0
SWAMPED_STEPS = 20
"""n, the mean square of the last norm's input in Post-LN, and times its first (which DeepNorm scales up, to sqrt(2
layers)), for so long: less than 1/11 of what the norm reads is left of the stream, whatever the share does."""
SWAMPED_AFTER = 80
SWAMPED_BY = 90
REGROWS = 0.05
"""Up to so many steps after the collapse that is a warning; after so many it is critical, but not while ln s rises by
more than this a step. n grows as long as a plateau lasts, the sooner the larger the updates. Live: of the 14 of 354
stalls that nothing else tells of within 80 steps of their onset 11 are critical by it, and of 252 other runs one, which
s tells of too. Of 21 seeds at one learning rate 20 stalled; the other had n over 11 for 20 steps by step 54 as well and
learnt from step 132 on, and its s rose by .064 a step by then."""
FILLING = 8.0
FILLING_STEPS = 10
FILLING_SOON = 45
"""Less of it and sooner, a warning too. Live: of 32 plateaus of the benchmark's own scenarios that ended the first was
there after 56 steps; at learning rates where half of the seeds stall two of ten that learnt were there after 42 and
45."""
FULL = 14.0
FULL_STEPS = 10
BEGUN = 0.12
"""n at any time since, of a run that is at the unigram loss though its share has come back: a warning. SWAMPED is
enough where it had been so many nats under it, and is back. Live: of 57 collapses that ended more than .2 nats under
the unigram loss none was there; of 253 stalls 35 were, two of which nothing else told of in time."""
DOUBTED_STEPS = 25
"""Where a reading speaks against a collapse, a warning waits so long. Live: Pre-LN at lr 1e-2 dips for 15 steps."""

FLAT = 0.002
FLAT_STEPS = 20
"""|slope| under it for so long: frozen. Decision table of the first study: resolving plateaus passed through it in
fewer steps."""

FORECAST = 1e-7
"""Below this a rise may be float32 noise, or an attempt that fails. Live: 1e-8 -> 3e-8 -> 1e-13."""
RISING = 0.005
RISING_STEPS = 20
"""A slope over it for so long means that it resolves."""
RESOLVED = 0.1
"""s at which a forecast calls the plateau over. Live: the loss moves between .05 and .2."""

FELL_STEPS = 30
"""A run that had learnt, and whose s has been under RECOVERED for so long with a loss no better than the unigram loss,
has lost it: chosen, longer than the spikes that heal by themselves."""

KNEW = 0.2
KEPT = 0.1
"""Nats under the unigram loss: a run that had been so far under it had learnt, and one that is so far at most uses it
no more. Chosen, on both sides of the line that parts a stall from a run that learns. Live: of 147 plateaus that ended
more than .2 under it none was there for RELAPSE_STEPS."""
LEFT = 0.15
"""Nats under the unigram loss: the line itself, which a run that leaves its plateau passes."""
RELAPSE_STEPS = 20
RELAPSE_LONG = 60
"""A run that had learnt is there for so long: warned of, and critical. Live: a learning rate that jumps to its
hundredfold leaves Pre-LN at the unigram loss with s at .005 to .2 (2 of 2). Chosen."""
IDLE_STEPS = 150
IDLE_LONG = 300
"""Steps after s came back over RECOVERED in which the loss has not followed. Live: of 11 plateaus that ended the loss
followed 25 to 117 steps after; of 4 stalls at hot learning rates s came back at step 37 to 235 and was .005 to .2 to
the end, at the unigram loss."""
STARVED = 0.02
STARVED_READINGS = 2
"""The lowest block's gradient over the highest's, so low in so many readings in a row: nothing below can learn. Live:
of 40 plateaus that ended, and had a share over RECOVERED again, the lowest ratio was .09, but for one reading; at hot
learning rates it was .001 and less."""
STARVED_STEPS = 10
STARVED_LONG = 20
"""Steps of that with no better loss: warned of, and critical. Live: 10 steps came in 9 of 25 stalls whose share had
come back, and in none of the plateaus that ended."""

CUT = 2.0
"""The learning rate is cut where it falls by this factor or more from one step to the next: a hand, or a schedule's
step. A smooth decay does so in its last two steps at most."""
CUT_STEPS = 60
"""Times the factor of the cut: steps in which a cut may still show that it helps. Live: after a cut by 10 at step 30
s turned up 420 to 520 steps later."""

FLOORED = 0.03
"""Noise of dropout, or of rounding in bfloat16 (which ends at 4e-7 to 3e-6), holds the training forward's s up; the
probe's, in eval mode and float32, is then under this share of it. Live: without noise the two differ too (last norm
against logits), by up to x8."""

LEARNABLE = 0.1
"""Nats of the bigram gap. Live: 0.000 +- .005 on independent tokens, .4 and more on text after 3,000 of them."""
LEARNING = 0.25
"""Nats under the unigram loss. Live: a stalled run stays within .05 of it."""
ALIKE = 0.95
FADED = 0.05
"""Token similarity at the middle norm, and the lowest block's gradient over the highest's. Live: of 24 stalled or
broken runs 21 had both at step 20, of 85 others 3."""

WINDOW_STEPS = 40
WINDOW_READINGS = 6
"""Readings that a slope is of: those of so many steps, or so many readings where fewer lie in them."""
SMOOTHED = 9
"""Readings whose median counts, of the loss above a baseline: a batch is noisy."""
