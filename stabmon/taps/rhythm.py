"""Whether `monitor.step` comes once after each step of the optimizer. Where it does not, that is said once."""

from __future__ import annotations

from collections import Counter, deque

from stabmon.taps.notices import Notice, Notices

UNSTEPPED = 50
"""Calls in a row after which it is said: a loss scaler leaves out fewer steps."""
_SPARSE = 10
"""Of so many calls without a step of the optimizer among those, not all of them."""
_MEND = "Call monitor.step(loss) once, right after optimizer.step()."
_NEVER = Notice(
    message=f"the optimizer has taken {UNSTEPPED} steps, and monitor.step was never called, so nothing is recorded. "
    "Call monitor.step(loss) once after each optimizer step",
    what="the steps",
    why=f"The optimizer has taken {UNSTEPPED} steps, and monitor.step was never called.",
    todo=_MEND,
    in_callback=Notice(
        message=f"the optimizer has taken {UNSTEPPED} steps, and StabilityCallback was told of the end of none, so "
        "nothing is recorded. If a class of yours derives from it, have each method call the one that it overrides",
        what="the steps",
        why=f"The optimizer has taken {UNSTEPPED} steps, and StabilityCallback was told of the end of none.",
        todo="If a class of yours derives from it, have each method call the one that it overrides.",
    ),
)
_UNSTEPPED = Notice(
    message=f"for {UNSTEPPED} steps there were gradients, but the optimizer that Monitor was given took no step, so "
    "updates are not read. If the loop has replaced it, close this Monitor and make one with the new one",
    what="updates",
    why=f"For {UNSTEPPED} steps there were gradients, but the optimizer that Monitor was given took no step.",
    todo="If the loop has replaced it, close this Monitor and make one with the new one.",
    in_callback=Notice(
        message=f"for {UNSTEPPED} steps there were gradients, but the trainer's optimizer was not seen to step, so "
        "updates and the output change are not read. Some, such as LOMO, update the weights inside the backward pass, "
        "and free the gradients there; or another one has taken its place in mid-run",
        what="updates and the output change",
        why=f"For {UNSTEPPED} steps there were gradients, but the trainer's optimizer was not seen to step. Some, such "
        "as LOMO, update the weights inside the backward pass.",
        todo="To have them read, train with one that does so in its step(); if another one has taken its place, resume "
        "from a checkpoint.",
    ),
)
_IDLE = Notice(
    message=f"in {UNSTEPPED} calls of monitor.step the optimizer that Monitor was given took no step, and no backward "
    "pass was seen, so gradients and updates are not read. Give Monitor the optimizer that the loop steps; updates "
    "that a loop makes by hand, of torch.autograd.grad or torch.func, cannot be read",
    what="gradients and updates",
    why=f"In {UNSTEPPED} calls of monitor.step the optimizer that Monitor was given took no step, and no backward pass "
    "was seen.",
    todo="Give Monitor the optimizer that the loop steps.",
    in_callback=Notice(
        message=f"in {UNSTEPPED} steps the trainer's optimizer took none, and no backward pass was seen, so gradients "
        "and updates are not read: those that are made by hand, of torch.autograd.grad or torch.func, cannot be",
        what="gradients and updates",
        why=f"In {UNSTEPPED} steps the trainer's optimizer took none, and no backward pass was seen.",
    ),
)
_EARLY = Notice(
    message="monitor.step is called between the backward pass and optimizer.step, so a step's loss stands beside the "
    "update of the step before. Call it right after optimizer.step",
    what="updates of the step that the loss is of",
    why="monitor.step is called between the backward pass and optimizer.step.",
    todo=_MEND,
    in_callback=Notice(
        message="the trainer tells of a step's end between the backward pass and the optimizer's step, so a step's "
        "loss stands beside the update of the step before",
        what="updates of the step that the loss is of",
        why="The trainer tells of a step's end between the backward pass and the optimizer's step.",
    ),
)
_SEVERAL = Notice(
    message="the optimizer takes several steps for one call of monitor.step, so most of them are not seen. Call it "
    "after each optimizer step",
    what="most steps of the optimizer",
    why="It takes several for one call of monitor.step.",
    todo=_MEND,
    in_callback=Notice(
        message="the optimizer takes several steps in each of the trainer's, which count as one: gradients and update "
        "are those of the last",
        what="most steps of the optimizer",
        why="It takes several in each of the trainer's, which count as one: gradients and update are those of the "
        "last.",
    ),
)
_SPARSELY = Notice(
    message="monitor.step is called without a step of the optimizer in between, as after each micro-batch, so step "
    "numbers and losses are not those of optimizer steps. Call it after each optimizer step alone",
    what="which calls of monitor.step are optimizer steps",
    why="monitor.step is also called where the optimizer took no step, as after each micro-batch.",
    todo=_MEND,
    in_callback=Notice(
        message="in some of the trainer's steps the optimizer takes none, as where batches are left out, so numbers of "
        "steps are not those of updates",
        what="which steps are updates",
        why="In some of the trainer's steps the optimizer takes none, as where batches are left out.",
    ),
)


class Rhythm:
    """`optimizers`: how many there are; `hidden`: a wrapper keeps gradients and updates to itself."""

    def __init__(self, notices: Notices, optimizers: int, hidden: bool = False) -> None:
        self._notices = notices
        self._optimizers = optimizers
        self._hidden = hidden
        self._called = False
        self._steps: Counter[int] = Counter()
        """Of each optimizer since the last call."""
        self._after = False
        """Whether a backward pass began after the last of those."""
        self._unstepped: deque[bool] = deque(maxlen=UNSTEPPED)
        self._early = self._several = self._idle = 0
        self._told: list[Notice] = []

    def backward(self) -> None:
        """One has begun; in it an optimizer may step too, parameter by parameter."""
        self._after = bool(self._steps)

    def stepped(self, optimizer: int) -> None:
        self._steps[optimizer] += 1
        self._after = False
        if not self._called and self._steps[optimizer] == UNSTEPPED:
            self._notices.say(_NEVER, alone=True)

    def called(self, gradients: bool, scaled: bool) -> None:
        """`monitor.step` was; gradients: whether there were any since the last call; scaled: whether a loss scaler may
        leave steps out."""
        steps, self._steps = self._steps, Counter()
        self._early = self._early + 1 if self._after else 0
        self._several = self._several + 1 if len(steps) == self._optimizers and min(steps.values()) > 1 else 0
        self._called, self._after = True, False
        self._unstepped.append(gradients and not steps)
        self._idle = 0 if gradients or steps or self._hidden else self._idle + 1
        without = sum(self._unstepped)
        if without == UNSTEPPED:
            self._tell(_UNSTEPPED)
        elif self._idle == UNSTEPPED:
            self._tell(_IDLE)
        elif self._early == UNSTEPPED:
            self._tell(_EARLY)
        elif self._several == UNSTEPPED:
            self._tell(_SEVERAL)
        elif without >= _SPARSE and not self._unstepped[-1] and len(self._unstepped) == UNSTEPPED and not scaled:
            self._tell(_SPARSELY)

    def _tell(self, notice: Notice) -> None:
        if notice not in self._told:
            self._told.append(notice)
            self._notices.say(notice)
