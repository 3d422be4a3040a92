"""Every threshold of attention_blowup, and where it comes from. S is the largest number that a softmax is given, H the
entropy of the weights / ln(visible keys), mean over a layer's heads and queries.
"""

LARGE = 50.0
"""S. Live: runs at 1e-3 to 3e-3 stay under it, hot ones (1e-2) go to 75, but grow slowly. A x1.03 ramp was past it a
hundred steps and more before its loss was up by .3."""
SHARP = 0.1
"""H. Live: passed at the same time as S > 50 by a ramp; a hot healthy run's first layer sits at .05 for good."""
EXPONENT = 3.0
"""p = d ln S / d ln t. Queries and keys are a product of weights each, and weights that drift steadily in one direction
give S ~ t^2 at most. Live: hot healthy runs have 2 at most from step 50 on, and .5 once S is near 50."""
FIRST_STEP = 50
"""Live: before it the first updates move S by x3 either way."""
GROWN = 2.0
"""Times the lowest S of the window. Chosen: less is noise of a largest value (standard deviation 12 % live)."""
HOLD_STEPS = 30
HOLD_SHARE = 0.2
"""For how long p > 3, in steps or as a share of the run, whichever is shorter. Chosen."""
TOGETHER_LAYERS = 3
"""Layers, at least, for their average to say more than one of them. Chosen."""
TOGETHER_STEPS = 40.0
TOGETHER_SPACING = 10.0
"""Steps that the layers' average is judged over, and between its readings. Chosen."""
TOGETHER_EXPONENT = 2.0
TOGETHER_FALL = 1.0
"""p of the mean of ln S, which drifting weights keep under 2, and q of H ~ t^-q. Live, from step 50 on: of 57 runs
without a fault that are not on a copying task none had q > .95 with p > 1.4, or q > .73 with p > 1.7. Ramps of 3 % were
over both 30 to 40 steps after they began, of 2 % 50 to 60 (30 runs).
"""
TOGETHER_GROWN = 1.5
TOGETHER_FALLEN = 1.35
"""Times that S has grown and H has fallen by those slopes: late in a run noise alone makes any power. Chosen. Live:
runs without a fault passed 1.35 at p = 1 at most."""
LEARNS = 0.09
"""ln(median of the last 12 losses / best such median of before) under minus this: the layers sharpen because they
learn. Live: five runs learnt to copy with p = 2.5 to 4.4 and q = 1 to 1.6, at -.12 to -.34; of ramps the lowest was
-.07."""
FALLEN = 1.5
"""Times lower than H was when the growth began, to agree with it. Chosen."""
SUFFERS = 0.07
SUFFERS_NOISE = 2.0
"""ln(median of the last 12 losses / best such median), and the same in standard deviations of a loss, from which sharp
attention is critical. Live: a copying task was done as well with each query at one key (loss 3 % up at S = 20,000);
on Markov data the loss was up by 7 % at S = 700, 30 steps or more before it was up by .3 nats.
"""
HUGE = 1e3
"""S that is told of whatever its growth, if it is twice its first value: neighbouring numbers of bfloat16 are then 4
nats or more apart. Training failed once S was over 1e4 (Wortsman 2023)."""
CLIP = 100.0
"""S at which QK-Clip steps in (Kimi K2)."""
FORECAST_STEPS = 60.0
FORECAST_SPACING = 5.0
"""Readings that a forecast is made from. Chosen."""
