"""The residual stream growing faster than training explains: first norm inputs, then the update, then the loss.

A large norm input is no fault (one of 8,190 trains fine); sustained super-polynomial growth is. Weights that drift
in one direction give n ~ t^2 and a random walk n ~ t, so p = d ln n / d ln t stays at 2.3 or less in healthy runs.
"""

from __future__ import annotations

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors import words
from stabmon.detectors.slope import Floats, theil_sen
from stabmon.records import Finding, Snapshot

# Largest p of 24 runs without a fault: 2.3; the runaway one passed 3 a hundred and thirty steps before its loss broke.
EXPONENT = 3.0
HOLD_STEPS = 30
HOLD_SHARE = 0.2
# Pre-LN's first updates make n x5 within ten steps and settle by step 30.
FIRST_STEP = 50
WINDOW = 1.4
READINGS = 4
SPACING = 1.01
# A plateau's end moves norm inputs by x3 within a window, between values of 2 and 6: that is no blow-up yet.
GROWN = 10.0
# On the fixed probe a single trust ratio is noise (-1 to 5 in a healthy run); two low ones in a row are not.
TRUST = 0.3
SHOCK = 0.2


class _Clock:
    """Time that growth is measured in: steps, those of the warm-up counted by the learning rate they had.

    n follows the way that weights have gone, so a warm-up alone would give n ~ t^4. What the learning rate does
    after the warm-up does not count: a ramp that blows the stream up is a fault.
    """

    STEADY = 5

    def __init__(self) -> None:
        self.now = 0.0
        self.rate: float | None = None
        self._top = 0.0
        self._steady = 0
        self._step = 0

    def tick(self, snapshot: Snapshot) -> None:
        rate = snapshot.scalar("learning_rate")
        if np.isfinite(rate):
            self.rate = rate
            if self._steady < self.STEADY:
                self._steady = 0 if rate > self._top else self._steady + 1
                self._top = max(self._top, rate)
        elif not snapshot["learning_rate"].size:
            self._top = 1.0  # nobody gives one: plain steps
        if self._top > 0:
            self.now += (snapshot.step - self._step) * self._top
            self._step = snapshot.step


class ResidualBlowup:
    """Warns of a norm whose input grows as step^p with p > 3 for long; critical once updates overshoot as well.

    Score: p / 3.
    """

    name = "residual_blowup"
    needs: tuple[str, ...] = ("norm_input_msq", "learning_rate", "trust_ratio", "output_change_kl")

    def __init__(self) -> None:
        self._clock = _Clock()
        self._step = 0
        self._times: list[float] = []
        self._logs: list[Floats] = []
        self._first: Floats = np.array([])
        self._exponent: Floats = np.array([])
        self._hot: Floats = np.array([])
        self._overshoot: dict[str, float] = {}
        self._overshot = -1
        """Last step at which an update overshot; of two in a row that the trust ratio shows, the first."""
        self._distrusted: int | None = None

    def score(self, snapshot: Snapshot) -> Array:
        """float32[norm]."""
        values = snapshot["norm_input_msq"].astype(np.float64)
        if len(values) != len(self._exponent):
            self._start(len(values))
        self._clock.tick(snapshot)
        self._read_update(snapshot)
        if np.isfinite(values).any() and self._clock.now > 0:
            self._step = snapshot.step
            self._add(np.log(np.where(np.isfinite(values) & (values > 0), values, np.nan)))
            self._judge()
        return self._scores()

    def explain(self, site: int) -> Finding:
        """How fast that norm's input grows, and whether updates overshoot."""
        since, exponent = int(self._hot[site]), float(self._exponent[site])
        overshoots = self._overshot >= since
        rate = self._clock.rate
        slower = words.slower(rate or 0, 10)
        cost = (
            "updates overshoot already: few steps are left" if overshoots else "the loss breaks within some 100 steps"
        )
        return Finding(
            severity="critical" if overshoots else "warning",
            action=f"is blowing up: a norm's input grows as step^{exponent:.1f} since step {since}. Cut to {slower} "
            f"now, or go back to before step {since}; {cost}",
            cause="The residual stream grows faster than any steady drift of the weights (step^2) explains; the final "
            "norm scales it away, so neither the loss nor the gradient shows it yet.",
            remedies=(
                f"Cut the learning rate x10 to {slower}, or end the ramp it is on.",
                f"Roll back to a checkpoint before step {since}, and go on at a third of the learning rate.",
                "Put weight decay on the matrices that write into the stream, or scale them by 1/sqrt(2 x layers).",
                "Use a norm on both sides of each sub-layer (Peri-LN).",
            ),
            evidence={
                "norm_input_msq": float(np.exp(self._logs[-1][site])),
                "growth_exponent": exponent,
                **self._overshoot,
                **({} if rate is None else {"learning_rate": rate}),
            },
            since=since,
        )

    def _start(self, sites: int) -> None:
        self._times, self._logs = [], []
        self._first = np.full(sites, np.nan)
        self._exponent = np.full(sites, np.nan)
        self._hot = np.full(sites, np.nan)

    def _read_update(self, snapshot: Snapshot) -> None:
        now = {name: snapshot.scalar(name) for name in ("trust_ratio", "output_change_kl")}
        read = {name: value for name, value in now.items() if np.isfinite(value)}
        self._overshoot |= read
        if read.get("output_change_kl", 0.0) > SHOCK:
            self._overshot = snapshot.step
        if "trust_ratio" in read:
            low = read["trust_ratio"] < TRUST
            if low and self._distrusted is not None:
                self._overshot = max(self._overshot, self._distrusted)
            self._distrusted = snapshot.step if low else None

    def _add(self, logs: Floats) -> None:
        self._first = np.where(np.isnan(self._first), logs, self._first)
        if len(self._times) > 1 and self._times[-1] < SPACING * self._times[-2]:
            self._times.pop()
            self._logs.pop()
        self._times.append(self._clock.now)
        self._logs.append(logs)
        while len(self._times) > READINGS and self._times[0] < self._clock.now / WINDOW:
            self._times.pop(0)
            self._logs.pop(0)

    def _judge(self) -> None:
        if self._step < FIRST_STEP or len(self._times) < READINGS:
            return
        exponent = theil_sen(np.log(self._times), np.array(self._logs))
        known = np.isfinite(exponent)
        self._exponent = np.where(known, exponent, self._exponent)
        hot = (self._exponent > EXPONENT) & (self._logs[-1] - self._first > np.log(GROWN))
        since = np.where(np.isnan(self._hot), self._step, self._hot)
        self._hot = np.where(known, np.where(hot, since, np.nan), self._hot)

    def _scores(self) -> Array:
        score = np.nan_to_num(self._exponent) / EXPONENT
        hold = min(HOLD_STEPS, HOLD_SHARE * self._step)
        lasting = self._step - self._hot >= hold
        return np.where(lasting, np.maximum(score, 1), np.clip(score, 0, 0.99)).astype(np.float32)
