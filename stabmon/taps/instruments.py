"""All taps on one model: attached before its first forward, read once per optimizer step."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stabmon.catalog import Array
from stabmon.records import ARCHITECTURE, NOT_SEEN, PART_FAILED, Event, Layout, Site, Snapshot
from stabmon.settings import Settings
from stabmon.taps import Due, Tap
from stabmon.taps.baselines import Baselines
from stabmon.taps.compiled import Late, tracing
from stabmon.taps.gradients import Gradients
from stabmon.taps.levels import extra_taps
from stabmon.taps.loss import Loss
from stabmon.taps.model.anatomy import group_parameters
from stabmon.taps.model.architecture import Architecture, recognise
from stabmon.taps.model.origin import Origin
from stabmon.taps.newcomers import Newcomers
from stabmon.taps.notices import IN_PIECES, LATE, Notice
from stabmon.taps.optimizer.updates import Updates
from stabmon.taps.output_change import OutputChange
from stabmon.taps.pack import Pack
from stabmon.taps.parts import examine
from stabmon.taps.probe.sources import given_probe, source_of
from stabmon.taps.ranks.packing import Row
from stabmon.taps.ranks.shares import local_layout, unreadable
from stabmon.taps.ranks.together import Alone, Ranks

_log = logging.getLogger("stabmon")
_Result = TypeVar("_Result")
_HOST: Sequence[tuple[str, Site]] = tuple(
    (statistic, Site("")) for statistic in ("step_seconds", "monitor_seconds", "eval_loss")
)
"""What the caller knows of a step by itself."""


_UNWATCHED = (
    ". No forward of this model with gradients was seen at all: is it the one that the loop trains? Forwards inside "
    "torch.func's grad or vmap cannot be read"
)
_COMPILED = ". Compiled graphs of before do not know of stabmon: make the Monitor before the first forward"


class _Detached(Protocol):
    def detach(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Ticket:
    """What travels with a row: it is known on the host when the row is sent."""

    step: int
    time: float
    host: tuple[float, ...]
    layout: Layout
    flags: int
    """Values behind the row's own: on how many ranks each tap has failed."""


class Instruments:
    """Reads every tap, sends the packed vector off, and gives back the snapshots that have arrived.

    A tap that fails is logged once, dropped (its values are NaN from then on) and told as an event.
    """

    def __init__(
        self, model: nn.Module, optimizers: Sequence[Optimizer], settings: Settings, ranks: Ranks | None = None
    ) -> None:
        given = given_probe(model, settings)  # before any hook is attached: it may raise
        self._late = Late()
        self._parts = parts = examine(model, optimizers, settings)
        self.notices = parts.notices
        self._forward, self._norms, device = parts.forward, parts.norm_tap, parts.device
        self._ranks: Ranks = ranks or Alone(device)
        self._gradients = gradients = Gradients(parts.groups, optimizers, not self._ranks.alike, parts.notices)
        updates = Updates(parts.groups, optimizers)
        self._loss = Loss(self._forward, device)
        self._probe_given = given is not None
        source = source_of(given, parts, settings, lambda: self._first_targets)
        estimate = settings.level != "light"
        output = OutputChange(model, parts.parameters_of, source, updates.weights_before, estimate)
        self._taps: list[Tap] = [self._loss, self._norms, gradients, updates, output]
        self._taps += extra_taps(settings.level, parts)
        self.baselines = Baselines(self._forward, parts.notices)
        self.origin = Origin(model, parts.notices)
        self._newcomers = Newcomers(model, parts.notices)
        self.architecture = Architecture()
        """What the model is; known after the first step."""
        self._placement = settings.placement
        self._failed: set[str] = set()
        self._step = 0
        if why := unreadable(parts, self._ranks.alike):
            parts.notices.say(Notice(why, what="the output change of an update", why=f"{why[0].upper()}{why[1:]}."))
            self._failed.add(output.name)
            output.detach()
        self._flags = torch.zeros(len(self._taps), dtype=torch.float32, device=device)
        """1 for each tap that has failed, for the other ranks to know."""
        self._first_targets: Tensor | None = None
        self._pack = Pack(device)
        self._layout: Layout | None = None
        self._widths: Mapping[str, int] = {}
        self._elsewhere: set[str] = set()
        """Taps that are known to have failed on another rank."""
        self.failures: list[Event] = []
        """What failed or cannot be looked at since this was last emptied, and once what the model is."""

    @property
    def blocks(self) -> Sequence[str]:
        """Names of the model's blocks."""
        return self._parts.blocks

    @property
    def names(self) -> Sequence[str]:
        """Names of what may fail."""
        return [*(tap.name for tap in self._taps), self.baselines.name]

    @property
    def dropped(self) -> int:
        """Rows that were lost because the device was too far behind."""
        return self._pack.dropped

    def arm(self, due: Due) -> None:
        """Prepare for the coming step."""
        self._late.arm(due.layers, self._layout is None)
        self._forward.new_step()
        self.baselines.arm(due)
        for tap in self._taps:
            self._guarded(tap, partial(tap.arm, due), self._step, time.time())

    def collect(
        self, step: int, loss: Tensor | float | None, targets: Tensor | None, host: tuple[float, ...]
    ) -> list[Snapshot]:
        """Read the finished step; returns the snapshots that are here, usually with this one on a CPU."""
        if not (self._ranks.main or self._ranks.sampled or self._layout is None):
            return []
        if self._layout is None and self._is_late():
            return []
        now = time.time()
        self._step = step
        self._loss.give(loss)
        if self._layout is None and targets is not None:
            self._first_targets = targets.detach().clone()
            self._forward.prefer_latest()
        values = {tap.name: self._guarded(tap, tap.read, step, now) for tap in self._taps}
        if self._layout is None:
            self._settle()
            self.failures.append(Event(step, now, ARCHITECTURE, self.architecture.detail))
        self._newcomers.look(step)
        self.failures += [Event(step, now, NOT_SEEN, detail) for detail in self._parts.notices.take()]
        assert self._layout is not None
        own = torch.cat([self._or_nan(tap, values[tap.name]) for tap in self._taps])
        row, failed = self._ranks.combine(own, partial(self._row, own, step, now))
        if not self._ranks.main:
            return []
        found = self._guarded(self.baselines, partial(self.baselines.targets, targets), step, now)
        ticket = _Ticket(step, now, host, self._layout, 0 if failed is None else len(failed))
        self._pack.ship(ticket, row if failed is None else torch.cat((row, failed)), found or ())
        return self.arrived()

    def _is_late(self) -> bool:
        """Whether the first step has to be repeated, eagerly, since compiled graphs hide what there is to see."""
        if tracing.seen:
            self._norms.find()
        return self._late.suspect(len(self._norms.unseen), self._forward.root is None)

    def arrived(self, wait: bool = False) -> list[Snapshot]:
        """Snapshots that have reached the host, in step order."""
        snapshots = []
        for ticket, values, targets in self._pack.arrived(wait):
            host = np.array(ticket.host, dtype=np.float32)
            score = partial(self.baselines.score, targets)
            scored = self._guarded(self.baselines, score, ticket.step, ticket.time)
            own = len(values) - ticket.flags
            self._hear(ticket, values[own:])
            scored = self.baselines.nothing if scored is None else scored
            origin = self._origin(ticket, values, scored)
            scored = scored if self.origin.comparable else self.baselines.nothing
            whole = np.concatenate((values[:own], scored, origin, host))
            snapshots.append(Snapshot(ticket.step, ticket.time, whole, ticket.layout))
        return snapshots

    def _origin(self, ticket: _Ticket, values: np.ndarray[Any, Any], baselines: Array) -> Array:
        """As `Origin.see`: a given probe is of other data, one with the inputs as targets of others than the loss."""
        slots = (ticket.layout.slots(name) for name in ("loss", "probe_loss"))
        loss, scored = (float(values[found[0]]) if len(found) else float("nan") for found in slots)
        alike = not (self._probe_given or self.baselines.unmoved)
        uniform, unigram = float(baselines[0]), float(baselines[1])
        return self.origin.see(ticket.step, loss, unigram, uniform, scored if alike else float("nan"))

    def detach(self) -> None:
        """Leave the model and the optimizers as they were found."""
        self._late.release()
        for tap in self._taps:
            _let_go(tap)
        _let_go(self._forward)

    def _guarded(self, part: Tap | Baselines, read: Callable[[], _Result], step: int, now: float) -> _Result | None:
        """What the part reads; None, once and for all, from the time that it fails."""
        if part.name in self._failed:
            return None
        try:
            return read()
        except Exception as error:
            self._drop(part, error, step, now)
            return None

    def _drop(self, part: Tap | Baselines, error: Exception, step: int, now: float) -> None:
        """Do without the part from here on; it is told of once."""
        if part.name in self._failed:
            return
        _log.error("stabmon: %s failed at step %d and is dropped; training goes on", part.name, step, exc_info=error)
        self._failed.add(part.name)
        _let_go(part)
        self._flags += torch.tensor([tap is part for tap in self._taps]).to(self._flags)
        self.failures.append(Event(step, now, PART_FAILED, {"part": part.name, "error": type(error).__name__}))

    def _columns(self, tap: Tap) -> Sequence[tuple[str, Site]]:
        """What the tap reads, also if it has failed in the first step; nothing where it cannot tell."""
        self._guarded(tap, tap.weights, self._step, time.time())  # the layout needs them
        try:
            return tap.columns()
        except Exception as error:
            self._drop(tap, error, self._step, time.time())
            return ()

    def _or_nan(self, tap: Tap, values: Tensor | None) -> Tensor:
        if values is None or tap.name in self._failed:  # which it may have done since they were read
            return torch.full((self._widths[tap.name],), torch.nan, dtype=torch.float32, device=self._pack.device)
        return values

    def _row(self, values: Tensor, step: int, now: float) -> Row:
        """What the other ranks are given."""
        weights = [self._weights(tap, self._guarded(tap, tap.weights, step, now)) for tap in self._taps]
        return Row(values, torch.cat(weights), self._flags, self._gradients.unsummed)

    def _weights(self, tap: Tap, given: Tensor | float | None) -> Tensor:
        if isinstance(given, Tensor):
            return given.to(self._pack.device, non_blocking=True)
        return torch.full((self._widths[tap.name],), given or 0.0, dtype=torch.float32, device=self._pack.device)

    def _hear(self, ticket: _Ticket, failed: np.ndarray[Any, Any]) -> None:
        """Tell of taps that failed on other ranks: their own logs tell why."""
        for tap, ranks in zip(self._taps, failed, strict=False):
            if ranks and tap.name not in self._failed | self._elsewhere:
                self._elsewhere.add(tap.name)
                _log.error("stabmon: %s failed on %d of %d ranks, see their logs", tap.name, ranks, self._ranks.size)
                detail = {"part": tap.name, "error": "on another rank"}
                self.failures.append(Event(ticket.step, ticket.time, PART_FAILED, detail))

    def _settle(self) -> None:
        """The first step is over: the forward's order, and with it the layout, are known."""
        self.architecture = recognise(self._parts, self._placement, self._first_targets)
        self._norms.place(self.architecture.placements)
        columns = {tap.name: self._columns(tap) for tap in self._taps}
        self._widths = {name: len(found) for name, found in columns.items()}
        norms = self._norms.sites
        if unseen := self._norms.unseen:
            why = "" if norms else _UNWATCHED if self._forward.root is None else _COMPILED
            self._parts.notices.say(
                Notice(
                    f"not called in the first step's forward, so not watched: {', '.join(unseen)}{why}",
                    what=f"norms that the first forward did not call: {', '.join(unseen)}",
                    why=why.removeprefix(". ") or "The first step took another way through the model.",
                )
            )
        if self._late.known:
            self._parts.notices.say(LATE)
        if not (self._forward.whole or self._probe_given):
            self._parts.notices.say(IN_PIECES)
        groups = group_parameters(self._parts.groups.names, self._parts.blocks, norms)
        local = local_layout(self._taps, columns, self._parts, [*norms.values(), *groups], self._failed)
        every = [*self._ranks.agree(local), *self.baselines.columns, *self.origin.columns, *_HOST]
        sites = {site.name: site for site in (*norms.values(), *groups)}
        sites |= {site.name: site for _, site in every if site.name}
        sites |= {site.name: site for site in norms.values()}  # which know their placement
        self._layout = Layout(tuple((statistic, site.name) for statistic, site in every), tuple(sites.values()))
        self._forward.settle()
        self._norms.settle()


def _let_go(part: _Detached) -> None:
    """Where it fails, what it hung on the model stays there, and finds nobody to tell."""
    try:
        part.detach()
    except Exception:
        _log.exception("stabmon: %s could not be taken off the model", type(part).__name__.lower())
