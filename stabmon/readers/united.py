"""Neighbouring readings of one step as one."""

from __future__ import annotations

from math import floor, inf, isfinite, isnan

from stabmon.readers.reading import Reading
from stabmon.readers.remarks import Remarks

_REST = ("grad_norm", "learning_rate", "skipped", "time", "epoch", "eval_loss")


class United:
    """The mean of several losses of a step, and what else each of its readings knows. Holds one back until another
    step comes.
    """

    def __init__(self, remarks: Remarks) -> None:
        self._remarks = remarks
        self._held: Reading | None = None
        self._losses = 0

    def push(self, reading: Reading | None) -> Reading | None:
        """The reading before, once this one does not belong to it; None asks for it as it is, if it may be the last."""
        held = self._held
        if held is not None and reading is None and held.bare:
            return None
        if held is not None and reading is not None and reading.step == held.step and _belongs(held, reading):
            self._losses += reading.loss == reading.loss
            if self._losses > 1:
                self._remarks.several_losses()
            _unite(held, reading, self._losses)
            return None
        self._held, self._losses = reading, int(reading is not None and reading.loss == reading.loss)
        return held


def later(epoch: float, before: float) -> bool:
    """It is a whole epoch further."""
    return isfinite(epoch) and isfinite(before) and floor(epoch) > floor(before)


def _belongs(held: Reading, reading: Reading) -> bool:
    if reading.step is None:
        return False
    both = not isnan(held.loss) and not isnan(reading.loss)
    after = not isnan(held.loss) and not isnan(reading.eval_loss)
    return not (both and later(reading.epoch, held.epoch)) and not after


def _unite(held: Reading, more: Reading, losses: int) -> None:
    if isnan(held.loss):
        if not more.bare:  # of a step that has a row with an evaluation, one with nothing else tells nothing
            held.loss = more.loss
    elif not isnan(more.loss):
        held.loss += (more.loss - held.loss) / losses if isfinite(held.loss) and isfinite(more.loss) else inf
    for name in _REST:
        if isnan(getattr(held, name)):
            setattr(held, name, getattr(more, name))
