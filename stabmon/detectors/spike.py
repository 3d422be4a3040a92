"""The loss jumps above its own trend."""

from __future__ import annotations

from math import exp, isfinite

from stabmon.catalog import Array
from stabmon.detectors import words
from stabmon.detectors.arrays import of_the_model
from stabmon.detectors.level import log_loss
from stabmon.detectors.rises import Rises
from stabmon.records import BATCH_SIZE, Event, Finding, Snapshot


class Spike:
    """Warns where the loss is above its trend by more than its noise explains: slowly (Shiryaev–Roberts over
    whitened ranks, one false alarm in 1e5 points at most, and large enough to matter) or at once (two of three points).

    Score: the weaker of evidence and size, in units of what alerts. Nothing is learnt from a spike while it lasts;
    after 64 points it is the new level. 64 points after a known change (learning rate, batch size) are learnt from and
    not judged. A resume is none: a loss that jumps there tells that something was not restored.
    """

    name = "spike"
    needs: tuple[str, ...] = ("loss", "learning_rate")

    def __init__(self) -> None:
        self._rises = Rises()
        self._score = 0.0

    def notice(self, event: Event) -> None:
        """With another batch size, another level or noise is no news."""
        if event.kind == BATCH_SIZE:
            self._rises.change()

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]."""
        z = log_loss(snapshot)
        if isfinite(z):
            self._score = self._rises.see(snapshot.step, z, snapshot.scalar("learning_rate"))
        return of_the_model(self._score, snapshot)

    def explain(self, site: int) -> Finding:
        """From which level, and how high."""
        spike = self._rises.open
        assert spike is not None, "asked without an alert"
        level, top, since = exp(spike.level), exp(spike.top), spike.since
        return Finding(
            severity="warning",
            action=f"has a loss spike: {top:.4g} where {level:.4g} was to be expected, since step {since}. Let it run "
            "for now; if the loss is not back within some 50 points, go back to a checkpoint from before it",
            cause="An update was too large, or the batches changed; most spikes heal by themselves.",
            remedies=(
                f"Look at the batches of step {since} and the few before it.",
                "Clip gradients at 1, or with Adam lower beta2 to .95.",
                "If they come again: cut the learning rate to two thirds.",
            ),
            evidence={"loss": top, "expected_loss": level, "excess": spike.top - spike.level},
            ruled_out=("one bad batch (two of three losses are high)", *_steady(self._rises.rate)),
            since=since,
        )


def _steady(rate: float) -> tuple[str, ...]:
    return (f"a jump of the learning rate ({words.rate(rate)}, as before)",) if isfinite(rate) else ()
