"""Every threshold of logit_drift, and where it comes from. L is the root of the mean square of log Z."""

LEVEL = 32.0
"""nats. Of the format: from 32 on bfloat16 logits are .25 nats apart, which is more than what a run still has to learn
late. PaLM's z-loss (1e-4 log^2 Z) keeps L near 0; without one it was seen at 10 to 20 in good runs."""
GROWTH = 1.5
"""L over its value at half the steps. Chosen: L ~ t^.58; a logarithm's growth is far below it from 1,000 steps on."""
STEADY = 0.6
"""Kendall's tau of the readings with the step: 80 % of all pairs rise. Chosen."""
WINDOW = 2.0
SPACING = 1.03
"""The readings since half the run, 3 % apart. Chosen."""
LONG_STEPS = 1000
"""After a resume, of which less than half the run is remembered, the readings of that many steps. Chosen."""
FIRST_STEP = 500
"""Chosen: log Z leaves ln V in the first hundreds of steps of every run."""
TOGETHER = 0.5
"""Of log Z's change that the mean logit shares: then all logits move together, which the softmax does not see."""
