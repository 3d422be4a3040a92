"""Every threshold of nonfinite, and where it comes from."""

SKIPS = 20
"""Skipped steps in a row. A loss scaler finds its scale within about 16 halvings (2^16 -> 1); more is no search."""

ZEROS = 2
"""Losses of exactly 0 in a row. Chosen: trainers that leave a NaN out of the logged loss log 0."""
ZEROS_AFTER = 0.01
ZEROS_AFTER_SHARE = 1e-3
"""Each of the last three other losses is over this, and over that share of the first one. Chosen: a loss that is learnt
to 0 passes small values first."""
