"""Finds out by a trial how a model's probe can be run: in float32 or not, and by which way of taking gradients."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from stabmon.taps.probe.calls import Call, tensors_in
from stabmon.taps.probe.probe import FULL_PRECISION, HALVES, Answer, Probe, by_backward
from stabmon.taps.probe.undisturbed import device_of

_WIDE = 16
"""Twice the bytes of a float32 parameter and its gradient."""

_log = logging.getLogger("stabmon")


def fit(model: nn.Module, call: Call, targets: Tensor | None = None, norms: Sequence[nn.Module] = ()) -> Probe:
    """A probe in float32 wherever the model can be run so, else in the model's own precision.

    Weights that are stored in halves are widened for it, so that the difference of two outputs is no rounding. That
    takes 8 bytes for each parameter for a moment. Raises what the model's forward raises.
    """
    probe = Probe(model, call, targets)
    kinds = {p.dtype for p in model.parameters()} | {t.dtype for t in call.tensors if t.is_floating_point()}
    if kinds & set(HALVES) and _plain(model) and room_for(model, _WIDE):
        try:
            return standing_in(_tried(replace(probe, wide=True)), norms)
        except Exception as error:  # some layers take one precision only
            _log.debug("stabmon: the probe does not run in float32: %r", error)
    return standing_in(_tried(probe), norms)


def standing_in(probe: Probe, norms: Sequence[nn.Module]) -> Probe:
    """The probe with the last of these norms in place of an output, where the model returns none."""
    return replace(probe, norms=norms if probe.silent else ())


def _tried(probe: Probe) -> Probe:
    trained = {name: p.detach() for name, p in probe.model.named_parameters() if p.requires_grad}
    with _dtypes_seen(probe.model) as seen:
        try:
            silent = probe(trained, _differentiated)
        except RuntimeError as error:
            # Re-entrant checkpointing allows `backward` alone.
            if "checkpoint" not in str(error).lower():
                raise
            probe = replace(probe, differentiate=by_backward)
            silent = probe(trained, _differentiated)
    plain = probe.wide or not any(p.dtype not in FULL_PRECISION for p in probe.model.parameters())
    return replace(probe, exact=plain and not seen & set(HALVES), silent=silent)


def _differentiated(answer: Answer) -> bool:
    """Whether there is no output."""
    loss = answer.loss if answer.loss is not None or answer.z is None else answer.z.sum()
    if loss is not None and loss.requires_grad and answer.leaves:
        answer.differentiate(loss, None, list(answer.leaves.values()))
    return answer.z is None


@contextmanager
def _dtypes_seen(model: nn.Module) -> Iterator[set[torch.dtype]]:
    """Of all that the model's layers return."""
    seen: set[torch.dtype] = set()

    def note(module: nn.Module, args: object, output: object) -> None:
        seen.update(t.dtype for t in tensors_in(output))

    handles = [module.register_forward_hook(note) for module in model.modules()]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _plain(model: nn.Module) -> bool:
    """Whether all parameters are ordinary floating ones: not quantized, not sharded."""
    return all(type(p) is nn.Parameter and p.dtype in (*HALVES, *FULL_PRECISION) for p in model.parameters())


def room_for(model: nn.Module, bytes_each: int) -> bool:
    """Whether so many bytes are free for each of the model's parameters; nobody knows but on CUDA."""
    free = free_bytes(device_of(model))
    return free is None or free > bytes_each * sum(p.numel() for p in model.parameters())


def free_bytes(device: torch.device) -> int | None:
    """What torch can still have of the device's memory; None: unknown."""
    if device.type != "cuda":
        return None
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free: int = torch.cuda.mem_get_info(device)[0]
    return free + unused
