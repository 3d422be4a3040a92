"""What a user names as a tracker -> the tracker."""

from __future__ import annotations

import sys
from typing import Any

from stabmon.sinks.trackers import Tracker
from stabmon.sinks.trackers.function import Function
from stabmon.sinks.trackers.mlflow import Mlflow
from stabmon.sinks.trackers.tensorboard import TensorBoard
from stabmon.sinks.trackers.wandb import Wandb

_ALLOWED = (
    "a W&B run, a TensorBoard SummaryWriter, the module mlflow or (MlflowClient(), run), a Lightning logger, "
    "any object with log(row, step), a function of (row, step), a list of such, 'wandb' or 'mlflow' for the active "
    "run, or 'none'"
)
_OPEN = {"wandb": "wandb.init()", "mlflow": "mlflow.start_run()"}


def trackers_of(given: Any) -> list[Tracker]:
    """The trackers that `log_to` names; a list names several. ValueError: one is none, or has no active run."""
    if given is None or given == "none":
        return []
    several = isinstance(given, list | tuple) and not _is_mlflow_pair(given)
    return [tracker_of(one) for one in (given if several else [given])]


def tracker_of(given: Any) -> Tracker:
    """One tracker, known by its methods."""
    if isinstance(given, Tracker):
        return given
    if isinstance(given, str):
        return _active(given)
    if _is_mlflow_pair(given):
        return _mlflow_run(*given)
    if _can(given, "active_run", "MlflowClient"):
        return _active("mlflow")
    if _can(given, "define_metric", "alert", "log"):
        return _active("wandb") if _can(given, "init") else Wandb(given)
    if _can(given, "add_scalar", "add_text"):
        return TensorBoard(given)
    return _of_logger(given) if _can(given, "log_metrics") else _of_function(given)


def _active(name: str) -> Tracker:
    """The run that the tracker's module, which whoever has a run has imported, calls the active one."""
    if name not in _OPEN:
        raise ValueError(f"log_to={name!r} is not a tracker. Allowed: {_ALLOWED}")
    module: Any = sys.modules.get(name)
    run = None if module is None else module.run if name == "wandb" else module.active_run()
    if run is None:
        raise ValueError(f"log_to={name!r}: there is no active run; call {_OPEN[name]} first, or pass the run")
    return Wandb(run) if name == "wandb" else _mlflow_run(module.MlflowClient(), run)


def _of_logger(logger: Any) -> Tracker:
    """A Lightning logger: what it holds where that is known, so that names and axes are the same everywhere."""
    held = getattr(logger, "experiment", None)
    if _can(held, "log_batch"):
        return Mlflow(held, logger.run_id)
    known = _can(held, "define_metric", "alert", "log") or _can(held, "add_scalar", "add_text")
    return tracker_of(held) if known else Function(logger.log_metrics, _name(logger))


def _of_function(given: Any) -> Tracker:
    call = given.log if _can(given, "log") else given
    if not callable(call) or isinstance(given, type):
        raise ValueError(f"log_to={given!r} is not a tracker. Allowed: {_ALLOWED}")
    return Function(call, _name(given))


def _is_mlflow_pair(given: Any) -> bool:
    return isinstance(given, list | tuple) and len(given) == 2 and _can(given[0], "log_batch", "log_metric")


def _mlflow_run(client: Any, run: Any) -> Tracker:
    return Mlflow(client, run if isinstance(run, str) else run.info.run_id)


def _can(given: Any, *methods: str) -> bool:
    return all(callable(getattr(given, method, None)) for method in methods)


def _name(given: Any) -> str:
    return str(getattr(given, "__name__", type(given).__name__)).strip("<>").lower()
