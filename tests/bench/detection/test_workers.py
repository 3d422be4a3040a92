"""Recording in processes of their own."""

from dataclasses import replace
from pathlib import Path

import pytest

from stabmon.bench.detection.live import run_log
from stabmon.bench.detection.networks import Shape
from stabmon.bench.detection.scenarios import Scenario
from stabmon.bench.detection.workers import judged
from stabmon.runlog import read

TINY = Scenario("tiny", "healthy", Shape("pre", layers=1, width=16), data="markov", steps=12, batch=2)


def test_a_run_is_trained_once_and_one_that_fails_stops_no_other(tmp_path: Path) -> None:
    runs = [(replace(TINY, data="nowhere", name="fails"), 1), (TINY, 1)]
    first = {done.run[0].name: done for done in judged(runs, tmp_path, 1)}
    assert "KeyError" in first["fails"].failure
    assert first["fails"].judged is None
    path = run_log(TINY, 1, tmp_path)
    assert read(path).state == "finished"
    assert [p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file()] == [path.relative_to(tmp_path)]
    made = path.stat().st_mtime_ns
    (again,) = judged([(TINY, 1)], tmp_path, 1)
    assert path.stat().st_mtime_ns == made
    assert again.judged is not None
    assert first["tiny"].judged is not None
    assert list(again.judged.curve.steps) == list(range(1, 13))
    assert again.judged.curve.loss == pytest.approx(first["tiny"].judged.curve.loss)
