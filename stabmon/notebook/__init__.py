"""A recorded run in Python and in notebooks: `stabmon.open(run)`."""

from stabmon.notebook.opened import OpenedRun, open

__all__ = ["OpenedRun", "open"]
