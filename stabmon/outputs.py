"""Where a run's numbers and alerts go beside its run log, the console and Prometheus: as the settings say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stabmon.records import Run
from stabmon.settings import Settings
from stabmon.sinks import Sink
from stabmon.sinks.ledger import Ledger
from stabmon.sinks.notify import Notify
from stabmon.sinks.slack import Slack, spool_of
from stabmon.sinks.tracker import TrackerSink
from stabmon.sinks.trackers import Tracker
from stabmon.sinks.trackers.choice import trackers_of
from stabmon.sinks.trackers.tensorboard import TensorBoard

Link = Callable[[], str | None]
"""Address of the run's page; None while or where there is none."""


class Outputs:
    """Trackers are looked for at once, the rest is checked when `open` makes it: both before the first step."""

    def __init__(self, sinks: Sequence[Sink], settings: Settings) -> None:
        self._sinks = sinks
        self._settings = settings
        self._trackers = _trackers(settings.log_to)

    def open(self, run: Run, folder: Path, link: Link) -> list[Sink]:
        """The sinks. Undelivered alerts are kept in the folder, unless nothing is to be written."""
        settings, kept = self._settings, folder if self._settings.log else None
        sinks, ledger = list(self._sinks), Ledger(kept)
        if settings.slack is not None:
            spool = spool_of(kept) if kept else None
            sinks.append(Slack(settings.slack.get_secret_value(), run, spool, link, ledger=ledger))
        targets = settings.notify if isinstance(settings.notify, list | tuple) else [settings.notify]
        sinks += [Notify(target, kept, ledger) for target in targets]
        found = self._trackers(run, folder)
        return sinks + [TrackerSink(tracker, settings.every, settings.probe_every) for tracker in found]


def _trackers(log_to: Any) -> Callable[[Run, Path], Sequence[Tracker]]:
    if log_to == "trainer":
        raise ValueError("log_to='trainer': a plain loop has no trainer; pass your tracker, such as a W&B run")
    if log_to == "tensorboard":
        try:
            from torch.utils.tensorboard import SummaryWriter  # here, since it needs a package that few runs have
        except ModuleNotFoundError:
            raise ValueError("log_to='tensorboard' needs the package tensorboard: pip install tensorboard") from None

        return lambda run, folder: [TensorBoard(SummaryWriter(folder / "tensorboard" / run.name))]
    found = trackers_of(log_to)
    return lambda run, folder: found
