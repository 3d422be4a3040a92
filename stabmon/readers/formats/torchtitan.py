"""torchtitan: a line a step, in colours."""

from stabmon.readers.log import log

TORCHTITAN = log(
    "torchtitan log",
    r"\bvalidate step: *(?P<step>\d+) +loss: *(?P<eval_loss>NUMBER)",
    r"\bstep: *(?P<step>\d+) +loss: *(?P<loss>NUMBER)(?: +grad_norm: *(?P<grad_norm>NUMBER))?",
)
