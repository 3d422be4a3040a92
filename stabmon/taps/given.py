"""Targets that were given to `step` and have no baselines, though the network predicts classes: said once.

Shapes: N positions, V values of the output at each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stabmon.taps.notices import NO_BASELINES, Notice, Notices
from stabmon.taps.ranks.sharding import local
from stabmon.taps.targets import MAX_TARGETS, Host

_NEARLY = 0.01
"""What shares of classes may add up to beside 1: of rounded halves."""
_MANY = 100
"""Values from which on an output called logits is one of classes, whatever the targets are."""


class Given:
    """Looks at the first targets alone. Numbers to regress on are nothing to tell of."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._looked = False
        self._floats = self._like_output = ""
        self.one_hot = False
        """Whether whole numbers were given, and are no class ids."""

    def floats(self, given: Tensor, output: torch.Size | None, logits: bool) -> tuple[Tensor, ...]:
        """What `told` is to be given of floating targets, on the device, float32[2]: whether they are shares of V
        classes, and whether they are class ids; nothing once they were looked at, or where they are neither by shape.

        `output`: the network's, [..., V]; `logits`: whether it is called so.
        """
        if self._looked or output is None or not given.numel() or given.is_complex():
            return ()
        self._looked, width = True, output[-1]
        self._floats = _described(given)
        x = local(given.detach())
        if width > 1 and x.ndim > 1 and x.shape[-1] == width:
            rows = x.reshape(-1, width)[: max(MAX_TARGETS // width, 1)].float()
            shares = (rows >= 0).all() & ((rows.sum(-1) - 1).abs() <= _NEARLY).all()
            return (torch.stack((shares | (logits and width >= _MANY), torch.zeros_like(shares))).float(),)
        if x.numel() == output[:-1].numel():
            some = x.reshape(-1)[:MAX_TARGETS].float()
            ids = ((some == some.round()) & (some >= 0) & (some < max(width, 2))).all()
            return (torch.stack((torch.zeros_like(ids), ids)).float(),)
        return ()

    def told(self, found: Host) -> None:
        """What became of `floats`, on the host."""
        if found[0]:
            self._say(f"{self._floats} are no class ids", "targets=targets.argmax(-1)")
        elif found[1]:
            self._say(f"{self._floats} are class ids in floating point", "targets=targets.long()")

    def whole(self, given: Tensor, output: torch.Size | None) -> None:
        """Of whole numbers, what their shape tells."""
        if self._looked or output is None or not given.numel():
            return
        self._looked = True
        batch, positions = output[0], output[:-1].numel()
        if given.shape == output and output[-1] > 2:
            self._like_output = _described(given)
        # Of several micro-batches there may be more; in one dimension those that do not count may be left out.
        elif given.ndim > 1 and given.numel() < positions and given.numel() % batch:
            shape = list(output[:-1])
            self._notices.say(
                Notice(
                    f"{_described(given)} cannot be those of an output of shape {list(output)}, so baseline losses are "
                    f"of something else than the loss. Give step class ids of shape {shape}",
                    what="baseline losses of what the loss is of",
                    why=f"{_described(given).capitalize()} cannot be those of an output of shape {list(output)}.",
                    todo=f"Give step class ids of shape {shape}.",
                )
            )

    def look(self, targets: Host) -> None:
        """Of whole numbers on the host, [N, V] or less: whether they are one-hot, if their shape allows for it."""
        if self._like_output:
            shaped, self._like_output = self._like_output, ""
            sums, cut = targets.sum(-1), targets.shape[-1] == MAX_TARGETS
            binary = ((targets == 0) | (targets == 1)).all()
            self.one_hot = bool(binary and ((sums == 1) | (cut & (sums == 0))).all())
            if self.one_hot:
                self._say(f"{shaped} are no class ids", "targets=targets.argmax(-1)")

    def _say(self, fault: str, call: str) -> None:
        self._notices.say(
            Notice(
                f"{fault}, {NO_BASELINES}. Give step class ids as whole numbers: {call}",
                what="baseline losses",
                why=f"{fault.capitalize()}, {NO_BASELINES}.",
                todo=f"Give step class ids as whole numbers: {call}.",
            )
        )


def _described(targets: Tensor) -> str:
    return f"targets of {str(targets.dtype).removeprefix('torch.')} and shape {list(targets.shape)}"
