"""Every setting, with its default and what it allows. Given in code, or by the environment as `STABMON_<NAME>`."""

from __future__ import annotations

import logging
import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from stabmon.records import PLACEMENTS

_log = logging.getLogger("stabmon")
_PREFIX = "STABMON_"
_ON_ALERT = ("log", "checkpoint", "stop")
_SECRET = ("slack", "token")
_LABEL = "[a-zA-Z][a-zA-Z0-9_]*"
_TAKEN_LABELS = ("run", "rank", "framework", "model", "world_size", "version", "job", "instance", "le", "quantile")
"""Ours, and those that Prometheus gives a meaning."""
_LONGEST_SHOWN = 100
"""Characters of a value that is refused."""
_LOG_TO = ("trainer", "wandb", "mlflow", "tensorboard", "none")


class Settings(BaseSettings):
    """Frozen; build it with `Settings.of`, whose errors are written for users. A description says what is allowed."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_ignore_empty=True, frozen=True, extra="forbid")

    every: int = Field(10, ge=1, description="a whole number of steps, 1 or more")
    """Steps between readings of the per-layer values; the cheap scalars are read every step."""
    probe_every: int = Field(50, ge=1, description="a whole number of steps, 1 or more")
    """Steps between readings of the output change on the fixed probe."""
    probe: Any = Field(None, description="in code a batch as the model takes it: a tensor, a tuple or a dict")
    """What the output change is read on; None: the first training call, cut short. At most 512 tokens are kept."""
    forward: Any = Field(
        None, description="in code a function of model and batch, beside probe=batch, the batch that it is called with"
    )
    """How the model is called for the probe, where its own forward is not how: returns logits, or (loss, logits)."""
    dense_steps: int = Field(50, ge=0, description="a whole number of steps, 0 or more")
    """Everything is read every step for this many steps, in a run that starts at step 0."""
    level: Literal["light", "standard", "deep"] = Field("light", description="'light', 'standard' or 'deep'")
    """How much is read: each level reads what the one before it does, and more."""
    include: tuple[str, ...] = Field(("*",), description="a list of patterns of module names, such as ['decoder.*']")
    """Which norm layers are watched, in shell style."""
    exclude: tuple[str, ...] = Field((), description="a list of patterns of module names, such as ['*.q_norm']")
    """Which of those are not."""
    folder: Path | None = Field(None, description="a folder")
    """Where run logs go; None: the framework's own output folder, else `./stabmon-runs`."""
    run: str | None = Field(
        None,
        pattern=r"^[^/\\.\x00-\x1f][^/\\\x00-\x1f]{0,127}$",
        description="a name of 1 to 128 characters, no /, \\ or control character among them and no dot in front",
    )
    """Name of the run: its run log's file name and the `run` label; None: made from the tracker, SLURM or the date."""
    serve: bool = Field(True, description="true or false")
    """Whether /metrics is served from this process."""
    host: str = Field("127.0.0.1", min_length=1, description="an address or host name of this machine")
    """Where to listen."""
    port: int | None = Field(None, ge=0, le=65535, description="a free port from 1 to 65535, or 0 for any")
    """A given port must be free; None: 7466, or any free one where that is taken."""
    linger_seconds: float | None = Field(None, ge=0, le=3600, description="seconds from 0 to 3600")
    """How long to keep serving after the run ended, so that a scraper sees the final values. None: until two more
    scrapes have come, 35 s at most (preempted: one, 20 s), and not at all where none came in the run's last two
    minutes."""
    hosts: tuple[str, ...] = Field((), description="a list of host names, such as ['trainer.example.org']")
    """Names by which page and /metrics may be asked for, beside IP addresses, localhost and this machine's own."""
    certificate: Path | None = Field(None, description="a PEM file, beside `key`")
    """Serve HTTPS with this certificate (chain)."""
    key: Path | None = Field(None, description="a PEM file, beside `certificate`")
    """Its private key."""
    labels: dict[str, str] = Field(
        {},
        description="a mapping of up to 16 label names (letters, digits and _ that begin with a letter; not "
        f"{', '.join(_TAKEN_LABELS)}) to printable texts of up to 128 characters, such as {{'team': 'nlp'}}",
    )
    """Who the run belongs to and the like: shown on `stabmon_run_info`, for everybody who may scrape."""
    max_series: int = Field(20_000, ge=0, description="a whole number of series, 0 or more")
    """How many series /metrics may have before detail per layer is left out."""
    textfile: Path | None = Field(None, description="a file that ends in .prom, or a folder")
    """Where the metrics are also written every 15 s, for node_exporter's textfile collector."""
    log: bool = Field(True, description="true or false")
    """Whether to write a run log."""
    token: SecretStr | None = Field(None, min_length=8, description="8 characters or more")
    """What page and API ask for, and beyond this machine /metrics; None: a new one for each run, in the printed
    address, and /metrics asks for none."""
    token_file: Path | None = Field(None, description="a file that holds the token, instead of `token`")
    """Read once, at the start; a line break at its end does not count."""
    slack: SecretStr | None = Field(None, description="the https address of a Slack incoming webhook")
    """Where alerts go in Slack; best given as STABMON_SLACK, so that it stands in no script."""
    notify: Any = Field((), description="in code an object with a method send(alert), or a list of such")
    """Who else is told of alerts: anything with `send(alert)`, such as `stabmon.sinks.apprise.Apprise(url)`."""
    log_to: Any = Field(
        None,
        description="'trainer' (under Hugging Face and Lightning), 'wandb', 'mlflow', 'tensorboard', 'none', "
        "or in code a tracker of yours",
    )
    """The tracker that gets headline scalars and alerts; None: the trainer's own, in a plain loop none."""
    on_alert: Any = Field(
        "log", description="'log', 'checkpoint', 'stop', or in code a function that is called with each alert"
    )
    """What is done about an alert beside telling it, on all ranks after the same step. `checkpoint` and `stop` are for
    critical ones alone; a function gets every alert, also when it clears."""
    placement: str | dict[str, str] = Field(
        "", description=f"one of {', '.join(PLACEMENTS)}, or a mapping of patterns of module names to such"
    )
    """Where the norms in the blocks sit, or those whose names fit a pattern, if what is found is not right."""
    disabled: bool = Field(False, description="true or false")
    """Attach nothing at all."""

    @field_validator("probe")
    @classmethod
    def _is_a_batch(cls, value: Any) -> Any:
        """Whether it holds tensors is looked at where tensors are known."""
        if isinstance(value, str | bytes | int | float):
            raise ValueError("no batch")
        return value

    @field_validator("forward")
    @classmethod
    def _calls_the_model(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and (not callable(value) or info.data.get("probe") is None):
            raise ValueError("no function, or no batch for it")
        return value

    @field_validator("placement")
    @classmethod
    def _names_placements(cls, value: str | dict[str, str]) -> str | dict[str, str]:
        if not set(value.values() if isinstance(value, dict) else [value]) <= {"", *PLACEMENTS}:
            raise ValueError("no such placement")
        return value

    @field_validator("log_to")
    @classmethod
    def _names_a_tracker(cls, value: Any) -> Any:
        """An object is looked at by whoever logs to it."""
        if isinstance(value, str) and value not in _LOG_TO:
            raise ValueError("no such tracker")
        return value

    @field_validator("on_alert")
    @classmethod
    def _is_a_reaction(cls, value: Any) -> Any:
        if value not in _ON_ALERT and not (callable(value) and not isinstance(value, type)):
            raise ValueError("no such reaction")
        return value

    @field_validator("labels")
    @classmethod
    def _are_labels(cls, value: dict[str, str]) -> dict[str, str]:
        names = all(re.fullmatch(_LABEL, name) and name not in _TAKEN_LABELS for name in value)
        if not names or len(value) > 16 or any(len(v) > 128 or not v.isprintable() for v in value.values()):
            raise ValueError("no labels")
        return value

    def told(self) -> dict[str, str]:
        """Those that are not at their defaults, as text: no secrets, of files the name, of objects the type."""
        fields = type(self).model_fields.items()
        return {
            n: _text(value)
            for n, field in fields
            if _text(value := getattr(self, n)) != _text(field.default) and n != "labels"
        }

    @classmethod
    def of(cls, **given: Any) -> Settings:
        """Settings from what was given, over the environment, over the defaults.

        ValueError: a name that is no setting, or a value that is not allowed; it says which, and what to do.
        """
        _warn_of_slips()
        unknown = [name for name in given if name not in cls.model_fields]
        if unknown:
            raise ValueError(_unknown(unknown[0]))
        try:
            return cls(**given)
        except SettingsError as error:
            found = next((name for name in cls.model_fields if f'"{name}"' in str(error)), "?")
            variable = _PREFIX + found.upper()
            raise ValueError(
                f"environment variable {variable}={os.environ.get(variable)} is not allowed: lists and mappings are "
                'written as JSON there, such as \'["decoder.*"]\' or \'{"team": "nlp"}\''
            ) from None
        except ValidationError as error:
            wrong = {name: given.get(name, e["input"]) for e in error.errors() for name in [str(e["loc"][0])]}
            raise ValueError("; ".join(_refusal(name, value, given) for name, value in wrong.items())) from None


def _text(value: Any) -> str:
    if isinstance(value, Path):
        return value.name
    if isinstance(value, list | tuple | dict):
        return ", ".join(f"{name}: {_text(value[name])}" if isinstance(value, dict) else _text(name) for name in value)
    plain = isinstance(value, str | int | float | bool)
    return "***" if isinstance(value, SecretStr) else str(value) if plain else type(value).__name__


def _warn_of_slips() -> None:
    """A variable that is no setting may be another program's, so it is not refused."""
    for variable in os.environ:
        name = variable.removeprefix(_PREFIX).lower()
        if variable.startswith(_PREFIX) and name not in Settings.model_fields:
            near = get_close_matches(name, Settings.model_fields, n=1)
            guess = f"; did you mean {_PREFIX}{near[0].upper()}?" if near else ""
            _log.warning("stabmon: environment variable %s is no setting and does nothing%s", variable, guess)


def _unknown(name: str) -> str:
    near = get_close_matches(name, Settings.model_fields, n=1)
    guess = f" (did you mean {near[0]!r}?)" if near else ""
    return f"unknown setting {name!r}{guess}; the settings are: {', '.join(Settings.model_fields)}"


def _refusal(name: str, value: object, given: dict[str, Any]) -> str:
    """One sentence: where the value came from, the value, what is allowed, what to do."""
    field = Settings.model_fields[name]
    if name in _SECRET:
        value = "***"
    shown = (
        f"{name}={_cut(repr(value))}"
        if name in given
        else f"environment variable {_PREFIX}{name.upper()}={_cut(value)}"
    )
    otherwise = "to let stabmon choose" if field.default in (None, "", {}) else f"for the default, {field.default}"
    return f"{shown} is not allowed: it takes {field.description}. Leave it out {otherwise}"


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}… ({len(text)} characters)"
