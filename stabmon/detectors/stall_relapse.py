"""A run that had learnt and does no better than the frequencies of its targets any more, however its tokens differ."""

from __future__ import annotations

from math import isfinite

from stabmon.detectors import words
from stabmon.detectors.stall_readings import Spell, Task
from stabmon.detectors.thresholds import stall as thresholds
from stabmon.records import Finding, Severity


class Relapse:
    """Told by the loss alone, against the unigram loss."""

    def __init__(self) -> None:
        self._back = Spell()
        self._learnt_until = 0
        self._step = 0

    def see(self, task: Task, step: int) -> None:
        """At every reading of the task."""
        self._step = step
        self._back.see(task.unlearnt, step)
        if self._back.since == step:
            self._learnt_until = task.learnt_until

    @property
    def severity(self) -> Severity | None:
        """None: there is none, or it is too young to be more than a spike."""
        if self._back.lasts(thresholds.RELAPSE_LONG, self._step):
            return "critical"
        return "warning" if self._back.lasts(thresholds.RELAPSE_STEPS, self._step) else None

    def finding(self, task: Task, rate: float) -> Finding:
        """What was lost since when, and where to go back to; `rate` is the learning rate."""
        assert self.severity is not None, "asked without an alert"
        last, slower = self._learnt_until, words.slower(rate, 3)
        lost = self._step - last
        values = {**task.losses, "loss_above_unigram": task.excess, "bigram_gap": task.gap, "learning_rate": rate}
        return Finding(
            severity=self.severity,
            action=f"has lost what it had learnt: since step {last + 1} it does no better than the frequencies of its "
            f"targets. Go back to a checkpoint of step {last} or before; {lost} steps are lost, and so is every "
            "further one",
            cause=f"Updates were too large: the loss had been {-task.best:.2g} nats under the unigram loss, and is "
            f"{task.excess:+.2f} from it.",
            remedies=(
                f"Roll back to a checkpoint of step {last} or before, and go on with {slower}.",
                f"Look at what came at step {last}: a raised learning rate, a batch, a norm input that grew.",
                "Clip gradients at 1, or lower Adam's beta2 to .95.",
            ),
            evidence={name: value for name, value in values.items() if isfinite(value)},
            since=last + 1,
            ruled_out=(f"a spike that heals by itself: it has lasted {lost} steps",),
        )
