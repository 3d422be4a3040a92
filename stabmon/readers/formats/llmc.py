"""llm.c: its main.log, and what it prints (train_gpt2.py and build-nanogpt print nearly the same)."""

from stabmon.readers.log import log

LLMC = log(
    "llm.c log",
    r"^s:(?P<step>\d+) trl:(?P<loss>NUMBER)(?: lr:(?P<learning_rate>NUMBER))?(?: norm:(?P<grad_norm>NUMBER))?",
    r"^s:(?P<step>\d+) tel:(?P<eval_loss>NUMBER)",
    r"\bstep +(?P<step>\d+)(?:/\d+)?(?: \([\d.]+%\))? \| (?:train )?loss:? (?P<loss>NUMBER)"
    r"(?:(?=.{0,200}?\| *norm:? (?P<grad_norm>NUMBER)))?(?:(?=.{0,200}?\| *lr:? (?P<learning_rate>NUMBER)))?",
    r"^\s*val loss (?P<eval_loss>NUMBER)$",
)
