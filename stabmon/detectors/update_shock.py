"""One update moves the output too far, or all of them are at the edge of what the curvature allows.

A trust ratio alone says little: on the fixed probe healthy runs have -7 to 35, under .3 in up to half of all readings.
How far the output moved (KL, nats) is steady; so that comes first, and the loss on the probe decides how bad it was.
"""

from __future__ import annotations

from math import inf, isnan, nan

from stabmon.catalog import Array
from stabmon.detectors.arrays import of_the_model
from stabmon.detectors.thresholds import updates as thresholds
from stabmon.detectors.update_aftermath import Aftermath
from stabmon.detectors.update_finding import Shock, Verdict, finding
from stabmon.detectors.update_readings import Reading, Updates
from stabmon.records import Finding, Snapshot


class UpdateShock:
    """A warning where one update moved the predictions far more than those before (over .2 nats, or 30 times the usual
    and over .1), or where two of three large ones kept less than .3 of what was promised. Critical where that one
    raised the probe's loss though its gradient promised a fall, and the losses of the batches after it are all over
    those before it; at once where the rise is over a nat. Info at the edge (five readings, median over .05 nats, .7
    kept), and where the first update of a Post-LN model changes the output by over half: that mostly stalls, of which
    context_stall knows ten steps later; with Pre-LN it is the rule, and passes.

    Score: the size in units of what alerts. While the loss falls by 15 % in twelve steps, a large update is how it
    learns: told of only once the losses after it have confirmed it. Where all tokens get nearly the same answer
    (context share under .1), it is an attempt to leave a plateau: told of only where it overshot.
    """

    name = "update_shock"
    needs: tuple[str, ...] = (
        "total_output_change_ratio",
        "output_change_kl",
        "actual_loss_change",
        "predicted_loss_change",
        "learning_rate",
        "pretrained",
        "context_share",
        "loss",
        "unigram_loss",
        "norm_input_msq",
    )

    def __init__(self) -> None:
        self._updates = Updates()
        self._aftermath = Aftermath()
        self._found: Shock | None = None
        self._score = 0.0
        self._before = nan
        """Learning rate at the last reading."""

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]."""
        self._aftermath.see(snapshot)
        if not isnan(snapshot.scalar("output_change_msq")):
            self._read(snapshot)
        return of_the_model(self._score, snapshot, "output_change_msq")

    def explain(self, site: int) -> Finding:
        """How far the update moved the output, and what the loss did."""
        assert self._found is not None, "asked without an alert"
        return finding(self._found, self._updates)

    def _read(self, snapshot: Snapshot) -> None:
        reading = _reading(snapshot)
        levels = self._updates.levels(reading)
        near, limit = levels.near, levels.limit
        shock = reading.size > limit and reading.step > thresholds.SETTLED_STEP
        self._updates.push(reading, shock)
        rate = snapshot.scalar("learning_rate")
        rate = rate if 0 < rate < inf else nan
        verdict = self._verdict(reading, shock, snapshot)
        usual = near if shock else levels.own
        found = Shock(verdict, snapshot.step, reading, usual, self._before, rate) if verdict else None
        confirmed = self._aftermath.confirmed()
        if found is not None and found.verdict == "shock":
            if reading.overshot:
                self._aftermath.suspects(found)
            if self._aftermath.learns:
                found = None
        self._found = confirmed or (found and found.after(self._found))
        self._score = max(self._found.reading.size / limit, 1.0) if self._found else 0.0
        self._before = rate

    def _verdict(self, reading: Reading, shock: bool, snapshot: Snapshot) -> Verdict | None:
        if shock and reading.exploded:
            return "overshot"
        if shock and (reading.overshot or not reading.plateau):
            return "shock"
        if self._updates.overshoots and not reading.plateau:
            return "overshoots"
        if self._updates.at_the_edge and not reading.plateau:
            return "edge"
        first = reading.step <= thresholds.FIRST_STEP and reading.change > thresholds.FIRST_CHANGE
        return "first" if first and _post(snapshot) and not snapshot.scalar("pretrained") > 0 else None


def _reading(snapshot: Snapshot) -> Reading:
    return Reading(
        snapshot.step,
        change=snapshot.scalar("total_output_change_ratio"),
        kl=snapshot.scalar("output_change_kl"),
        actual=snapshot.scalar("actual_loss_change"),
        predicted=snapshot.scalar("predicted_loss_change"),
        plateau=snapshot.scalar("context_share") < thresholds.PLATEAU_SHARE,
    )


def _post(snapshot: Snapshot) -> bool:
    return any(site.placement == "post" for site in snapshot.layout.sites_of("norm_input_msq"))
