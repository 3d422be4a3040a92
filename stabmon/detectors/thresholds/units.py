"""Every threshold of dead_units, and where it comes from. Shares are of a feed-forward part's hidden units."""

LOST = 0.5
"""Dead or saturated. Chosen: a layer of half the width (SageMaker Debugger's rules, too, ask for half of the units).
Live: ten steps at 30 times the learning rate killed .41 of a layer's ReLUs, .34 for good; three at 300 times .69."""
RISE = 0.25
"""Over the layer's own early share, which depends on activation and number of tokens. Chosen. Live: healthy ReLU
layers of 256 units lose .15 by step 300 at a hot learning rate (1e-2, 8 x 32 tokens a step), none at 1e-3."""
READINGS = 5
"""In a row over both; also the first ones, whose median is the early share. Chosen."""
ALIKE = 0.1
"""Context share under which readings do not count. Live: where tokens are alike a ReLU is 0 for all of them or for
none, so .3 to .65 of the units look dead; they come back with the context share, at lr 1e-3 and at 1e-2."""
