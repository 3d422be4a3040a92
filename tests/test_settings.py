from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from stabmon.settings import Settings


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"STABMON_{name.upper()}", raising=False)


def test_the_defaults() -> None:
    assert Settings.of().model_dump() == {
        "every": 10,
        "probe_every": 50,
        "probe": None,
        "forward": None,
        "dense_steps": 50,
        "level": "light",
        "include": ("*",),
        "exclude": (),
        "folder": None,
        "run": None,
        "serve": True,
        "host": "127.0.0.1",
        "port": None,
        "linger_seconds": None,
        "hosts": (),
        "certificate": None,
        "key": None,
        "labels": {},
        "max_series": 20_000,
        "textfile": None,
        "log": True,
        "token": None,
        "token_file": None,
        "slack": None,
        "notify": (),
        "log_to": None,
        "on_alert": "log",
        "placement": "",
        "disabled": False,
    }


def test_given_stands_over_environment_over_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STABMON_EVERY", "7")
    monkeypatch.setenv("STABMON_PROBE_EVERY", "70")
    monkeypatch.setenv("STABMON_FOLDER", "logs")
    monkeypatch.setenv("STABMON_DISABLED", "1")
    settings = Settings.of(every=3)
    assert (settings.every, settings.probe_every, settings.dense_steps) == (3, 70, 50)
    assert (settings.folder, settings.disabled) == (Path("logs"), True)


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STABMON_PORT", "")
    assert Settings.of().port is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"every": 0}, "every=0 is not allowed: it takes a whole number of steps, 1 or more. Leave it out .* 10$"),
        ({"every": -5}, "every=-5 is not allowed"),
        ({"every": "often"}, "every='often' is not allowed"),
        ({"probe_every": 0}, "probe_every=0 is not allowed"),
        ({"dense_steps": -1}, "dense_steps=-1 is not allowed: it takes a whole number of steps, 0 or more"),
        ({"port": 65536}, "port=65536 is not allowed: it takes a free port from 1 to 65535"),
        ({"run": "a/b"}, "run='a/b' is not allowed: it takes a name"),
        ({"run": ".."}, "run='..' is not allowed"),
        ({"run": "a\nb"}, "run='a.nb' is not allowed"),
        ({"run": "x" * 129}, r"run='x{99}… \(131 characters\) is not allowed"),
        ({"linger_seconds": float("nan")}, "linger_seconds=nan is not allowed"),
        ({"placement": "before"}, "placement='before' is not allowed: .* Leave it out to let stabmon choose$"),
        ({"placement": {"*": 3}}, "placement={'[*]': 3} is not allowed"),
        ({"include": (1,)}, r"include=\(1,\) is not allowed"),
        ({"max_series": -1}, "max_series=-1 is not allowed: it takes a whole number of series, 0 or more"),
        ({"labels": {"run": "x"}}, "labels={'run': 'x'} is not allowed: it takes a mapping of up to 16 label names"),
        ({"labels": {"a-b": "x"}}, "labels={'a-b': 'x'} is not allowed"),
        ({"labels": {"__name__": "x"}}, "labels={'__name__': 'x'} is not allowed"),
        ({"labels": {"team": "x" * 129}}, "labels={'team': 'x+… .* is not allowed"),
        ({"labels": {"team": "a\nb"}}, "labels={'team': .* is not allowed"),
        ({"labels": {f"l{n}": "" for n in range(17)}}, "labels=.* is not allowed"),
    ],
)
def test_a_refused_value_is_named_with_what_is_allowed(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Settings.of(**given)
    assert not isinstance(caught.value, ValidationError)


def test_a_refused_variable_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STABMON_EVERY", "0")
    with pytest.raises(ValueError, match=r"^environment variable STABMON_EVERY=0 is not allowed: it takes a whole"):
        Settings.of(probe_every=5)


def test_two_refused_values_are_both_named() -> None:
    with pytest.raises(ValueError, match="every=0 is not allowed.*; port=-1 is not allowed"):
        Settings.of(every=0, port=-1)


def test_an_unknown_name_gets_the_nearest_one_and_the_whole_list() -> None:
    names = ", ".join(Settings.model_fields)
    with pytest.raises(
        ValueError, match=f"^unknown setting 'evry' .did you mean 'every'..; the settings are: {names}$"
    ):
        Settings.of(evry=3)


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings.of().every = 3


def test_a_run_name_of_128_characters_with_spaces_is_allowed() -> None:
    name = "llama 7b, lr 3e-3 " + "x" * 110
    assert len(name) == 128
    assert Settings.of(run=name).run == name


def test_a_list_in_the_environment_is_json_and_what_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STABMON_INCLUDE", '["a.*", "b"]')
    assert Settings.of().include == ("a.*", "b")
    monkeypatch.setenv("STABMON_INCLUDE", "a.*")
    with pytest.raises(ValueError, match=r"STABMON_INCLUDE=a\.\*.*JSON"):
        Settings.of()


def test_a_slip_in_the_environment_is_told_with_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("STABMON_DISABLE", "1")
    assert not Settings.of().disabled
    assert [r.getMessage() for r in caplog.records] == [
        "stabmon: environment variable STABMON_DISABLE is no setting and does nothing; did you mean STABMON_DISABLED?"
    ]


@pytest.mark.parametrize("given", [{"probe": "batch"}, {"probe": 3}, {"forward": len}, {"forward": 3, "probe": [1]}])
def test_a_probe_that_is_no_batch_or_a_forward_without_one_is_refused(given: dict[str, Any]) -> None:
    name = next(iter(given))
    with pytest.raises(ValueError, match=f"^{name}=.* is not allowed: it takes in code a .*batch"):
        Settings.of(**given)


def test_told_are_settings_that_are_not_at_their_defaults() -> None:
    assert Settings.of().told() == {}
    assert Settings.of(include=["a.*"], every=20, slack=None).told() == {"include": "a.*", "every": "20"}
