"""A run that does no better than the frequencies of its targets though its tokens differ: it has lost what it had
learnt, or its plateau seemed to end and did not.
"""

from __future__ import annotations

from typing import Literal

from stabmon.detectors import words
from stabmon.detectors.stall_depth import Depth
from stabmon.detectors.stall_finding import restart, roll_back
from stabmon.detectors.stall_readings import Spell
from stabmon.detectors.stall_task import Task
from stabmon.detectors.thresholds import stall as thresholds
from stabmon.records import Finding, Severity

Kind = Literal["relapse", "idle"]


class ByLoss:
    """Told by the loss against the unigram loss alone."""

    def __init__(self) -> None:
        self._relapse, self._idle, self._starved, self._full = Spell(), Spell(), Spell(), Spell()
        self._learnt_until = self._starved_readings = 0
        self._blocked: Severity | None = None
        self._step = 0

    def see(self, task: Task, depth: Depth, came_back: bool, blocked: Severity | None, step: int) -> None:
        """At every reading. `came_back`: tokens had got the same answer, and do so no more; `blocked`: how sure
        it is that this does not help, since hardly anything of what tells them apart gets through the last norm.
        """
        self._step, self._starved_readings, self._blocked = step, depth.starved, blocked
        self._relapse.see(task.unlearnt, step)
        self._idle.see(came_back and task.idle, step)
        self._starved.see(self._idle.since is not None and depth.starved > 0, step)
        stream = depth.stream
        full = stream.full or (task.slips and stream.swamped.since is not None)
        self._full.see(self._idle.since is not None and full, step)
        if self._relapse.since == step:
            self._learnt_until = task.learnt_until

    @property
    def severity(self) -> Severity | None:
        """None: there is nothing, or it is too young to be more than a spike, or an end that comes."""
        found = self._found
        return found[1] if found else None

    @property
    def _found(self) -> tuple[Kind, Severity] | None:
        if self._relapse.lasts(thresholds.RELAPSE_LONG, self._step):
            return "relapse", "critical"
        blocked = self._blocked if self._idle.since is not None else None
        if blocked == "critical" or self._idles(thresholds.IDLE_LONG, thresholds.STARVED_LONG):
            return "idle", "critical"
        if self._relapse.lasts(thresholds.RELAPSE_STEPS, self._step):
            return "relapse", "warning"
        full = blocked == "warning" or self._full.lasts(thresholds.FULL_STEPS, self._step)
        return ("idle", "warning") if full or self._idles(thresholds.IDLE_STEPS, thresholds.STARVED_STEPS) else None

    def _idles(self, steps: int, starved: int) -> bool:
        """Whether for so many steps, or for fewer if its lower layers have no gradient by which to end it."""
        sure = self._starved_readings >= thresholds.STARVED_READINGS
        return self._idle.lasts(steps, self._step) or (sure and self._starved.lasts(starved, self._step))

    def finding(self, task: Task, depth: Depth, rate: float) -> Finding:
        """What it is, since when, and what to do; `rate` is the learning rate."""
        assert self._found is not None, "asked without an alert"
        kind, severity = self._found
        return (
            self._relapsed(severity, task, depth, rate)
            if kind == "relapse"
            else self._stays(severity, task, depth, rate)
        )

    def _relapsed(self, severity: Severity, task: Task, depth: Depth, rate: float) -> Finding:
        last, lost = self._learnt_until, self._step - self._learnt_until
        return Finding(
            severity=severity,
            action=f"has lost what it had learnt: since step {last + 1} it does no better than the frequencies of its "
            f"targets. Go back to {words.checkpoint_before(last)}; {words.steps_lost(lost)}",
            cause=f"Updates were too large: the loss had been {-task.best:.2g} nats under the unigram loss, and is "
            f"{task.excess:+.2f} from it.",
            remedies=roll_back(last, rate),
            evidence=_evidence(task, depth, rate),
            since=last + 1,
            ruled_out=(f"a spike that heals by itself: it has lasted {lost} steps",),
        )

    def _stays(self, severity: Severity, task: Task, depth: Depth, rate: float) -> Finding:
        since = self._idle.since or self._step
        return Finding(
            severity=severity,
            action=f"has not left its plateau: tokens get different answers again since step {since}, and its loss is "
            f"still that of the frequencies of its targets. Restart with {words.slower(rate, 3)} or warm-up; "
            f"{words.steps_lost(self._step)}",
            cause="Updates are so large that they undo what others learn: what tells the positions apart came back, "
            f"and tells nothing of the targets (the loss is {task.excess:+.2f} from the unigram loss)"
            f"{self._hunger(depth)}.",
            remedies=restart(rate),
            evidence=_evidence(task, depth, rate),
            since=since,
            ruled_out=(
                f"a plateau that ends: {self._why(depth)}",
                f"nothing to learn: there are {task.worth:.2f} nats",
            ),
        )

    def _why(self, depth: Depth) -> str:
        if self._blocked or self._full.since is not None:
            return f"of the stream 1/{depth.stream.length:.0f} is left in what the last norm reads"
        return f"the loss has not followed in {self._step - (self._idle.since or 0)} steps"

    def _hunger(self, depth: Depth) -> str:
        if self._starved.since is None:
            return ""
        return f"; the lowest block gets {depth.ratio:.1%} of the highest's gradient, too little to learn by"


def _evidence(task: Task, depth: Depth, rate: float) -> dict[str, float]:
    values = {
        **task.losses,
        "loss_above_unigram": task.excess,
        "bigram_gap": task.gap,
        "lower_upper_grad_ratio": depth.ratio,
        "final_norm_input_msq": depth.stream.length,
        "learning_rate": rate,
    }
    return words.known(values)
