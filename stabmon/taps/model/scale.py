"""Whether the loss that a run tells is what the network scores on its targets, or a multiple of it, which baselines are
no measure of."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from statistics import median

from stabmon.taps.notices import NO_BASELINES, Notice, Notices

OTHER_KIND = "baseline losses of a loss of another kind"
_UNIT = "baseline losses"
READINGS = 5
"""Fewer than are needed to tell pretrained weights, since it bears on that."""
WITHIN = 50
"""Steps. Later on the probe's tokens may be known better than others, which changes the ratio."""
_FRESH = 0.95
"""Of the uniform loss: what weights that have learnt nothing score at least. All tokens are then alike to them. Of what
others have learnt, the probe's few tokens are no measure: pretrained weights score them at 0.68 to 1.1 of the loss."""
_NEAR = 0.03
"""Of fresh weights the median is off by at most 1.6 %, also with micro-batches of 64 tokens."""
_SPREAD = 0.02
"""Median distance from the median; there it is at most 0.8 %. Of an unrelated loss it is more, as soon as it moves."""
_FAR = 3.0
"""Times the loss that weights score, fresh or not: no cross entropy of the same targets is so low, whatever was added
to it."""
_MOST = 1024
"""Micro-batches that one may be divided by."""


class LossScale:
    """Found out once, in the first steps: the loss in all of them against the probe's, of the same weights."""

    def __init__(self, notices: Notices) -> None:
        self.factor = 1.0
        """Times this the loss is the mean over its targets, in nats; 1 as long as nothing else is known, NaN: it is of
        another kind."""
        self._notices = notices
        self._ratios: list[float] = []
        self._settled = self._fresh = False

    def resume(self, told: Iterable[str]) -> None:
        """`told`: what notices before the stop were of. A loss in another unit may have been mended meanwhile."""
        if OTHER_KIND in told:
            self._settled, self.factor = True, math.nan

    def see(self, step: int, loss: float, uniform: float, scored: float) -> None:
        """`scored`: `probe_loss`, in nats per target; NaN: not read, or not of the same targets."""
        if self._settled or not (math.isfinite(loss) and all(0 < value < math.inf for value in (uniform, scored))):
            return
        self._fresh = self._fresh if self._ratios else scored >= _FRESH * uniform
        # A trainer's loss is what it says; that of a loop may be any part of it.
        self._settled = step > WITHIN or not (self._fresh or self._notices.callback)
        self._ratios.append(scored / loss if loss else math.inf)
        if len(self._ratios) == READINGS and not self._settled:
            self._settled = True
            told = _told(self._ratios) if self._fresh else None
            far = all(not 0 < ratio <= _FAR for ratio in (self._ratios[0], median(self._ratios)))
            if far and (self._notices.callback or told is None):
                self.factor = math.nan
                self._notices.say(_of_another_kind(loss, scored), logging.INFO)
            elif told:
                self.factor, notice = told
                self._notices.say(notice)


def _of_another_kind(loss: float, scored: float) -> Notice:
    what = (
        f"the loss, {loss:.3g}, is not what the network scores on its targets, {scored:.3g}: it is of another kind "
        f"than their cross entropy, as one of preferences or rewards is, or divided, {NO_BASELINES}"
    )
    return Notice(what, what=OTHER_KIND, why=f"{what[0].upper()}{what[1:]}.")


def _told(ratios: list[float]) -> tuple[float, Notice] | None:
    ratio = median(ratios)
    if not 0 < ratio <= _MOST or median(abs(r - ratio) for r in ratios) > _SPREAD * ratio:
        return None
    if times := _whole(ratio):
        return times, _notice(
            f"is 1/{times} of what the network scores on its targets, as if it were divided by the number of "
            "micro-batches",
            f"the mean over the step's micro-batches: here loss * {times}",
        )
    if times := _whole(1 / ratio):
        return 1 / times, _notice(
            f"is {times} times what the network scores on its targets, as a sum over targets or micro-batches is",
            f"the mean over the step's targets: here loss / {times}",
        )
    if abs(ratio / math.log(2) - 1) <= _NEAR:
        return math.log(2), _notice(
            f"is {1 / math.log(2):.2f} times what the network scores on its targets, as a loss in bits is, and "
            "baselines are in nats",
            "the loss in nats: here loss * 0.693",
        )
    return None


def _whole(ratio: float) -> int | None:
    times = round(ratio)
    return times if times > 1 and abs(ratio / times - 1) <= _NEAR else None


def _notice(what: str, give: str) -> Notice:
    return Notice(
        f"the loss {what}, {NO_BASELINES}. Give step {give}",
        what=_UNIT,
        why=f"The loss {what}, {NO_BASELINES}.",
        todo=f"Give step {give}.",
        in_callback=Notice(f"the loss {what}, {NO_BASELINES}", _UNIT, f"The loss {what}, {NO_BASELINES}."),
    )
