"""Lets a model run outside its training and leaves no trace: flags, attributes, random states, settings."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from stabmon.taps.hooks import silence
from stabmon.taps.probe.contents import contents_kept

_backends: Any = torch.backends
# What rounds inside float32 products (TF32, bfloat16) would swamp the difference of two outputs.
_ROUNDING: tuple[tuple[Any, str, Any], ...] = (
    (
        (_backends.cuda.matmul, "fp32_precision", "ieee"),
        (_backends.cudnn.conv, "fp32_precision", "ieee"),
        (_backends.mkldnn.matmul, "fp32_precision", "ieee"),
    )
    if hasattr(_backends.cuda.matmul, "fp32_precision")  # torch >= 2.9, which refuses to mix old and new
    else ((_backends.cuda.matmul, "allow_tf32", False), (_backends.cudnn, "allow_tf32", False))
)

_alone = threading.RLock()
"""Random states, settings of precision and the compiler's stance are the process's: threads take turns."""
PATIENCE = 300.0
"""Seconds; who waits longer gives up, since the other may be waiting for this thread (ranks, a device's backward)."""


@contextmanager
def undisturbed(model: nn.Module, called: nn.Module | None = None) -> Iterator[None]:
    """Eval mode, eager, full float32, no autocast, our own hooks silent; afterwards all is as it was, come what may.

    `called` is the module whose forward will be called, if it isn't the model. Parameters and buffers are the
    caller's business (`torch.func.functional_call`). Where another thread is in here, this one waits.
    """
    with ExitStack() as stack:
        stack.enter_context(_taking_turns())
        stack.enter_context(_random_states_kept(model))
        stack.enter_context(_attributes_kept(model))
        stack.enter_context(contents_kept(model))
        stack.enter_context(_unwatched(model, called))
        stack.enter_context(_full_float32())
        stack.enter_context(torch.autocast(device_of(model).type, enabled=False))
        stack.enter_context(_eager())
        for module in model.modules():
            module.training = False
        # accelerate puts autocast around the forward of the instance, and the original beside it.
        attributes = vars(called or model)
        if "_original_forward" in attributes:
            attributes["forward"] = attributes["_original_forward"]
        yield


def device_of(model: nn.Module) -> torch.device:
    """Where the model's first parameter lies."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


@contextmanager
def _taking_turns() -> Iterator[None]:
    if not _alone.acquire(timeout=PATIENCE):
        raise TimeoutError(f"another thread's model has run for {PATIENCE:.0f} s")
    try:
        yield
    finally:
        _alone.release()


@contextmanager
def _attributes_kept(model: nn.Module) -> Iterator[None]:
    """Rebound attributes of every module (training flag, counters, stored tensors) are bound back."""
    kept = [(vars(module), dict(vars(module))) for module in model.modules()]
    try:
        yield
    finally:
        for attributes, before in kept:
            for name in attributes.keys() - before.keys():
                del attributes[name]
            attributes.update({k: v for k, v in before.items() if k not in attributes or attributes[k] is not v})


@contextmanager
def _random_states_kept(model: nn.Module) -> Iterator[None]:
    kind = device_of(model).type
    devices = sorted(
        {p.device.index for p in model.parameters() if p.device.type == kind and p.device.index is not None}
    )
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices, device_type="cuda" if kind == "cpu" else kind):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _unwatched(model: nn.Module, called: nn.Module | None) -> AbstractContextManager[None]:
    """What runs here is no training: to a hook it would look like one of a model that is trained in eval mode."""
    return silence([*model.modules(), *model.parameters(), *(called.modules() if called else ())])


@contextmanager
def _full_float32() -> Iterator[None]:
    """No TF32 or bfloat16 in float32 products; no fused encoder layer, which rounds differently from training."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in _ROUNDING]
    fused = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        for owner, name, value in _ROUNDING:
            setattr(owner, name, value)
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        for owner, name, value in before:
            setattr(owner, name, value)


def _eager() -> AbstractContextManager[Any]:
    # Importing Dynamo takes a second, and where nobody has, nothing is compiled.
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    return torch.compiler.set_stance("force_eager")  # type: ignore[no-any-return]
