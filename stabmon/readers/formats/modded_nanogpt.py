"""modded-nanogpt: pages of source first, then a line a step. Older records write `s:1 trl:10.9`, as llm.c does."""

from stabmon.readers.log import log

MODDED_NANOGPT = log(
    "modded-nanogpt log",
    r"\bstep:(?P<step>\d+)/\d+ train_loss:(?P<loss>NUMBER)",
    r"\bstep:(?P<step>\d+)/\d+ val_loss:(?P<eval_loss>NUMBER)",
)
