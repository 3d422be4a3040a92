"""How far one optimizer step moves the network's output on a fixed probe: in total, in parts, per block."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.probe import Call, Output, Probe, affordable, cut, cut_targets
from stabmon.taps.undisturbed import device_of

_WHOLE = (
    "probe_context_share",
    "probe_loss",
    "output_msq",
    "output_change_msq",
    "output_change_context_msq",
    "output_change_kl",
    "actual_loss_change",
    "predicted_loss_change",
)
_BLOCK = ("block_output_change_msq", "block_output_msq")
_MODEL = Site("")
_ROUNDINGS = 64
"""A loss change of fewer roundings of the loss itself is not read."""
_CHUNK = 2**20
"""Logits worked on at a time."""

Found = dict[tuple[str, Site], Tensor]


class OutputChange:
    """Reads the probe at theta_t and theta_{t+1}, after the optimizer step. Touches nothing of the model (see Probe).

    Changes are exact differences of full-precision outputs. Where parameters or logits are below float32 such a
    difference is mostly rounding: all changes are NaN then, the output's own statistics are still read.
    """

    name = "output_change"

    def __init__(
        self,
        model: nn.Module,
        blocks: Mapping[Site, Sequence[str]],
        first_call: Callable[[], Call | None],
        first_targets: Callable[[], Tensor | None],
        before: Callable[[], Mapping[str, Tensor] | None],
        max_tokens: int | None = None,
    ) -> None:
        """`blocks`: parameter names per block, as in `model.named_parameters()`; `before`: theta_t of the parameters
        that the optimizer holds, None if this step took no copies (then the present values count as theta_t)."""
        self._model = model
        self._blocks = blocks
        self._first_call = first_call
        self._first_targets = first_targets
        self._before = before
        self._max_tokens = max_tokens
        self._probe: Probe | None = None
        self._due = Due()

    def columns(self) -> Sequence[tuple[str, Site]]:
        per_block = [(statistic, site) for site in self._blocks for statistic in _BLOCK]
        return [*((statistic, _MODEL) for statistic in _WHOLE), *per_block]

    def arm(self, due: Due) -> None:
        self._due = due

    def read(self) -> Tensor:
        columns = self.columns()
        values = torch.full((len(columns),), torch.nan, device=device_of(self._model))
        if self._due.probe or self._due.blocks:
            found = self._measure()
            unread = torch.full((), torch.nan, device=values.device)
            values = torch.stack([found[c].to(values) if c in found else unread for c in columns])
        return values

    def weights(self) -> float:
        return 1.0

    def detach(self) -> None:
        self._probe = None
        self._due = Due()

    def _measure(self) -> Found:
        probe = self._probe = self._probe or self._build()
        if probe is None:
            return {}
        before = dict(self._before() or {})
        now = {name: p.detach() for name, p in self._model.named_parameters() if name in before}
        old = probe(before, toward=now)
        found = _state(old, probe.supervised)
        if old.exact and before:
            found |= _change(old, probe(now), probe.supervised)
            if self._due.blocks and old.logits is not None:
                for site, names in self._blocks.items():
                    moved = {name: now[name] for name in names if name in now}
                    found["block_output_change_msq", site] = _moved(old.logits, probe(before | moved).logits)
                    found["block_output_msq", site] = found["output_msq", _MODEL]
        return found

    def _build(self) -> Probe | None:
        call, targets = self._first_call(), self._first_targets()
        if call is None:
            return None
        signature = inspect.signature(type(call.module or self._model).forward)
        tokens = self._max_tokens or affordable(call)
        part = cut(call, tokens, signature)
        return Probe(self._model, part, None if targets is None else cut_targets(targets, call, tokens))


def _state(old: Output, supervised: Tensor) -> Found:
    """What the probe says before the update."""
    found: dict[str, Tensor] = {}
    if (z := old.logits) is not None:
        total = _msq(z)
        found["output_msq"] = _finite(total)
        if z.shape[0] > 1:
            share = _finite(_msq(z, z.mean(0)) / total)
            found["probe_context_share"] = torch.where(total == 0, torch.nan, share)
    if old.loss is not None:
        found["probe_loss"] = torch.where(supervised, _finite(old.loss), torch.nan)
    return _of(_MODEL, found)


def _change(old: Output, new: Output, supervised: Tensor) -> Found:
    """What the whole update does to the output and to the probe's loss."""
    found: dict[str, Tensor] = {}
    if old.logits is not None and new.logits is not None:
        change = new.logits - old.logits
        found["output_change_msq"] = _finite(_msq(change))
        found["output_change_kl"] = _finite(kl_divergence(old.logits, change))
        if change.shape[0] > 1:
            found["output_change_context_msq"] = _finite(_msq(change, change.mean(0)))
    if old.loss is not None and new.loss is not None and old.slope is not None:
        # Two float32 losses that differ in their last bits only say nothing of the update.
        readable = supervised & ~(old.slope.abs() < _ROUNDINGS * torch.finfo(old.loss.dtype).eps * old.loss.abs())
        found["actual_loss_change"] = torch.where(readable, _finite(new.loss - old.loss), torch.nan)
        found["predicted_loss_change"] = torch.where(supervised, _finite(old.slope), torch.nan)
    return _of(_MODEL, found)


def _moved(old: Tensor, new: Tensor | None) -> Tensor:
    assert new is not None  # the same call gave logits a moment ago
    return _finite(_msq(new - old))


def kl_divergence(z: Tensor, change: Tensor) -> Tensor:
    """KL(p || q) in nats, mean over rows, of p = softmax(z), q = softmax(z + change), both [positions, V].

    With d = change minus its mean under p: KL = log E_p[exp d] = log(1 + E_p[exp d - 1 - d]). No term is negative,
    so that float32 keeps KL to 1e-3 of itself down to changes of 1e-6 (KL of 5e-13).
    """
    rows = zip(_chunks(z), _chunks(change), strict=True)
    return torch.cat([_kl_of_rows(*pair) for pair in rows]).mean()


def _kl_of_rows(z: Tensor, change: Tensor) -> Tensor:
    log_p = torch.log_softmax(z, -1)
    p = log_p.exp()
    d = change - (p * change).sum(-1, keepdim=True)
    small = torch.log1p((p * (torch.expm1(d) - d)).sum(-1))
    large = torch.logsumexp(log_p + d, -1)
    return torch.where(d.amax(-1) < 80, small, large)  # exp(89) is more than float32 holds


def _msq(x: Tensor, centre: Tensor | None = None) -> Tensor:
    """Mean square of x [positions, V], or of x - centre."""
    norms = [torch.linalg.vector_norm(rows if centre is None else rows - centre, dim=-1) for rows in _chunks(x)]
    return torch.cat(norms).square().mean() / x.shape[-1]


def _chunks(x: Tensor) -> Sequence[Tensor]:
    """Rows in portions of 4 MiB, so that a vocabulary of 50,000 needs no second copy of 512 positions."""
    return torch.split(x, max(1, _CHUNK // x.shape[-1]))


def _finite(value: Tensor) -> Tensor:
    return torch.where(torch.isfinite(value), value, torch.inf)


def _of(site: Site, values: Mapping[str, Tensor]) -> Found:
    return {(name, site): value for name, value in values.items()}
