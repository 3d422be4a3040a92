"""LitGPT: its losses are of micro-batches, which `iter` counts. The `val` in each line is the last evaluation's."""

from stabmon.readers.log import log

LITGPT = log(
    "LitGPT log",
    r"\biter (?P<step>\d+)(?: \|)? st[eE]p \d+(?::| \|) loss(?: train)?(?: \([^)\n]{1,40}\))?:? (?P<loss>NUMBER)",
    r"\biter (?P<step>\d+): val loss (?P<eval_loss>NUMBER)",
)
