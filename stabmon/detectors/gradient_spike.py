"""Gradients or updates become larger than they were: at once, slowly, or as an explosion that feeds itself."""

from __future__ import annotations

from collections import deque
from math import inf, isfinite, log

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors.arrays import of_the_model
from stabmon.detectors.gradient_finding import Kind, Spike, finding
from stabmon.detectors.gradient_readings import Blocks, Explosion, News, Total
from stabmon.detectors.level import LearningRate
from stabmon.detectors.thresholds import updates as thresholds
from stabmon.records import BATCH_SIZE, RESUME, Event, Finding, Layout, Snapshot

TOTAL = "total_grad_norm"


class GradientSpike:
    """Warns where two of three total gradient norms are over three times their level, or where the evidence of all
    streams (total norm; per block gradient, update, RMS_t) that they have become larger is 1e4 to 1 and the worst has
    doubled. Critical where the total grows by e a step, four steps in a row. Info: one step of ten times the level.

    Score: the rise in units of what alerts. Silent at the end of a plateau and while the loss falls, which raise
    gradients too; not so of an explosion. Nothing is learnt from a spike while it lasts; after 64 points it is the new
    level. 64 points after a known change (learning rate, batch size, resume) are learnt from and not judged.
    """

    name = "gradient_spike"
    needs: tuple[str, ...] = (
        TOTAL,
        "grad_norm",
        "update_norm",
        "rms_t",
        "context_share",
        "loss",
        "learning_rate",
        "skipped_steps",
    )

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._rate = LearningRate()
        self._muted = 0
        """Points that are still learnt from and not judged: of the run, not of its layout, as a resume is."""

    def _start(self, snapshot: Snapshot) -> None:
        self._layout = snapshot.layout
        self._step = -1
        self._sampled = False
        self._score = 0.0
        self._total, self._blocks = Total(), Blocks(snapshot)
        self._explosion, self._news = Explosion(), News()
        self._high: deque[int] = deque(maxlen=3)
        """Of the last three points: the step if it jumped, else -1."""
        self._steps: deque[int] = deque(maxlen=thresholds.SLOW_LAST)
        self._open: Spike | None = None

    def notice(self, event: Event) -> None:
        """After a resume, or with another batch size, another level or noise is no news."""
        if event.kind in (RESUME, BATCH_SIZE):
            self._muted = thresholds.POINTS

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]."""
        if snapshot.layout is not self._layout and snapshot.layout != self._layout:
            self._start(snapshot)
        total = snapshot.scalar(TOTAL)
        if 0 < total < inf and not snapshot.scalar("skipped_steps") > 0:
            self._read(snapshot, log(total))
        return of_the_model(self._score, snapshot, "total_grad_sq")

    def explain(self, site: int) -> Finding:
        """Which stream, how high, and what speaks against other explanations."""
        assert self._open is not None, "asked without an alert"
        return finding(self._open, self._news, isfinite(self._rate.now) and not self._muted)

    def _read(self, snapshot: Snapshot, x: float) -> None:
        self._step = snapshot.step
        self._steps.append(self._step)
        self._news.read(snapshot)
        if self._rate.jumps(snapshot.scalar("learning_rate"), thresholds.CHANGE):
            self._muted = thresholds.POINTS
        self._sampled = snapshot.layers_read and bool(np.isfinite(snapshot["grad_sq"]).any())
        if self._sampled:
            self._blocks.read(snapshot)
        rise = x - self._total.level
        jumped = rise > thresholds.JUMP and rise >= self._total.jump
        self._high.append(self._step if jumped else -1)
        if self._explosion.read(self._step, x):
            self._explode(x)
        if self._open is not None:
            self._follow(self._open, x, snapshot)
        else:
            self._weigh(x, rise)
        self._score = max(self._open.rise / self._open.size, 1.0) if self._open else 0.0

    def _explode(self, x: float) -> None:
        first, size = self._explosion.first, thresholds.JUMP
        self._open = Spike("explosion", self._explosion.since, TOTAL, level=first, size=size, rise=x - first)

    def _follow(self, spike: Spike, x: float, snapshot: Snapshot) -> None:
        if spike.kind == "step" and sum(step >= 0 for step in self._high) > 1:
            spike.kind = "jump"
        if spike.stream is None:
            lasts = spike.lasts(x - spike.level)
        else:
            lasts = not self._sampled or spike.lasts(float(self._blocks.rises[spike.stream]))
        if lasts:
            return
        if spike.points > thresholds.POINTS:
            self._total, self._blocks = Total(), Blocks(snapshot)
            self._high.clear()
        self._open = None
        self._forget()

    def _forget(self) -> None:
        self._total.sums.forget()
        self._blocks.streams.forget()

    def _weigh(self, x: float, rise: float) -> None:
        self._total.bet(self._step, x)
        if self._sampled:
            self._blocks.bet(self._step)
        if self._muted or self._step < thresholds.EARLY_STEPS or self._news.good:
            self._muted = max(self._muted - 1, 0)
            self._high.clear()
            self._forget()
        else:
            self._open = self._jump(rise) or self._slow()
        if self._open is None:
            self._total.push(x)
            if self._sampled:
                self._blocks.push()

    def _jump(self, rise: float) -> Spike | None:
        highs = [step for step in self._high if step >= 0]
        if len(highs) > 1:
            return self._of_total("jump", highs[0], self._total.jump, rise)
        if highs and rise >= thresholds.JUMP_ALONE:
            return self._of_total("step", self._step, self._total.jump, rise)
        return None

    def _slow(self) -> Spike | None:
        total, streams = self._total.sums.evidence, self._blocks.streams
        evidence = (total + streams.evidence) / 2 if self._blocks.sites else total
        if evidence < thresholds.RUN_LENGTH:
            return None
        if total >= streams.evidence:
            return self._of_total("slow", self._steps[0], self._total.least, self._total.lowest)
        return self._of_block(streams.worst)

    def _of_total(self, kind: Kind, since: int, size: float, rise: float) -> Spike | None:
        if rise < size:
            return None
        fresh = bool(self._blocks.steps) and self._blocks.steps[-1] >= since
        site = self._blocks.loudest if fresh else None
        return Spike(kind, since, TOTAL, site=site, level=self._total.level, size=size, rise=rise)

    def _of_block(self, stream: int) -> Spike | None:
        blocks = self._blocks
        size, rise = blocks.least(stream), blocks.lowest(stream)
        if not rise >= size:
            return None
        name, site, level = blocks.names[stream], blocks.sites[stream], blocks.level(stream)
        return Spike("slow", blocks.steps[0], name, stream=stream, site=site, level=level, size=size, rise=rise)
