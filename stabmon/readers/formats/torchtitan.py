"""torchtitan: a line a step, in colours."""

from stabmon.readers.log import log

TORCHTITAN = log(
    "torchtitan log",
    r"\bvalidate step:\s*(?P<step>\d+)\s+loss:\s*(?P<eval_loss>NUMBER)",
    r"\bstep:\s*(?P<step>\d+)\s+loss:\s*(?P<loss>NUMBER)(?:\s+grad_norm:\s*(?P<grad_norm>NUMBER))?",
)
