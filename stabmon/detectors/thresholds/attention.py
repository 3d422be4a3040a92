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
TOGETHER_FALL = 1.75
"""Times that the geometric mean of H has fallen within the window of p, for p > 3 of the mean of ln S to be told at
once. Live: where a copying task was learnt the layers had p = 4.6 and 1.5 (3 runs); 25 other runs without a fault never
had p > 2.5 on average. Ramps of 2 and 3 % were there 30 to 80 steps after they began (15 runs).
"""
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
