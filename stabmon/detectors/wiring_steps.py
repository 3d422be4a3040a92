"""What the first steps tell of a loop: parts that never move, gradients that pile up, Adam without bias correction."""

from __future__ import annotations

import numpy as np

from stabmon.catalog import FLOOR_SQ, Array
from stabmon.detectors.arrays import Bools, Floats, Indices
from stabmon.detectors.thresholds import wiring as thresholds
from stabmon.records import Finding, Site, Snapshot


class Unmoved:
    """Parts that get no gradient, or get one and are not stepped, in ten readings from the first on."""

    def __init__(self) -> None:
        self.finding: Finding | None = None
        self._sites: tuple[Site, ...] = ()
        self._still = np.zeros(0)
        """Readings so far; NaN once it has moved."""
        self._since = 0

    def read(self, snapshot: Snapshot) -> None:
        update = snapshot["intended_update_sq"]
        if not snapshot.layers_read or not (update > 0).any():
            return  # not read, or the whole step was left out: nearly every step
        gradient = snapshot["grad_sq"]
        if gradient.size != update.size:
            return
        sites = snapshot.layout.sites_of("intended_update_sq")
        if sites != self._sites:
            self._sites, self._still, self._since = sites, np.zeros(len(sites)), snapshot.step
        elif np.isnan(self._still).all():
            return  # all have moved: nearly every reading
        unfelt = ~(gradient > FLOOR_SQ)
        usual = np.median(gradient[~unfelt]) if (~unfelt).any() else np.inf
        unstepped = (update == 0) & (gradient > thresholds.UNSTEPPED_GRADIENT**2 * usual)
        self._still = np.where(unfelt | unstepped, self._still + 1, np.nan)
        stuck = np.flatnonzero(self._still >= thresholds.UNMOVED_READINGS)
        self.finding = self._tell(stuck, unfelt, gradient) if stuck.size else None

    def _tell(self, stuck: Indices, unfelt: Bools, gradient: Array) -> Finding:
        first = next((i for i in stuck if self._sites[i].layer is not None), stuck[0])
        site, cut, norm = self._sites[first], bool(unfelt[first]), float(np.sqrt(np.nan_to_num(gradient[first])))
        what = "gets no gradient" if cut else "gets gradients and is never stepped"
        others = len(stuck) - 1
        more = f", nor do {others} others" if others > 1 else ", nor does another one" if others else ""
        return Finding(
            severity="info" if cut and site.layer is None else "warning",
            action=f"has a part that does not learn: {site.name} {what} since step {self._since}{more}. Stop it and "
            "connect it, or set requires_grad=False if it is meant; until then it stays as it was initialised",
            cause=_CUT_OFF if cut else _NOT_HELD,
            remedies=_CONNECT if cut else _HAND_OVER,
            evidence={"grad_norm": norm, "parts": float(len(stuck)), "readings": float(self._still[first])},
            since=self._since,
            site=site,
            ruled_out=()
            if cut
            else (f"a gradient too small to move it: its norm is {norm:.2g}, near the other parts'",),
        )


_CUT_OFF = "Nothing of the loss reaches it: its output is not used, is detached, or is multiplied by 0."
_NOT_HELD = "The optimizer does not step it: its parameters have left the parameter groups, or their rate there is 0."
_CONNECT = (
    "Look for detach(), no_grad(), .data or .item() between it and the loss, and for an output that is not used.",
    "In float16 without loss scaling gradients under 6e-8 are 0: use a GradScaler, or bfloat16.",
    "Of a part that is not used on purpose (a head of another task): set requires_grad=False.",
)
_HAND_OVER = (
    "Make the optimizer from model.parameters() after the model has its final parameters, and look at param_groups.",
    "Look for a learning rate of 0 in its group, and for gradients that are put to None before the step.",
)


class Kept:
    """Gradients that are not zeroed: their norm grows as a running sum's does, in all blocks."""

    def __init__(self) -> None:
        self.finding: Finding | None = None
        self._norms: list[float] = []
        self._first: Snapshot | None = None

    def read(self, snapshot: Snapshot) -> None:
        if len(self._norms) == thresholds.KEPT_READINGS:
            return
        norm = snapshot.scalar("total_grad_norm")
        if not 0 < norm < np.inf or snapshot.scalar("skipped_steps") > 0:
            return  # without a step of the optimizer, as after a micro-batch, it is meant to grow
        self._first = self._first or snapshot
        self._norms.append(norm)
        if len(self._norms) == thresholds.KEPT_READINGS and snapshot.step - self._first.step <= thresholds.KEPT_STEPS:
            self._judge(self._first, snapshot)

    def _judge(self, first: Snapshot, last: Snapshot) -> None:
        rises, growth = float(np.mean(np.diff(self._norms) > 0)), self._norms[-1] / self._norms[0]
        before, now = first["grad_norm"], last["grad_norm"]
        if before.size != now.size or not before.size:
            return
        blocks = float(np.mean(now > before))
        if rises < thresholds.KEPT_RISES or growth < thresholds.KEPT_GROWTH or blocks < thresholds.KEPT_BLOCKS:
            return
        self.finding = Finding(
            severity="warning",
            action=f"does not zero its gradients: their norm has grown {growth:.1f}-fold in {len(self._norms)} steps, "
            "and every step is taken along all gradients so far. Call optimizer.zero_grad() after each step, and start "
            "again",
            cause="The gradient that the optimizer is given is the sum of those of all steps: a momentum that never "
            "fades.",
            remedies=(
                "Put optimizer.zero_grad() after optimizer.step(), in the same branch of the loop.",
                "With several optimizers: each zeroes its own parameters alone; zero those of all, or "
                "model.zero_grad().",
                "With gradient accumulation: zero after each step, not after each micro-batch or epoch.",
            ),
            evidence={"total_grad_norm": self._norms[-1], "growth": growth, "rises": rises, "blocks_grown": blocks},
            since=first.step,
            ruled_out=(f"one layer's gradient that explodes: those of {blocks:.0%} of the blocks have grown alike",),
        )


class Uncorrected:
    """Adam without bias correction: against corrected moments its steps grow by one factor, known in advance, in all
    parts alike, (1 - b1^t) / sqrt(1 - b2^t) (Kingma & Ba 2015, section 3). Needs level standard.
    """

    def __init__(self) -> None:
        self.finding: Finding | None = None
        self._sizes: list[Array] = []
        """Update norm / (learning rate x RMS of the corrected direction), of steps 1, 2, …"""

    def read(self, snapshot: Snapshot) -> None:
        step = snapshot.step
        if step > thresholds.BIAS_STEPS or step != len(self._sizes) + 1:
            return
        direction, update = snapshot["adam_update_rms"], snapshot["intended_update_norm"]
        if not direction.size or direction.size != update.size:
            return
        self._sizes.append(update / (snapshot.scalar("learning_rate") * direction))
        if step == thresholds.BIAS_STEPS:
            self._judge()

    def _judge(self) -> None:
        sizes = np.array(self._sizes, float)
        sizes = sizes[:, np.isfinite(sizes).all(axis=0) & (sizes > 0).all(axis=0)]
        if not sizes.size:
            return
        growth = sizes / sizes[0]
        low, high = (
            _factors(thresholds.BIAS_BETA_1[0], thresholds.BIAS_BETA_2[1]),
            _factors(thresholds.BIAS_BETA_1[1], thresholds.BIAS_BETA_2[0]),
        )
        middle = np.median(growth, axis=1)
        alike = growth.max(axis=1) <= thresholds.BIAS_AGREE * growth.min(axis=1)
        if not (alike.all() and (middle >= low).all() and (middle <= high).all()):
            return
        self.finding = Finding(
            severity="warning",
            action=f"uses an Adam without bias correction: its steps have grown {middle[-1]:.2f}-fold since step 1 by "
            "that alone. Restart with the correction, or with a warm-up of 2 / (1 - beta2) steps",
            cause="Adam's moments start at 0 and are taken as they are: with beta2 = .999 the first steps are 3 to 6.5 "
            "times as large as meant, when the model can bear it least.",
            remedies=(
                "Use torch.optim.AdamW, or divide the moments by 1 - beta^t.",
                "Or keep it, and warm the learning rate up over 2 / (1 - beta2) steps.",
            ),
            evidence={"step_growth": float(middle[-1]), "parts": float(sizes.shape[1])},
            since=1,
            ruled_out=(
                "a rising learning rate: it is divided out",
                "one part's own gradients: the factor is the same in all",
            ),
        )


def _factors(beta_1: float, beta_2: float) -> Floats:
    """Of steps 1 to 5, relative to the first."""
    t = np.arange(1, thresholds.BIAS_STEPS + 1)
    factor = (1 - beta_1**t) / np.sqrt(1 - beta_2**t)
    return np.asarray(factor / factor[0])
