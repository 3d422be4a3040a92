"""Every threshold of precision, and where it comes from."""

FLOAT16 = 11.09
"""ln 65,504: which dtype a headroom is of, is seen from headroom + ln(largest value)."""
HEADROOM = 1.386
"""ln 4, nats: the largest value is within x4 of 65,504. Of the format: two doublings."""
HEADROOM_READINGS = 3
"""In a row. Chosen: one batch's outlier is no trend."""
OVERFLOW_STEPS = 50
"""Steps until overflow, by the later bound, for critical. Chosen: enough for a person to write a checkpoint."""

SWAMPED = 0.2
"""Share of coordinates, mean over sub-layers, in which the branch is rounded away. Of the format: in bfloat16 a branch
of 5 % of the stream has .025, one of .6 % has .2."""
SWAMPED_READINGS = 10
SWAMPED_STEP = 200
"""Chosen: branches that start near 0 (zero-initialised outputs, layer scale) grow first."""

LOST = 0.9
"""Lost / intended update (norms, all blocks together). Of the format: bfloat16 weights of rms .02 with Adam lose .08 at
lr 1e-3, .62 at 1e-4, .88 at 3e-5, .96 at 1e-5."""
SHRUNK = 0.8
"""What the weights moved by / intended update. Round-to-nearest: .66 and less where .9 is lost; stochastic rounding,
which loses nothing on average, moves them by 1.4 times the update and more."""
LOST_READINGS = 10
"""In a row. Chosen."""
