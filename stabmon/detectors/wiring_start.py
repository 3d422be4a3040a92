"""What the first step tells of a model as it was built: its residual sums, the size of its weights, its final norm."""

from __future__ import annotations

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors.thresholds import wiring as thresholds
from stabmon.records import Finding, Severity, Site, Snapshot

_BEFORE = ("pre", "parallel")


class Start:
    """Judged on the first step's norm inputs, which know nothing of training; told once the run is known to start from
    untrained weights, at info where that is never known: no targets, or gammas that are not 1.
    """

    def __init__(self) -> None:
        self.finding: Finding | None = None
        self.unseen_norms = False
        """Whether there are norms that are no layers: a final one may be among them."""
        self._suspect: Finding | None = None

    def read(self, snapshot: Snapshot) -> None:
        if snapshot.step == 1:
            self._suspect = self._judge(snapshot)
        if snapshot.step >= thresholds.ORIGIN_STEP and self.finding is None:
            self.finding = self._suspect

    def _judge(self, snapshot: Snapshot) -> Finding | None:
        sites, n = snapshot.layout.sites_of("norm_input_msq"), snapshot["norm_input_msq"]
        if not sites or not np.isfinite(n).all():
            return None
        scale = _scales(snapshot)
        low, high = thresholds.UNTRAINED_SCALE
        untrained = bool(((scale >= low) & (scale <= high) | np.isnan(scale)).all())
        severity: Severity = "warning" if untrained and snapshot.scalar("unigram_loss") > 0 else "info"
        found = _streams(sites, n, severity) or _after_sums(sites, n, scale, severity)
        return found or (None if self.unseen_norms else _final(sites))


def _streams(sites: tuple[Site, ...], n: Array, severity: Severity) -> Finding | None:
    """Norms before their branch: the stream's own length, sub-layer by sub-layer."""
    on = [i for i, site in enumerate(sites) if site.placement in (*_BEFORE, "final")]
    if len(on) < 2 or not any(sites[i].placement in _BEFORE for i in on):
        return None
    now, before = n[on[1:]].astype(float), n[on[:-1]].astype(float)
    added, growth = now - before, now / np.maximum(before, 1e-30)
    large = (added > thresholds.BRANCH) & (growth > thresholds.BRANCH_GROWTH)
    falls = growth < thresholds.SUM_FALLS
    if large.any():
        first = int(np.argmax(large))
        return _too_large(sites[on[first + 1]], float(added[first]), severity)
    if falls.sum() >= max(thresholds.SUM_FALLS_LEAST, thresholds.SUM_FALLS_SHARE * len(falls)):
        evidence = {
            "falls": float(falls.sum()),
            "norms": float(len(on)),
            "norm_input_growth": float(growth[falls].min()),
        }
        why = "its stream gets shorter from one norm to the next, which a sum of what came in and a new branch does not"
        return _no_residual(sites[on[int(np.argmax(falls)) + 1]], why, evidence, severity)
    return None


def _after_sums(sites: tuple[Site, ...], n: Array, scale: Array, severity: Severity) -> Finding | None:
    """Norms after a sum whose first part is the output of the norm before."""
    on = [i for i, site in enumerate(sites) if site.placement == "post"]
    if len(on) < 4:
        return None
    relative = n[on[1:]] / np.maximum(scale[on[:-1]], 1e-30)
    middle = float(np.median(relative))
    if middle > thresholds.BRANCH:
        return _too_large(sites[on[1 + int(np.argmax(relative))]], middle, severity)
    if middle < thresholds.POST_SUM:
        why = "its norms' inputs are smaller than what comes in by the residual connection alone would make them"
        return _no_residual(sites[on[1]], why, {"norm_input_over_trunk": middle, "norms": float(len(on))}, severity)
    return None


def _scales(snapshot: Snapshot) -> Array:
    """Mean square of each norm's gamma: the mean square of what it puts out."""
    gain, var = snapshot["norm_gain"], snapshot["norm_input_var"]
    known = gain.size == snapshot["norm_input_msq"].size == var.size
    return gain**2 * var if known else np.ones_like(snapshot["norm_input_msq"])


def _too_large(site: Site, added: float, severity: Severity) -> Finding:
    return Finding(
        severity=severity,
        action=f"is initialised too large: at step 1 a sub-layer adds {added:.0f} per feature to a stream whose norms "
        "put out 1. Stop it and check the initialisation; what it learns first is to undo that",
        cause="The weights of a sub-layer (values, output, feed-forward) start several times too large: its output "
        "should be about as large as its input, or smaller.",
        remedies=(
            "Print each matrix's standard deviation: 1/sqrt(fan_in) is usual, .02 in GPT-2, over sqrt(2 x layers) for "
            "those that write into the stream.",
            "Look for an initialisation that is applied twice, multiplied, or given the standard deviation as a "
            "variance.",
            "If it is meant, scale the branches down (DeepNorm, LayerScale).",
        ),
        evidence={"added_msq": added},
        since=1,
        site=site,
        ruled_out=("growth by training: it is so before the first update",),
    )


def _no_residual(site: Site, why: str, evidence: dict[str, float], severity: Severity) -> Finding:
    return Finding(
        severity=severity,
        action="has no working residual connection: what comes into its blocks is not added to what they put out. Stop "
        "it and look at forward(); without the sum depth only loses information",
        cause=f"At step 1 {why}.",
        remedies=(
            "Look for `x = f(norm(x))` where `x = x + f(norm(x))` was meant, and for a mask or a gate that is 0.",
            "Perturb a block's input and see whether its output moves along with it.",
            "If blocks are meant to have none, leave this detector out.",
        ),
        evidence=evidence,
        since=1,
        site=site,
        ruled_out=("a collapse by training: it is so before the first update",),
    )


def _final(sites: tuple[Site, ...]) -> Finding | None:
    placed = [site.placement for site in sites if site.layer is not None]
    if "final" in placed or "pre" not in placed or any(site.placement == "final" for site in sites):
        return None
    blocks = [kind for kind in placed if kind not in ("inner", "embedding")]
    if len(blocks) < 4 or any(kind != "pre" for kind in blocks):
        return None
    last = [site for site in sites if site.placement == "pre"][-1]
    return Finding(
        severity="info",
        action="has Pre-LN blocks and no norm after the last one. Add a final norm if that is not meant: nothing holds "
        "the size of what the head is given",
        cause="In Pre-LN every branch adds to the stream, whose size grows with depth and in training; the final norm "
        "is what divides it away before the head.",
        remedies=(
            "Put a LayerNorm or RMSNorm between the last block and the head.",
            "If it is there but not a layer, or left out by `exclude`, nothing is wrong.",
        ),
        evidence={"pre_norms": float(len(blocks))},
        since=1,
        site=last,
        ruled_out=("a placement that is not known: all norms in blocks were found to sit before their branch",),
    )
