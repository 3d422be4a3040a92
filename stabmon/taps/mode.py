"""Whether a network that was trained in training mode goes on in eval mode: said once, and read all the same."""

from __future__ import annotations

from stabmon.taps.notices import Notice, Notices

STEPS = 10
"""In eval mode, one after another, after which it is said."""
_TRAINED = (
    f"for {STEPS} steps the model has been trained in eval mode, where dropout is off and batch norm takes its running "
    "statistics"
)
_MEND = "If an evaluation left it so, call model.train() after it"
_LEFT = Notice(
    message=f"{_TRAINED}. {_MEND}", what="training in training mode", why=f"F{_TRAINED[1:]}.", todo=f"{_MEND}."
)


class Mode:
    """Told of the forwards with gradients on, and of the end of each step: one with none in training mode was taken by
    what those in eval mode gave."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self.in_eval = False
        """Whether forwards in eval mode are those of the training."""
        self.training = self.evaluating = False
        """In which modes forwards were, with gradients on, in this step."""
        self._steps = 0

    def stepped(self) -> None:
        """The step is over."""
        if self.training:
            self._steps, self.in_eval = 0, False
        elif self.evaluating:
            self._steps += 1
            self.in_eval = True
            if self._steps == STEPS:
                self._notices.say(_LEFT)
        self.training = self.evaluating = False
