"""Thresholds of `rank_trouble`: what several processes must have in common."""

EQUAL = 1e-6
"""Relative, of sums of squares. Copies that train together are equal bit for bit; live: 0 under DDP (gloo, 2 and 4
ranks). Chosen: 16 last bits of float32, for GPUs of several kinds that add up in another order."""
READINGS = 2
"""In a row, before copies are said to differ or a rank to be lost. Chosen; a reading is every tenth step."""
LOSS_READINGS = 30
"""In a row in which one rank has the highest loss: by chance in 1 of 2^29, with two ranks."""
LOSS_APART = 0.1
"""Of the loss, in all of those. Chosen: data of another kind; shuffled batches of one kind take turns."""
LOSS_FAR = 0.5
"""The same, for a warning. Chosen."""
