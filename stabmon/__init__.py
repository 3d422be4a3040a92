"""stabmon sees a training run go wrong before its loss shows it."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["Monitor", "__version__"]

# Resolved on first use (PEP 562): `import stabmon` must stay light and work without torch.
_HOMES = {"Monitor": "stabmon.monitor"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'stabmon' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)
