"""nanoGPT: what train.py prints."""

from stabmon.readers.log import log

NANOGPT = log(
    "nanoGPT log",
    r"\biter (?P<step>\d+): loss (?P<loss>NUMBER), time",
    r"\bstep (?P<step>\d+): train loss NUMBER, val loss (?P<eval_loss>NUMBER)",
)
