"""What the loss did before and after an update that moved the output too far."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from math import isnan
from statistics import median

from stabmon.detectors.thresholds import updates as thresholds
from stabmon.detectors.update_finding import Shock
from stabmon.records import Snapshot


class Aftermath:
    """Holds the losses of the batches after an update against those before it, less what the unigram scores there:
    one batch, or one probe, rises and falls by chance where a run learns fast; a step that undid something lasts.
    """

    def __init__(self) -> None:
        self._suspect: Shock | None = None
        """The update that is looked at."""
        self._before: deque[float] = deque(maxlen=thresholds.LOSSES_BEFORE)
        self._since: deque[float] = deque(maxlen=thresholds.LOSSES_SINCE)
        self._losses: deque[float] = deque(maxlen=2 * thresholds.LEARNS_LOSSES)

    def see(self, snapshot: Snapshot) -> None:
        """A step's loss is that before its own update."""
        loss, unigram = snapshot.scalar("loss"), snapshot.scalar("unigram_loss")
        if isnan(loss):
            return
        self._losses.append(loss)
        (self._since if self._suspect else self._before).append(loss if isnan(unigram) else loss - unigram)

    @property
    def learns(self) -> bool:
        """Whether the loss falls so fast that large updates are how it learns."""
        losses = list(self._losses)
        if len(losses) < 2 * thresholds.LEARNS_LOSSES:
            return False
        before, now = median(losses[: thresholds.LEARNS_LOSSES]), median(losses[thresholds.LEARNS_LOSSES :])
        return before - now > thresholds.LEARNS * before

    def suspects(self, shock: Shock) -> None:
        """Of several the first is kept: no losses before it come after an update that went too far."""
        self._suspect = self._suspect or shock

    def confirmed(self) -> Shock | None:
        """At a reading, once five losses have come: the update, if each of them is over all of the eight before it.
        It is asked once.
        """
        if self._suspect is None or len(self._since) < thresholds.LOSSES_SINCE:
            return None
        known = len(self._before) == thresholds.LOSSES_BEFORE
        lasts = known and min(self._since) > max(self._before)
        found = replace(self._suspect, verdict="overshot") if lasts else None
        self._suspect = None
        self._since.clear()
        return found
