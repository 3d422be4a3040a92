import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from stabmon.demo import demo
from stabmon.demo.screen import Screen
from stabmon.demo.training import train
from stabmon.runlog import read

KEYS = {"steps", "loss", "unigram_entropy", "bigram_entropy", "patience_step", "run_log", "alerts"}
ALERT_KEYS = {"detector", "severity", "step", "layer", "message", "evidence"}


def test_json_is_all_there_is_on_stdout_and_people_read_of_the_stall_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo(steps=20, as_json=True, port=0, folder=tmp_path)
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert set(result) == KEYS
    assert (result["steps"], result["patience_step"]) == (20, None)
    assert 3.0 < result["loss"] < 4.0
    assert (result["unigram_entropy"], result["bigram_entropy"]) == pytest.approx((3.15, 2.42), abs=0.1)
    assert [snapshot.step for snapshot, _ in read(Path(result["run_log"])).feeds()] == list(range(1, 21))
    assert all(set(alert) == ALERT_KEYS for alert in result["alerts"])
    first = next(alert for alert in result["alerts"] if alert["severity"] != "info")
    assert (first["detector"], first["severity"]) == ("context_stall", "warning")
    for told in ("/metrics", "demo is not learning", "never within 20 steps", f"replay {tmp_path / 'demo.stabmon'}"):
        assert told in err


def test_without_json_people_read_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(placement="pre", steps=1, port=0, folder=tmp_path)
    out, err = capsys.readouterr()
    assert "/metrics" in out
    assert "stabmon: no alert." in out
    assert err == ""


def test_a_bad_option_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="steps is 0"):
        demo(steps=0, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_demo_says_how_it_went_and_is_recorded_as_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*given: Any) -> Iterator[float]:
        yield from islice(train(*given), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr("stabmon.demo.train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        demo(port=0, folder=tmp_path)
    assert "after 2 steps" in capsys.readouterr().out
    assert read(tmp_path / "demo.stabmon").state == "stopped"


def test_a_held_demo_keeps_its_address_and_shows_a_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def looked_at(screen: Screen, page_url: str) -> None:
        with urlopen(page_url.replace("/?", "/api/v1/runs?"), timeout=10) as answer:
            seen.extend((page_url, run["state"]) for run in json.load(answer)["runs"])

    monkeypatch.setattr(Screen, "hold", looked_at)
    demo(steps=1, hold=True, port=0, folder=tmp_path)
    ((page_url, state),) = seen
    assert state == "finished"
    assert page_url in capsys.readouterr().out


def test_the_environment_names_the_demos_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STABMON_FOLDER", str(tmp_path))
    demo(steps=1, port=0)
    assert (tmp_path / "demo.stabmon").exists()
