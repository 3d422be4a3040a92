"""NeMo: `iteration` counts within the epoch, and the `val_loss` in each line is the last evaluation's."""

from stabmon.readers.log import log

NEMO = log(
    "NeMo log",
    r"\bTraining epoch \d+, iteration \d+/\d+ \|(?=.{0,400}? lr: (?P<learning_rate>NUMBER) )?"
    r".{0,400}? global_step: (?P<step>\d+) \|.{0,400}? reduced_train_loss: (?P<loss>NUMBER)"
    r"(?=.{0,400}? grad_norm: (?P<grad_norm>NUMBER))?",
)
