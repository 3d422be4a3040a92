"""Every threshold of the detectors, and where it comes from: one file per subject, one docstring per number.

"Recorded" means measured on the public recorded runs of docs/recorded.md; "live" on the calibration seeds of
`stabmon bench detection`; "chosen" that a round number was taken and then held against them; else the paper is named.
"""
