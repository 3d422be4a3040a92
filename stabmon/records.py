"""The nouns: site, layout, snapshot, finding, alert, event. Frozen, no behaviour beyond look-up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Literal

import numpy as np

from stabmon.catalog import STATISTICS, Array

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
RunState = Literal["running", "finished", "failed", "stopped", "preempted"]
RUN_STATES: tuple[RunState, ...] = ("running", "finished", "failed", "stopped", "preempted")

RUNBOOKS = Path(__file__).parent / "detectors" / "runbooks"
"""A page for each detector of ours, `<name>.md`."""

PLACEMENTS = ("pre", "post", "sandwich", "res_post", "parallel", "embedding", "final", "inner")
"""
pre        before a branch, whose result is added to what came in (Pre-LN)
post       after that sum (Post-LN)
sandwich   before and after a branch (peri-LN: Gemma 2)
res_post   after a branch, before the sum (OLMo 2, Swin v2)
parallel   before several branches of one input (GPT-J)
embedding  outside the blocks: before the first, or between the stages of one stack
final      outside the blocks, after the last of a stack
inner      inside a branch: of queries and keys, of a latent, between two layers
"""

PART_FAILED = "part_failed"
"""Kind of the event that a part was dropped because it raised; detail: `part`, `error`."""
DROPPED_ROWS = "dropped_rows"
"""Kind of the event that steps were lost on their way to the host; detail: `count`."""
RESUME = "resume"
"""Kind of the event that the run went on after a stop; detail: `at`, the step it went on from."""
BATCH_SIZE = "batch_size"
"""Kind of the event that steps have another number of tokens or samples from here on; detail: `size`."""
ARCHITECTURE = "architecture"
"""Kind of the event that the model is known, after its first step; detail: `description`, `tokens`, `not_seen`,
`looks_ahead`."""
PRETRAINED = "pretrained"
"""Kind of the event that the run was found to start from weights that had learnt before; detail: `why`."""
EVALUATION = "evaluation"
"""Kind of the event that an evaluation ended; detail: `eval_loss`."""
NOT_SEEN = "not_seen"
"""Kind of the event that something cannot be looked at; detail: `what`, `why`, `todo`."""
CHECKPOINT = "checkpoint"
"""Kind of the event that a checkpoint of that step was written; detail: `name`, and `gone`: steps of those that
were deleted since the last one, separated by blanks."""
PLANNED = "planned"
"""Kind of the event that tells how many steps the run is to have; detail: `steps`."""
LEAK = "whether the model looks at its targets"
"""What is not seen in masked text."""

MarkKind = Literal["acknowledged", "muted", "false_alarm", "none"]
"""What a person said of an alert; none: took it back."""


def figure(value: float, digits: int = 4) -> str:
    """A number as people read it. Of one that is not finite it is not kept whether it was NaN or Inf."""
    return f"{value:.{digits}g}" if isfinite(value) else "not finite"


@dataclass(frozen=True, slots=True)
class Site:
    """Where a number is taken. `name` is the module's qualified name; "" is the whole model."""

    name: str
    layer: int | None = None
    """Number of the block it lies in, in forward order; None outside the blocks (embedding, head)."""
    role: str = ""
    """What it is inside its block, short, lower snake case: `ln_1`, `final`, `block`, `embedding`."""
    placement: str = ""
    """Of a norm: one of PLACEMENTS; "" = not known."""

    @property
    def layer_label(self) -> str:
        """Zero-padded, so that strings sort in forward order; "" outside the blocks."""
        return "" if self.layer is None else f"{self.layer:03d}"


@dataclass(frozen=True)
class Layout:
    """Slot -> (statistic, site). Fixed for a segment of a run; a changed model starts a new one."""

    columns: tuple[tuple[str, str], ...]
    sites: tuple[Site, ...]

    def __post_init__(self) -> None:
        unknown = sorted({s for s, _ in self.columns} - set(STATISTICS))
        assert not unknown, f"not in the catalog: {unknown}"

    @cached_property
    def _by_name(self) -> dict[str, Site]:
        return {site.name: site for site in self.sites}

    @cached_property
    def _slots(self) -> dict[str, np.ndarray[tuple[int], np.dtype[np.intp]]]:
        found: dict[str, list[int]] = {}
        for slot, (statistic, _) in enumerate(self.columns):
            found.setdefault(statistic, []).append(slot)
        return {name: np.array(slots, dtype=np.intp) for name, slots in found.items()}

    @cached_property
    def first_slots(self) -> dict[str, int]:
        """Of each stored statistic."""
        return {name: int(slots[0]) for name, slots in self._slots.items()}

    @cached_property
    def _sites(self) -> dict[str, tuple[Site, ...]]:
        return {name: tuple(self.site(self.columns[i][1]) for i in slots) for name, slots in self._slots.items()}

    @cached_property
    def scalar_slots(self) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """Slots of the whole model (site ""); the rest are per layer."""
        return np.array([i for i, (_, site) in enumerate(self.columns) if site == ""], dtype=np.intp)

    @cached_property
    def sampled_slots(self) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """Slots of statistics that are taken at layers, one without a name of its own (site "") too."""
        return np.array([i for i, (name, _) in enumerate(self.columns) if STATISTICS[name].scope != "model"], np.intp)

    @cached_property
    def layer_slots(self) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """Slots that belong to a layer."""
        return np.array([i for i, (_, site) in enumerate(self.columns) if site != ""], dtype=np.intp)

    def site(self, name: str) -> Site:
        """The site of that qualified name."""
        return self._by_name[name] if name else Site("")

    def slots(self, statistic: str) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """Where a stored statistic's values lie; empty if the layout has none."""
        return self._slots.get(statistic, _NONE)

    def sites_of(self, statistic: str) -> tuple[Site, ...]:
        """The sites at which a statistic (stored or derived) is taken, in slot order."""
        row = STATISTICS[statistic]
        return self.sites_of(row.of[0]) if row.of else self._sites.get(statistic, ())


_NONE = np.array([], dtype=np.intp)


@dataclass(frozen=True)
class Snapshot:
    """All values of one optimizer step, on the host.

    `snapshot[statistic]` is float32[site], aligned with `layout.sites_of(statistic)`; NaN = not read this step,
    Inf = read and not finite. An empty array: this layout has no such statistic.
    """

    step: int
    """Completed optimizer steps, this one included."""
    time: float
    """Unix seconds at the end of the step."""
    values: Array
    layout: Layout

    def __getitem__(self, statistic: str) -> Array:
        row = STATISTICS[statistic]
        if row.formula is None:
            return self.values[self.layout.slots(statistic)]
        parts = [self[part] for part in row.of]
        if any(part.size == 0 for part in parts):
            return np.array([], dtype=np.float32)
        return row.formula(*parts)

    @cached_property
    def layers_read(self) -> bool:
        """Whether anything was at a layer: in most steps nothing is, and many ask."""
        return not np.isnan(self.values[self.layout.sampled_slots]).all()

    def scalar(self, statistic: str) -> float:
        """The whole-model value; NaN if it was not read or the layout lacks it."""
        if (slot := self.layout.first_slots.get(statistic)) is not None:  # a third of the way below; asked all the time
            return self.values.item(slot)
        if STATISTICS[statistic].formula is None:
            return float("nan")
        values = self[statistic]
        return float(values[0]) if values.size else float("nan")


@dataclass(frozen=True, slots=True)
class Finding:
    """What a detector says of a site, when asked."""

    severity: Severity
    action: str
    """First line: what to do and what waiting costs, without the run's name ("is not learning: …. Restart with …")."""
    cause: str
    remedies: tuple[str, ...]
    """What a practitioner would try, in order."""
    evidence: Mapping[str, float]
    """Numbers behind it, by statistic or plain name."""
    since: int
    """Step at which it began."""
    site: Site | None = None
    """Where to look first, when a finding of the whole model has such a place; None = the site that was asked about."""
    ruled_out: tuple[str, ...] = ()
    """What else it might have been, and the reading that speaks against it, a phrase each."""


@dataclass(frozen=True, slots=True)
class Alert:
    """An incident began, changed its severity, or ended. One incident has one alert open, not one per layer."""

    run: str
    detector: str
    state: Literal["raised", "cleared"]
    severity: Severity
    step: int
    time: float
    since: int
    site: str
    layer: int | None
    score: float
    """1 is the alert line."""
    action: str
    cause: str = ""
    remedies: tuple[str, ...] = ()
    evidence: Mapping[str, float] = field(default_factory=dict)
    ruled_out: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """One detector tells of one thing a step; so it is the same in every replay."""
        return f"{self.detector}:{self.step}"

    @property
    def headline(self) -> str:
        """The first line a person reads: "<run> <action>"."""
        return f"{self.run} {self.action}"

    @property
    def message(self) -> str:
        """The whole text: headline, where and since when, evidence, cause, what was ruled out, remedies, runbook."""
        where = "" if self.layer is None else f", layer {self.layer} ({self.site})"
        lines = [self.headline]
        what = self.severity if self.state == "raised" else "over"
        lines.append(f"{what} · {self.detector} · step {self.step}, since step {self.since}{where}")
        if self.evidence:
            lines.append("Evidence: " + ", ".join(f"{k} {figure(v)}" for k, v in self.evidence.items()))
        if self.cause:
            lines.append(f"Cause: {self.cause}")
        if self.ruled_out:
            lines.append("Ruled out: " + "; ".join(self.ruled_out))
        lines += [f"{i}. {remedy}" for i, remedy in enumerate(self.remedies, 1)]
        if self.state == "raised" and (RUNBOOKS / f"{self.detector}.md").is_file():
            lines.append(f"Runbook: stabmon runbook {self.detector}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Event:
    """Something known that happened to the run: learning rate changed, evaluation, resume, dropped rows."""

    step: int
    time: float
    kind: str
    detail: Mapping[str, float | str]


@dataclass(frozen=True, slots=True)
class Run:
    """Who is being watched."""

    name: str
    started: float
    rank: int = 0
    world_size: int = 1
    framework: str = "torch"
    model: str = ""
    version: str = ""
    architecture: Mapping[str, float | str] = field(default_factory=dict)
    """What detectors may need to know of it, such as `parameters` or `pretrained`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The user's own, such as `team`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Those that are not left at their defaults, as text; no secrets."""
    environment: Mapping[str, float | str] = field(default_factory=dict)
    """What it runs on: versions, device, sizes."""
