"""timm's models, without torchvision: its builds each fit one build of torch, and timm needs of it only names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_MODULES = ("", ".datasets", ".ops", ".ops.misc", ".transforms", ".transforms.functional")


class _Named(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _StandIn(ModuleType):
    """Any name is a class of its own, any name of which is there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Named(name, (), {})


@contextmanager
def _torchvision_named() -> Iterator[None]:
    modules = {f"torchvision{name}": _StandIn(f"torchvision{name}") for name in _MODULES}
    for path, module in modules.items():
        module.__path__ = []
        parent, _, name = path.rpartition(".")
        if parent:
            setattr(modules[parent], name, module)
    sys.modules |= modules
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]


with _torchvision_named():
    import timm

create = timm.create_model
