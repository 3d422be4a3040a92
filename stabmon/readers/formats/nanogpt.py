"""nanoGPT and llama2.c: what train.py prints."""

from stabmon.readers.log import log

NANOGPT = log(
    "nanoGPT log",
    r"\biter (?P<step>\d+): loss (?P<loss>NUMBER),(?: ppl NUMBER,)? time",
    r"^(?P<step>\d+) \| loss (?P<loss>NUMBER) \| lr (?P<learning_rate>NUMBER) \|",
    r"\bstep (?P<step>\d+): train loss NUMBER, val loss (?P<eval_loss>NUMBER)",
    alone=r"\bstep (?P<step>\d+): train loss (?P<loss>NUMBER), val loss (?P<eval_loss>NUMBER)",
)
