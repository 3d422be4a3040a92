"""Every threshold of residual_blowup, and where it comes from. n is the mean square of a norm's input."""

EXPONENT = 3.0
"""p = d ln n / d ln t. Live, the largest input of 23 healthy, plateaued and floor runs from step 60 on: 2.4 at most,
but for 4.2 at step 60 (GPT-2's small start) and 3.6 for a moment (step 210, lr 3e-3); in six runs on ramps it passed 3
some 130 to 210 steps before the loss broke."""
WINDOW = 1.4
"""p is the slope over the readings since t / 1.4. Chosen."""
SPACING = 1.03
"""Of two readings nearer than 3 % of t the later one counts: twelve make the fit. Chosen for its cost."""
RATE = 0.01
"""Growth of ln n a step, over the last 40 steps, that is too fast whatever t is: late in a run p follows slowly. Early
p > 3 asks for more (3 / t). Live: .011 at most from step 300 on in 23 runs without a fault, .02 to .07 on ramps."""
RATE_STEPS = 40.0
RATE_SPACING = 5.0
"""Steps. Chosen."""
HOLD_STEPS = 30
"""For how long. Live: of 23 runs without a fault three were over the line, for 10 to 20 steps."""
FIRST_STEP = 50
"""Live: Pre-LN's first updates make n x5 within ten steps (x25 in 50 on real text) and settle by step 30 to 100."""
GROWN = 10.0
"""Times its first value. Live: the end of a plateau moves norm inputs by x3 within a window, between 2 and 6."""
DOUBLED = 2.0
"""And times its lowest value of the last 30 % of the run. Chosen: less is nothing to act on."""
LATELY = 0.25
"""Of that rise at least so much lies in the later half of the window: a step that is over is no growth. Live: after a
learning rate x30 for ten steps n has jumped x8 to x40 and stands."""
GROWN_IN_SIGHT = 4.0
"""Instead of both where the first value is not known: times that lowest value. Chosen: over a plateau end's x3."""
REMEMBERED = 2000
"""Steps that a resume shows again: later the first value does not count, lest an alert depend on a stop."""

TRUST = 0.3
TRUST_READINGS = 3
"""In a row. Live: on the fixed probe one trust ratio is noise (-5 to 7 in healthy runs): of ten readings one is low, of
twenty pairs one; of three in a row, one in 33 in the worst of eight runs, none in the others."""
SHOCK = 0.2
"""nats per token by which one update changes the output. Live: .05 at hot learning rates, .2 and more before a loss
breaks."""

RISEN = 100.0
"""Times n when it began to grow too fast, for critical. Live: six runs on ramps were there 14 to 89 steps before their
losses broke; in runs that did well n never grew so after step 50."""

JUMP = 1.5
"""A learning rate that is this many times the last one is a known change: growth is measured in steps of the new one.
Chosen: ramps rise by 2 % a step."""

COLLAPSED = 1e-3
"""Context share. Live: 5e-5 after a divergence, .3 and more in healthy runs."""
PLATEAU = 0.1
SWELLS = 10.0
"""Where the growth began under that context share, as after a fault of the data, n has to grow so many times. Live:
there it swells to x2.2 at most and settles (12 runs), and grows past x18 where gradients are kept (3 runs); on ramps
growth begins at .18 and more (30 runs)."""
ALIVE = 1e-2
"""Context share that it had when the growth began, for a collapse to be the growth's doing."""

CREST = 30.0
"""Largest value / rms of a norm's input, where only the rms is read. Chosen."""

DEPTHS = 6
"""Norms along the stream from which their law in depth is told. Chosen."""
