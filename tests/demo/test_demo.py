import json
from pathlib import Path

import pytest

from stabmon.demo import demo
from stabmon.runlog import read

KEYS = {"steps", "loss", "unigram_entropy", "bigram_entropy", "patience_step", "run_log", "alerts"}
ALERT_KEYS = {"detector", "severity", "step", "layer", "message", "evidence"}


def test_the_last_line_is_the_result_and_nothing_else_is_on_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo(steps=25, as_json=True, port=0, folder=tmp_path)
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert set(result) == KEYS
    assert (result["steps"], result["patience_step"]) == (25, None)
    assert 3.0 < result["loss"] < 4.0
    assert (result["unigram_entropy"], result["bigram_entropy"]) == pytest.approx((3.15, 2.42), abs=0.1)
    assert all(set(alert) == ALERT_KEYS for alert in result["alerts"])
    assert "/metrics" in err
    recorded = [snapshot.step for snapshot, _ in read(Path(result["run_log"])).feeds()]
    assert recorded == list(range(1, 26))


def test_people_are_shown_the_alert_the_patience_rule_and_the_run_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo(steps=30, port=0, folder=tmp_path)
    out = capsys.readouterr().out
    assert "demo is not learning" in out
    assert "never within 30 steps" in out
    assert f"replay {tmp_path / 'demo.stabmon'}" in out


def test_a_bad_option_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="steps is 0"):
        demo(steps=0, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
