"""stabmon sees a training run go wrong before its loss shows it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what they are, for editors and type checkers
    from stabmon.monitor import Monitor
    from stabmon.notebook import open as open
    from stabmon.replays import replay

__version__ = "0.1.0"
__all__ = ["Monitor", "__version__", "replay"]

# Resolved on first use (PEP 562): `import stabmon` must stay light and work without torch. `open` is not in `__all__`:
# a star import must not hide Python's own.
_HOMES = {"Monitor": "stabmon.monitor", "open": "stabmon.notebook", "replay": "stabmon.replays"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        known = ", ".join(sorted({*__all__, *_HOMES}))
        raise AttributeError(f"module 'stabmon' has no attribute {name!r}; it has: {known}")
    return getattr(import_module(_HOMES[name]), name)
