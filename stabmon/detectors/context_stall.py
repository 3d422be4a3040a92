"""The stall: all tokens get the same answer, the loss sits at the unigram entropy, and nothing looks wrong.

Level first, then slope and baselines decide. s is the context share, the part of the output's variance that depends
on the position. It also falls where there is nothing to learn from context, and for a while in runs that escape.
"""

from __future__ import annotations

from math import log

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors import words
from stabmon.detectors.stall_readings import SHARE_FLOOR, Depth, Share, Task
from stabmon.records import Finding, Severity, Snapshot

# Stalled runs are under 1e-4 by step 10 to 20. Healthy ones keep above 1e-3 (Pre-LN's early dip: .005), but for hot
# learning rates (1e-2: 6e-5 for 15 steps).
COLLAPSED = 1e-4
RECOVERED = 1e-3
# Steps under a level after which nothing turned up any more at that learning rate. Runs on real text that did turn had
# been at 6e-6 (lr 5e-4) and at 2.3e-7 (7e-4; under 1e-6 and falling for 45 steps); those that did not (1e-3) were at
# 5e-8 by step 30. On Markov data a stall may stay over 1e-7 for 150 steps, but falls by .02 a step all the time.
LOST = 1e-7
LOST_STEPS = 15
LOW = 1e-6
FALLING = -0.01
LOW_STEPS = 60
# Where the lowest block still gets its gradient, s may dip for a few steps (Pre-LN at lr 1e-2: 15).
DOUBTED_STEPS = 25
# Below this a rise may be float32 noise, or an attempt that fails (1e-8 -> 3e-8 -> 1e-13 was seen).
FORECAST = 1e-7
RISING = 0.005
RISING_STEPS = 20
FIRST_STEP = 10
# After a cut of the learning rate by x10 at step 30, s was seen to turn up only 420 to 520 steps later.
CUT_STEPS = 60
# Dropout noise holds the training forward's s up; the probe's, in eval mode, then tells. Without dropout the two
# differ too (last norm against logits), by up to x8.
FLOORED = 0.03


class ContextStall:
    """Warns of a collapse of the context share, calls it critical when it will not resolve at this learning rate,
    and eases to info, with the most steps it can take, when it will. Silent where context is worth nothing.

    Score: ln s / ln 1e-4, so 1 at s = 1e-4 and 2 at 1e-8.
    """

    name = "context_stall"
    needs: tuple[str, ...] = (
        "context_share",
        "probe_context_share",
        "loss",
        "unigram_loss",
        "bigram_loss",
        "pretrained",
        "learning_rate",
        "token_similarity",
        "grad_norm",
    )

    def __init__(self) -> None:
        self._trained, self._probed = Share(), Share()
        self._task, self._depth = Task(), Depth()
        self._floored = False
        self._step = 0
        self._top_rate = float("nan")
        """Highest learning rate since it was last halved: a decay, or a cut by hand."""
        self._cut = (0, 0)
        self._since: int | None = None
        self._rising: int | None = None
        self._low: int | None = None
        self._lost: int | None = None
        self._verdict: Severity | None = None
        self._slope = float("nan")

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]: it judges the whole model."""
        if self._read(snapshot):
            self._judge()
        return np.full(len(snapshot["context_share"]), self._score(), np.float32)

    def _score(self) -> float:
        if self._step < FIRST_STEP or not self._share.logs:
            return 0.0
        depth = log(max(self._share.last, SHARE_FLOOR)) / log(COLLAPSED)
        return max(depth, 1.0) if self._verdict else min(max(depth, 0.0), 0.99)

    @property
    def _share(self) -> Share:
        return self._probed if self._floored else self._trained

    def _read(self, snapshot: Snapshot) -> bool:
        """Take the readings in; whether the share that is judged is among them."""
        trained, probed = snapshot.scalar("context_share"), snapshot.scalar("probe_context_share")
        self._read_rate(snapshot)
        self._task.read(snapshot)
        self._depth.read(snapshot)
        if np.isfinite(trained):
            self._trained.add(snapshot.step, trained)
        if np.isfinite(probed):
            self._probed.add(snapshot.step, probed)
        if np.isfinite(trained) and np.isfinite(probed):
            self._floored = trained > COLLAPSED and probed < FLOORED * trained
        read = bool(np.isfinite(probed if self._floored else trained))
        if read:
            self._step = snapshot.step
        return read

    def _read_rate(self, snapshot: Snapshot) -> None:
        rate = snapshot.scalar("learning_rate")
        if not np.isfinite(rate):
            return
        if not self._top_rate >= rate:
            self._top_rate = rate
        if rate < self._top_rate / 2:
            # A slower run also turns slower: what it is worth waiting grows as the rate shrinks.
            self._cut = (snapshot.step, snapshot.step + round(CUT_STEPS * self._top_rate / max(rate, SHARE_FLOOR)))
            self._top_rate = rate
            self._verdict = "warning" if self._verdict == "critical" else self._verdict
            self._rising = self._low = self._lost = None
            self._trained.restart()
            self._probed.restart()

    def _judge(self) -> None:
        share = self._share
        if self._step < FIRST_STEP:
            return
        if share.below(COLLAPSED) and self._since is None:
            self._since = next(s for s, x in zip(share.steps, share.logs, strict=True) if x < log(COLLAPSED))
        limit = COLLAPSED if self._verdict is None else RECOVERED
        if not share.last <= limit or self._task.quiet:
            self._verdict = self._since = None
            return
        slope = share.slope()
        if self._since is None or np.isnan(slope):
            return
        self._slope = slope
        self._rising = (self._rising or self._step) if slope > RISING else None
        self._low = (self._low or self._step) if slope <= FALLING and share.below(LOW) else None
        self._lost = (self._lost or self._step) if slope <= 0 and share.below(LOST) else None
        self._verdict = self._severity()

    def _severity(self) -> Severity | None:
        if self._rising is not None:
            sure = self._lasts(self._rising, RISING_STEPS) and self._share.last > FORECAST
            return "info" if sure and self._verdict else self._verdict
        known = np.isfinite(self._task.gap)
        if self._verdict == "critical" and known:
            return "critical"
        agrees = self._depth.agrees(self._floored)
        if self._verdict is None and not agrees and not self._lasts(self._since, DOUBTED_STEPS):
            return None
        gone = self._lasts(self._lost, LOST_STEPS) or self._lasts(self._low, LOW_STEPS)
        return "critical" if known and gone and not self._waiting and agrees else "warning"

    @property
    def _waiting(self) -> bool:
        """Whether the learning rate was cut too short a time ago to say that it does not help."""
        return self._step < self._cut[1]

    def _lasts(self, since: int | None, steps: int) -> bool:
        return since is not None and self._step - since >= steps

    def explain(self, site: int) -> Finding:
        """What was measured, what it rules out, what to do. `site` is where the tokens are most alike."""
        assert self._verdict is not None, "asked without an alert"
        assert self._since is not None, "a verdict has a beginning"
        return Finding(
            severity=self._verdict,
            action=self._action(self._verdict, self._since),
            cause=self._cause(self._verdict),
            remedies=_WAIT if self._verdict == "info" else self._remedies(),
            evidence=self._evidence(),
            since=self._since,
            site=self._depth.site,
        )

    def _action(self, verdict: Severity, since: int) -> str:
        same = f"every token gets the same answer since step {since}"
        if verdict == "info":
            return f"is on a plateau that ends in at most {self._eta()} steps. Let it run: {same}, but ever less so"
        lost = self._step - since
        cost = "nothing is lost yet" if self._step <= 100 else f"{lost} steps are lost, and so is every further one"
        if self._task.fell_back:
            return f"has lost what it had learnt: {same}. Go back to a checkpoint before step {since}; {cost}"
        if self._waiting:
            at, until = self._cut
            return f"is not learning yet: {same}. Wait for the cut of step {at} until step {until}; {cost}"
        rate = f"lr {words.rate(self._top_rate)}" if self._top_rate > 0 else "this learning rate"
        start = f"will not learn at {rate}" if verdict == "critical" else "is not learning"
        return f"{start}: {same}. Restart with {words.slower(self._top_rate, 3)} or warm-up; {cost}"

    def _cause(self, verdict: Severity) -> str:
        known = (
            f"there is something to learn (the left neighbour alone is worth {self._task.gap:.2f} nats)"
            if np.isfinite(self._task.gap)
            else "whether there is anything to learn is unknown (no targets were given)"
        )
        trend = {
            "info": "It is growing back",
            "warning": "It is not growing back",
            "critical": "It is too small to grow back at this learning rate",
        }[verdict]
        how = (
            "An update was too large and drowned"
            if self._task.fell_back
            else "The first updates moved all positions alike and drowned"
        )
        return f"{how} what tells the positions apart. {trend}, and {known}."

    def _remedies(self) -> tuple[str, ...]:
        return (
            f"Cut the learning rate x10 now, to {words.slower(self._top_rate, 10)}: cut at step 5 such a run left its "
            "plateau at step 360, cut at step 30 only at 920.",
            f"Restart with a warm-up of 300 steps or more, or with {words.slower(self._top_rate, 3)}.",
            "Use Pre-LN, or DeepNorm's initialisation and residual scale.",
        )

    def _eta(self) -> int:
        return max(1, round(log(0.1 / self._share.last) / self._slope))

    def _evidence(self) -> dict[str, float]:
        values = {
            "probe_context_share" if self._floored else "context_share": self._share.last,
            "context_share_slope": self._slope,
            **self._task.losses,
            "loss_above_unigram": self._task.excess,
            "bigram_gap": self._task.gap,
            "token_similarity": self._depth.similarity,
            "lower_upper_grad_ratio": self._depth.ratio,
            "learning_rate": self._top_rate,
        }
        return {name: value for name, value in values.items() if np.isfinite(value)}


_WAIT = ("Let it run; stop it only if the plateau outlasts the forecast.", "A warm-up would shorten the next one.")
