"""The loss jumps above its own trend."""

from __future__ import annotations

from math import exp, isfinite, log, nan

from stabmon.catalog import Array
from stabmon.detectors import thresholds
from stabmon.detectors.level import NOISE_POINTS, POINTS, log_loss, of_the_model
from stabmon.detectors.sequential import WINDOW, ShiryaevRoberts, Whitened, tie
from stabmon.detectors.window import Window
from stabmon.records import BATCH_SIZE, RESUME, Event, Finding, Snapshot

TREND_POINTS = 64
LEAST_TREND = 12
LEAST_RISES = 16


class _Trend:
    """z less the median of the last 64, twice: the second takes out what a steady fall leaves of the first."""

    def __init__(self) -> None:
        self._levels, self._lags = Window(TREND_POINTS), Window(TREND_POINTS)

    @property
    def level(self) -> float:
        return self._levels.median

    def excess(self, z: float) -> float:
        """NaN where there are fewer than 12 points to compare with."""
        return z - self.level - self._lags.median if len(self._lags) >= LEAST_TREND else nan

    def push(self, z: float) -> None:
        if len(self._levels) >= LEAST_TREND:
            self._lags.push(z - self._levels.median)
        self._levels.push(z)


class _Jump:
    """The second highest of the last three points, against the median of the twelve before: one bad batch is none."""

    def __init__(self) -> None:
        self._before, self._changes = Window(POINTS), Window(NOISE_POINTS)
        self._pair: tuple[float, ...] = ()

    def rise(self, z: float) -> float:
        return sorted((*self._pair, z))[-2] - self._before.median if self._before.full else 0.0

    @property
    def noise(self) -> float:
        return 1.05 * self._changes.median

    def push(self, z: float) -> None:
        if self._pair:
            self._changes.push(abs(z - self._pair[-1]))
        if len(self._pair) == 2:
            self._before.push(self._pair[0])
        self._pair = (*self._pair[-1:], z)


class _Open:
    """A spike that is not over: the trend it left, and the excess at which it is told."""

    def __init__(self, since: int, level: float, gate: float) -> None:
        self.since = since
        self.level = level
        self.gate = gate
        self.points = 1
        self.top = level

    def lasts(self, z: float) -> bool:
        self.points += 1
        self.top = max(self.top, z)
        return z - self.level > self.gate / 2 and self.points <= thresholds.SPIKE_POINTS


class Spike:
    """Warns where the loss is above its trend by more than its noise explains: slowly (Shiryaev–Roberts over
    whitened ranks, one false alarm in 1e5 points at most, and large enough to matter) or at once (two of three points).

    Score: the weaker of evidence and size, in units of what alerts. Nothing is learnt from a spike while it lasts;
    after 64 points it is the new level. 64 points after a known change (learning rate, batch size, resume) are learnt
    from and not judged.
    """

    name = "spike"
    needs: tuple[str, ...] = ("loss", "learning_rate")

    def __init__(self) -> None:
        self._rate = nan
        self._start()

    def _start(self) -> None:
        self._step = -1
        self._muted = 0
        self._score = 0.0
        self._open: _Open | None = None
        self._learn_afresh()

    def _learn_afresh(self) -> None:
        self._last: tuple[float, ...] = ()
        """Rises of the last four points."""
        self._trend, self._jump = _Trend(), _Jump()
        self._white, self._sums = Whitened(), ShiryaevRoberts()
        self._rises = Window(WINDOW)
        self._began = -1

    def notice(self, event: Event) -> None:
        """After a resume, or with another batch size, another level or noise is no news."""
        if event.kind in (RESUME, BATCH_SIZE):
            self._change()

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]."""
        z = log_loss(snapshot)
        if isfinite(z):
            if snapshot.step < self._step:
                self._start()  # a restart: another run begins in the same log
            self._step = snapshot.step
            self._read_rate(snapshot.scalar("learning_rate"))
            self._score = self._judge_open(self._open, z) if self._open else self._judge(z)
        return of_the_model(self._score, snapshot)

    def explain(self, site: int) -> Finding:
        """From which level, and how high."""
        spike = self._open
        assert spike is not None, "asked without an alert"
        level, top, since = exp(spike.level), exp(spike.top), spike.since
        return Finding(
            severity="warning",
            action=f"has a loss spike: {top:.4g} where {level:.4g} was to be expected, since step {since}. Let it run "
            "for now; if the loss is not back within some 50 points, go back to a checkpoint from before it",
            cause="An update was too large, or the batches changed; most spikes heal by themselves.",
            remedies=(
                f"Look at the batches of step {since} and the few before it.",
                "Clip gradients at 1, or lower Adam's beta2 to .95.",
                "If they come again: cut the learning rate to two thirds.",
            ),
            evidence={"loss": top, "expected_loss": level, "excess": spike.top - spike.level},
            since=since,
        )

    def _read_rate(self, rate: float) -> None:
        if rate > 0:
            if abs(log(rate / self._rate)) > thresholds.CHANGE:
                self._change()
            self._rate = rate

    def _change(self) -> None:
        self._muted = thresholds.CHANGE_POINTS

    def _judge_open(self, spike: _Open, z: float) -> float:
        if spike.lasts(z):
            return max((z - spike.level) / spike.gate, 1.0)
        if spike.points > thresholds.SPIKE_POINTS:
            self._learn_afresh()
        self._open = None
        self._sums.forget()
        return 0.0

    def _judge(self, z: float) -> float:
        excess = self._trend.excess(z)
        score = self._judge_excess(z, excess) if isfinite(excess) else 0.0
        if self._open is None:
            self._trend.push(z)
            self._jump.push(z)
        return score

    def _judge_excess(self, z: float, excess: float) -> float:
        residual = self._white.residual(excess)
        # A fall that slows down is an excess over its trend too, but no rise.
        rise = min(z - self._trend.level, excess)
        score = 0.0
        if self._muted:
            self._muted -= 1
        elif len(self._rises) >= LEAST_RISES and self._step >= thresholds.EARLY_STEPS:
            self._sums.bet(residual, tie(self._step))
            score = self._weigh(z, rise)
        if self._open is None:
            self._white.push(excess)
            self._sums.push(residual)
            self._remember(rise)
        return score

    def _remember(self, rise: float) -> None:
        """The last four points are not held against themselves: a spike must not raise its own bar."""
        if len(self._last) == thresholds.SPIKE_MEAN:
            self._rises.push(self._last[0])
        self._last = (*self._last[1 - thresholds.SPIKE_MEAN :], rise)

    def _weigh(self, z: float, rise: float) -> float:
        last = (*self._last[1 - thresholds.SPIKE_MEAN :], rise)
        tail = self._rises.quantile(thresholds.SPIKE_QUANTILE)
        size = max(thresholds.SPIKE_SPREADS * self._rises.spread, thresholds.SPIKE_LEAST, tail)
        jump = max(thresholds.JUMP_NOISE * self._jump.noise, thresholds.JUMP_LEAST, thresholds.JUMP_TAILS * tail)
        if self._sums.evidence <= 1:
            self._began = self._step
        evidence = self._sums.evidence / thresholds.RUN_LENGTH
        slow = min(evidence, sum(last) / len(last) / size)
        fast = self._jump.rise(z) / jump
        if max(slow, fast) >= 1:
            since = self._began if slow >= 1 else self._step
            self._open = _Open(since, self._trend.level, size if slow >= 1 else jump)
            self._open.top = z
        return max(slow, fast, 0.0)
