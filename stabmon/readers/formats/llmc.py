"""llm.c: its main.log, and what it prints. So do, nearly, train_gpt2.py, build-nanogpt (and its log.txt), nanochat and
makemore.
"""

from stabmon.readers.log import log

LLMC = log(
    "llm.c log",
    r"^s:(?P<step>\d+) trl:(?P<loss>NUMBER)(?: lr:(?P<learning_rate>NUMBER))?(?: norm:(?P<grad_norm>NUMBER))?",
    r"^s:(?P<step>\d+) tel:(?P<eval_loss>NUMBER)",
    r"\bstep +(?P<step>\d+)(?:/\d+)?(?: \([\d.]+%\))? \| (?:train )?loss:? (?P<loss>NUMBER)"
    r"(?:(?=.{0,200}?\| *(?:grad )?norm:? (?P<grad_norm>NUMBER)))?(?:(?=.{0,200}?\| *lr:? (?P<learning_rate>NUMBER)))?",
    r"^(?P<step>\d+) train (?P<loss>NUMBER)$",
    r"^(?P<step>\d+) val (?P<eval_loss>NUMBER)$",
    r"\bstep (?P<step>\d+) train loss: NUMBER test loss: (?P<eval_loss>NUMBER)",
    r"^\s*val loss (?P<eval_loss>NUMBER)$",
)
