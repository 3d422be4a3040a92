"""`stabmon bench recorded`: the detectors of the loss, graded on runs that others recorded. Needs no torch."""
