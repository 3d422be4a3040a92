"""The stall: all tokens get the same answer, the loss sits at the unigram entropy, and nothing looks wrong.

Level first, then slope and baselines decide. s is the context share, the part of the output's variance that depends
on the position. It also falls where there is nothing to learn from context, and for a while in runs that escape.
"""

from __future__ import annotations

from math import isfinite, log

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors.arrays import of_the_model
from stabmon.detectors.stall_by_loss import ByLoss
from stabmon.detectors.stall_depth import Depth
from stabmon.detectors.stall_finding import FOR_GOOD, MILD, Stall, Verdict, finding
from stabmon.detectors.stall_readings import SHARE_FLOOR, Rate, Share, Spell
from stabmon.detectors.stall_task import Task
from stabmon.detectors.thresholds import stall as thresholds
from stabmon.records import SEVERITIES, Finding, Severity, Snapshot


class ContextStall:
    """Warns of a collapse of the context share that goes deep soon (by the training's or the probe's) or lasts
    (falling, or frozen), calls it critical when it will not resolve at this learning rate or when a run that had learnt
    has lost it, and eases to info, with the most steps it can take, when it resolves. Of one that is shallow or slow it
    tells (info): most end by themselves. Silent where there is nothing to learn; warns at most where that is unknown.
    Whatever the share: warns of a run that has been back at the unigram loss for 20 steps, and is critical after 60;
    and of one that is still there 150 steps after its share came back, critical after 300: 10 and 20 if its lowest
    block gets no gradient. Warns there too where, in Post-LN, the last norm's input is fourteen times the stream's, or
    eleven where it had begun to learn, or soon; critical where it is 80 steps after, unless the share comes back fast.

    Score: ln s / ln 1e-4, so 1 at s = 1e-4 and 2 at 1e-8.
    """

    name = "context_stall"
    needs: tuple[str, ...] = (
        "context_share",
        "probe_context_share",
        "loss",
        "unigram_loss",
        "bigram_loss",
        "class_mean_loss",
        "pretrained",
        "learning_rate",
        "token_similarity",
        "grad_norm",
        "norm_input_msq",
        "final_norm_input_msq",
    )

    def __init__(self) -> None:
        self._trained, self._probed = Share(), Share()
        self._task, self._depth, self._rate, self._by_loss = Task(), Depth(), Rate(), ByLoss()
        self._noisy = self._floored = self._back = False
        self._filling = False
        self._swamped: Severity | None = None
        """How sure it is that hardly anything of the share gets through the last norm."""
        self._step = 0
        self._fell: int | None = None
        """Step of the first collapse."""
        self._since: int | None = None
        """Step at which the collapse that lasts began."""
        self._sank: int | None = None
        """Step at which its share was under SUNK first."""
        self._slope = float("nan")
        self._verdict: Verdict | None = None
        self._start_spells()

    def _start_spells(self) -> None:
        self._over, self._rising, self._flat, self._fallen = Spell(), Spell(), Spell(), Spell()
        self._low, self._lost, self._deep = Spell(), Spell(), Spell()

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]: it judges the whole model."""
        if self._read(snapshot):
            self._see_swamped()
            self._judge()
            self._see_return()
            back = self._back and self._step >= self._rate.cut_until  # what a cut does takes its time
            self._by_loss.see(self._task, self._depth, back, self._swamped, self._step)
        return of_the_model(self._score(), snapshot, "context_share")

    def explain(self, site: int) -> Finding:
        """What was measured, what it rules out, what to do, and the norm at which tokens are most alike."""
        found = []
        if self._standing and self._since is not None:
            stall = Stall(self._standing, self._since, self._step, self._share.last, self._slope, self._floored)
            found.append(finding(stall, self._task, self._depth, self._rate))
        if self._by_loss.severity:
            found.append(self._by_loss.finding(self._task, self._depth, self._rate.top))
        assert found, "asked without an alert"
        return max(found, key=lambda one: SEVERITIES.index(one.severity))

    @property
    def _standing(self) -> Verdict | None:
        """The verdict on the share that alerts now; None while the collapse seems to be over."""
        return self._verdict if self._over.since is None else None

    def _see_return(self) -> None:
        """Whether the share has been back since its collapse. Single steps under it are no other collapse."""
        if self._standing:
            self._back = False
        elif self._fell is not None and self._share.last > thresholds.RECOVERED:
            self._back = True

    def _score(self) -> float:
        if self._step < thresholds.FIRST_STEP or not self._share.logs:
            return 0.0
        depth = log(max(self._share.last, SHARE_FLOOR)) / log(thresholds.COLLAPSED)
        alerts = self._by_loss.severity or self._standing
        return max(depth, 1.0) if alerts else min(max(depth, 0.0), 0.99)

    @property
    def _share(self) -> Share:
        return self._probed if self._floored else self._trained

    def _read(self, snapshot: Snapshot) -> bool:
        """Take the readings in; whether the share that is judged is among them."""
        trained, probed = snapshot.scalar("context_share"), snapshot.scalar("probe_context_share")
        if self._rate.read(snapshot):
            self._verdict = "falling" if self._verdict in FOR_GOOD else self._verdict
            self._filling, self._swamped = False, None
            self._start_spells()
            self._trained.restart()
            self._probed.restart()
        self._task.read(snapshot)
        self._depth.read(snapshot)
        if isfinite(trained):
            self._trained.add(snapshot.step, trained)
        if isfinite(probed):
            self._probed.add(snapshot.step, probed)
        if isfinite(trained) and isfinite(probed):
            noisy = trained > thresholds.LOST and probed < thresholds.FLOORED * trained
            self._floored = noisy and self._noisy
            self._noisy = noisy
        read = isfinite(probed if self._floored else trained)
        if read:
            self._step = snapshot.step
        return read

    def _judge(self) -> None:
        share = self._share
        if self._step < thresholds.FIRST_STEP:
            return
        enter = thresholds.RECOVERED if self._task.fell_back else thresholds.COLLAPSED
        if self._since is None and share.below(enter):
            self._since = share.first_below(enter)
            self._fell = self._since if self._fell is None else self._fell
        limit = enter if self._verdict is None else thresholds.RECOVERED
        self._over.see(not share.last <= limit or self._task.quiet, self._step)
        if self._over.since is not None:
            if self._verdict is None or self._over.lasts(thresholds.OVER_STEPS, self._step):
                self._verdict = self._since = self._sank = None
                self._start_spells()
            return
        slope = share.slope()
        if self._since is None or np.isnan(slope):
            return
        self._slope = slope
        if self._sank is None and (share.below(thresholds.SUNK) or self._probe_sank(self._since)):
            self._sank = self._step
        self._see_spells(share, slope, self._sank_soon(self._since))
        verdict = self._decide(self._since)
        filled = self._swamped and isfinite(self._task.worth) and not self._task.fell_back
        self._verdict = "filled" if filled and verdict in MILD else verdict

    def _see_spells(self, share: Share, slope: float, soon: bool) -> None:
        """`soon`: whether it sank deep soon after the collapse."""
        self._rising.see(slope > thresholds.RISING, self._step)
        self._flat.see(abs(slope) < thresholds.FLAT, self._step)
        lost = thresholds.LOST if soon else thresholds.SLOW_LOST
        self._low.see(soon and slope <= thresholds.FALLING and share.below(thresholds.LOW), self._step)
        self._lost.see(slope <= 0 and share.below(lost), self._step)
        self._deep.see(soon and self._probed.below(thresholds.DEEP), self._step)
        self._fallen.see(self._task.fell_back, self._step)

    def _decide(self, since: int) -> Verdict | None:
        """Of a share that has collapsed since that step."""
        old = self._verdict
        known = isfinite(self._task.worth)
        if old in FOR_GOOD and known:
            return old
        if self._swamped == "critical" and known and not self._task.fell_back:
            return "swamped"
        if self._rising.since is not None:
            resolves = self._rising.lasts(thresholds.RISING_STEPS, self._step)
            return "rising" if resolves and self._share.last > thresholds.FORECAST else old
        if self._task.fell_back:
            return "fell_back" if self._fallen.lasts(thresholds.FELL_STEPS, self._step) else "falling"
        agrees = self._depth.agrees(self._floored)
        if old is None and not agrees and self._step - since < thresholds.DOUBTED_STEPS:
            return None
        spells = (
            (self._lost, thresholds.LOST_STEPS),
            (self._low, thresholds.LOW_STEPS),
            (self._deep, thresholds.DEEP_STEPS),
        )
        gone = any(spell.lasts(steps, self._step) for spell, steps in spells)
        if known and gone and agrees and self._step >= self._rate.cut_until:
            return "lost"
        waited = self._step - since
        if not self._is_deep(since) and waited < thresholds.PATIENT_STEPS:
            return "plateau" if old or waited >= thresholds.PLATEAU_STEPS else None
        return "frozen" if self._flat.lasts(thresholds.FLAT_STEPS, self._step) else "falling"

    def _is_deep(self, since: int) -> bool:
        """Whether it sank soon, or deeper than any plateau that ends, or hardly anything of it gets through."""
        return self._sank_soon(since) or self._filling or self._share.below(thresholds.SLOW_LOST)

    def _sank_soon(self, since: int) -> bool:
        return self._sank is not None and self._sank - since <= thresholds.SOON_STEPS

    def _probe_sank(self, since: int) -> bool:
        """Where batches differ the training's share is held up, and the probe's is not."""
        return self._step - since <= thresholds.PROBE_SOON and self._probed.below(thresholds.PROBE_SUNK)

    def _see_swamped(self) -> None:
        """Once it is, a share that comes back changes nothing: only learning does, or another learning rate."""
        if self._task.learns:
            self._filling, self._swamped = False, None
        if self._fell is None or self._rate.cut_at or not self._task.idle:
            return
        waited, stream = self._step - self._fell, self._depth.stream
        soon = waited <= thresholds.FILLING_SOON
        self._filling |= soon and stream.filling.lasts(thresholds.FILLING_STEPS, self._step)
        if self._swamped == "critical" or not stream.swamped.lasts(thresholds.SWAMPED_STEPS, self._step):
            return
        due = thresholds.SWAMPED_AFTER <= waited <= thresholds.SWAMPED_BY
        if due and not self._share.slope() > thresholds.REGROWS:
            self._swamped = "critical"
        elif waited <= thresholds.SWAMPED_BY:
            self._swamped = "warning"
