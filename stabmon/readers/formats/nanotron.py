"""nanotron: a line an iteration."""

from stabmon.readers.log import log

NANOTRON = log(
    "nanotron log",
    r"\biteration: (?P<step>\d+) / \d+ \|.{0,300}?\blm_loss: (?P<loss>NUMBER)(?: \| lr: (?P<learning_rate>NUMBER))?"
    r"(?:.{0,200}?\bgrad_norm: (?P<grad_norm>NUMBER))?",
)
