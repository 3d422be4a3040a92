"""What is worth saying of a series of losses while it is read."""

from __future__ import annotations

from collections import deque
from math import isfinite

from stabmon.readers.reading import Notes, Reading

_ABOVE = 0.01
_CLOSE = 0.12
_OFTEN = 20
"""More often than a run is started again."""


class Remarks:
    """Told at once, or, where it is a count, at the end."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._backs: list[tuple[int, int]] = []
        self._back = 0
        self._several = 0
        self._zeros = 0
        self._hidden = 0
        self._before: deque[float] = deque(maxlen=3)
        self._loss = float("nan")
        self._ratios: list[float] = []

    def see(self, step: int, reading: Reading, evaluation: float) -> None:
        """A snapshot's reading and the evaluation before it."""
        if evaluation > 0 and self._loss > 0 and len(self._ratios) < 100:
            self._ratios.append(self._loss / evaluation)
        self._see_zeros(step, reading)
        if isfinite(reading.loss):
            self._loss = reading.loss

    def _see_zeros(self, step: int, reading: Reading) -> None:
        if reading.loss != 0:
            self._zeros = 0
            if isfinite(reading.loss):
                self._before.append(abs(reading.loss))
            return
        self._zeros += 1
        steep = len(self._before) == 3 and min(self._before) > _ABOVE
        if reading.grad_norm == float("inf") or (steep and self._zeros == 2 and not reading.grad_norm > 0):
            self._hidden += 1
            if self._hidden == 1:
                self._notes.say(
                    f"The loss is exactly 0 around step {step}: trainers that leave NaN out of their log write 0 "
                    "(Hugging Face: logging_nan_inf_filter). Most likely it was NaN."
                )

    def several_losses(self) -> None:
        self._several += 1

    def went_back(self, before: int, step: int) -> None:
        """Steps go back: the run was started again, or several runs were written into one file."""
        self._back += 1
        self._backs = self._backs or [(before, step)]
        if self._back == 1:
            self._notes.say(f"After step {before} comes step {step}: read as a restart.")

    def counted_by_epoch(self) -> None:
        self._notes.say("Steps start anew in each epoch; they are counted on.")

    def close(self) -> None:
        """What only the end can tell."""
        if self._back > 1:
            sort = "; if these are no restarts, sort the file by step" if self._back > _OFTEN else ""
            self._notes.say(f"Steps go back {self._back} times in all{sort}.")
        if self._hidden > 1:
            self._notes.say(f"Zeros in place of a loss, {self._hidden} times in all.")
        if self._several:
            self._notes.say(f"Several losses of one step, {self._several} times; their mean is read.")
        self._summed()

    def _summed(self) -> None:
        """Training losses a whole number of times the evaluation's: not averaged over accumulated batches."""
        if len(self._ratios) < 3:
            return
        times = round(sorted(self._ratios)[len(self._ratios) // 2])
        if times >= 2 and all(abs(ratio / times - 1) < _CLOSE for ratio in self._ratios):
            self._notes.say(
                f"The training loss is about {times} times the evaluation's at all {len(self._ratios)} evaluations: it "
                f"looks summed over {times} accumulated batches, not averaged. Judged as it is."
            )
