"""Parameters that are trained, and were not when the Monitor was made: added, unfrozen or replaced. Said once."""

from __future__ import annotations

from torch import nn

from stabmon.taps.notices import Notice, Notices
from stabmon.taps.ranks.sharding import hides_parameters, is_shared

EVERY = 50
"""Steps between two looks, since to list the parameters of a large model takes a millisecond."""


class Newcomers:
    """Looks at the model itself. Not where wrappers put other parameters into their place (FSDP)."""

    def __init__(self, model: nn.Module, notices: Notices) -> None:
        self._model = model
        self._notices = notices
        self._known = {id(p) for p in model.parameters() if p.requires_grad}
        self._settled = hides_parameters(model) is not None or any(is_shared(p) for p in model.parameters())

    def look(self, step: int) -> None:
        """After that step."""
        if self._settled or step % EVERY:
            return
        new = [n for n, p in self._model.named_parameters() if p.requires_grad and id(p) not in self._known]
        if new:
            self._settled = True
            self._say(new)

    def _say(self, new: list[str]) -> None:
        those = new[0] if len(new) == 1 else f"{len(new)} parameters, such as {new[0]},"
        why = "added, unfrozen or put in the place of others in mid-run"
        mend = "close this Monitor and make another one with start_step, the number of steps taken: the run goes on"
        self._notices.say(
            Notice(
                f"gradients and updates of {those} are not read: {why}. To have them read, {mend}",
                what=f"gradients and updates of {those.rstrip(',')}",
                why=f"A{why[1:]}.",
                todo=f"C{mend[1:]}.",
                in_callback=Notice(
                    f"gradients and updates of {those} are not read: {why}. To have them read, resume from a "
                    "checkpoint: the run goes on",
                    what=f"gradients and updates of {those.rstrip(',')}",
                    why=f"A{why[1:]}.",
                    todo="Resume from a checkpoint: the run goes on.",
                ),
            )
        )
