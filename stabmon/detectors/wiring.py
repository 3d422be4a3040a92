"""Faults of the implementation, that show in the first steps: a model or a loop that is not put together as meant.

A few rules, each with its own reading, none of which a healthy family breaks. Silent for runs that start from
pretrained weights, and about anything that begins later.
"""

from __future__ import annotations

from math import isnan
from typing import Protocol

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors.arrays import of_the_model
from stabmon.detectors.thresholds import wiring as thresholds
from stabmon.detectors.wiring_start import Start
from stabmon.detectors.wiring_steps import Kept, Uncorrected, Unmoved
from stabmon.detectors.wiring_targets import Leak
from stabmon.records import ARCHITECTURE, LEAK, NOT_SEEN, SEVERITIES, Event, Finding, Snapshot


class Check(Protocol):
    """One rule."""

    finding: Finding | None
    """What is wrong; None: nothing, or not yet known."""

    def read(self, snapshot: Snapshot) -> None: ...


class Wiring:
    """Warns of parts that do not learn, gradients that are not zeroed, Adam without bias correction, weights that
    start too large, a missing residual connection, a model that looks at its targets; tells (info) of a missing final
    norm and of data known by heart. The first of the most severe is told; after step 1,000 nothing is looked for that
    was not found by then.

    Score: 1 where there is one.
    """

    name = "wiring"
    needs: tuple[str, ...] = (
        "loss",
        "unigram_loss",
        "bigram_loss",
        "uniform_loss",
        "pretrained",
        "learning_rate",
        "norm_input_msq",
        "norm_input_var",
        "norm_gain",
        "total_grad_norm",
        "skipped_steps",
        "grad_norm",
        "intended_update_norm",
        "adam_update_rms",
    )

    def __init__(self) -> None:
        self._start = Start()
        self._leak = Leak()
        self._checks: tuple[Check, ...] = (self._leak, Unmoved(), Kept(), Uncorrected(), self._start)
        self._found: Finding | None = None
        self._mute = False

    def notice(self, event: Event) -> None:
        """What is known after the first step: whether the model was seen to look ahead, and whether it has norms that
        are no layers, of which one may be the final norm. In masked text looking ahead is no fault.
        """
        if event.kind == NOT_SEEN and event.detail.get("what") == LEAK:
            self._checks = tuple(check for check in self._checks if check is not self._leak)
        if event.kind == ARCHITECTURE:
            self._start.unseen_norms |= bool(event.detail.get("not_seen"))
            ahead = event.detail.get("looks_ahead")
            if ahead is not None:
                self._leak.ahead = ahead == 1

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]: it judges the whole model."""
        if not isnan(snapshot.scalar("loss")) or not np.isnan(snapshot.values).all():
            self._read(snapshot)
        return of_the_model(float(self._found is not None), snapshot)

    def _read(self, snapshot: Snapshot) -> None:
        self._mute |= snapshot.scalar("pretrained") > 0
        if self._mute:
            self._found = None
            return
        if snapshot.step > thresholds.LAST_STEP:  # a fault that was found and not mended is one still
            self._checks = tuple(check for check in self._checks if check.finding and check.finding.severity != "info")
        for check in self._checks:
            check.read(snapshot)
        found = [check.finding for check in self._checks if check.finding]
        self._found = max(found, key=lambda finding: SEVERITIES.index(finding.severity), default=None)

    def explain(self, site: int) -> Finding:
        """The first of the most severe."""
        assert self._found is not None, "asked without an alert"
        return self._found
