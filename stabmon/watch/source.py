"""Where the numbers come from: a run log on this machine, or whoever serves one."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from stabmon.server import answers, models
from stabmon.server.history import History


class NoAnswer(ValueError):
    """What is asked for cannot be had; the text says why, and what to do. `passing`: it may come by itself."""

    def __init__(self, text: str, passing: bool) -> None:
        super().__init__(text)
        self.passing = passing


class Source(Protocol):
    """Gives one run as the API does. Each may raise NoAnswer."""

    def run(self) -> models.Run: ...

    def alerts(self) -> models.Alerts: ...

    def series(self, statistic: str, points: int, site: str | None = None) -> models.Series: ...

    def profile(self, statistic: str) -> models.Profile: ...


class Local:
    """A run log, read on with each `run`."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._path = path
        self._history = History(path)

    def run(self) -> models.Run:
        try:
            while self._history.refresh():
                pass
            return answers.run(self.name, self._history)
        except FileNotFoundError:
            raise NoAnswer(f"{self._path} is not there", passing=True) from None
        except (OSError, ValueError) as error:
            raise NoAnswer(str(error), passing=isinstance(error, OSError)) from None

    def alerts(self) -> models.Alerts:
        return answers.alerts(self._history)

    def series(self, statistic: str, points: int, site: str | None = None) -> models.Series:
        return answers.series(self._history, statistic, [site] if site else [], 0, self._history.step, points)

    def profile(self, statistic: str) -> models.Profile:
        return answers.profile(self._history, statistic)
