"""What a person may meet: odd names, odd numbers, files that come and go, clocks that jump."""

import asyncio
import csv
import io
import json
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from stabmon.records import Event, Layout, Run, Site, Snapshot
from stabmon.runlog import RunLogWriter, in_folder
from stabmon.server import answers
from stabmon.server.api import _news
from stabmon.server.app import create_app
from stabmon.server.history import LAYERS, History
from stabmon.server.standing import MODEL, Standing
from stabmon.server.verdict import verdict
from tests.server.recorded import LAYOUT, STARTED, Writing, alert, snapshot
from tests.server.test_api import TOKEN, Api

ODD = "<img src=x onerror=alert(1)> 🔥 &\"'"


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    return Writing(tmp_path / "r1.stabmon")


def history(path: Path) -> History:
    found = History(path)
    while found.refresh():
        pass
    return found


def whole(path: Path) -> list[Any]:
    """Every answer of a run, as JSON and back."""
    known = history(path)
    names = [row.name for row in answers.run("r", known).statistics]
    every = 0, 2**62
    found: list[Any] = [answers.run("r", known), answers.detectors(known), answers.alerts(known), answers.events(known)]
    found += [answers.scores(known, [], *every, 100), answers.curves(known, names, *every, 100)]
    found += [answers.profile(known, name, 10) for name in names if name in LAYERS]
    found += [answers.layers(known, name, *every, 100) for name in names if name in LAYERS]
    standing = Standing(path, 50)
    standing.refresh()
    found.append(answers.run_row("r", standing))
    return [json.loads(answer.model_dump_json()) for answer in found]


def test_names_of_every_kind_come_through_as_they_are(tmp_path: Path) -> None:
    layout = Layout((("loss", ""), ("norm_gain", ODD)), (Site(ODD, 0, ODD),))
    writer = RunLogWriter(tmp_path / "r.stabmon", Run(ODD, STARTED, model=ODD))
    values = np.ones(2, np.float32)
    told = replace(alert(1), run=ODD, site=ODD, action=f"is {ODD}", detector=ODD)
    writer.emit(Snapshot(1, STARTED, values, layout), [told], [Event(1, STARTED, ODD, {ODD: ODD})])
    writer.close("finished")
    text = json.dumps(whole(tmp_path / "r.stabmon"), ensure_ascii=False)
    assert text.count(json.dumps(ODD, ensure_ascii=False)[1:-1]) > 8


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e-45])
def test_a_run_whose_every_value_is_odd_is_answered_as_strict_json(writing: Writing, value: float) -> None:
    for step in range(1, 31):
        writing.emit(Snapshot(step, STARTED + step, np.full(len(LAYOUT.columns), value, np.float32), LAYOUT))
    text = json.dumps(whole(writing.path), allow_nan=False)
    assert "Infinity" in text or np.isfinite(value) or np.isnan(value)


def test_an_empty_run_and_one_of_a_single_step_have_every_answer(tmp_path: Path) -> None:
    empty, single = Writing(tmp_path / "a.stabmon"), Writing(tmp_path / "b.stabmon")
    single.step(1)
    run = whole(empty.path)[0]
    assert (run["verdict"]["title"], run["step"], run["age"]) == ("No step yet", 0, None)
    run = whole(single.path)[0]
    assert (run["verdict"]["title"][:11], run["rows"]) == ("No data for", 1)
    assert run["baselines"]["bigram"] == pytest.approx(2.4)


def test_a_run_log_that_is_deleted_while_it_is_served_is_a_404_and_back_when_it_is(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stabmon.server.standing.POLL_SECONDS", 0.0)
    writing.step(3)
    page = Api(writing.path.parent)
    assert page.get("run")["step"] == 3
    away = writing.path.with_suffix(".away")
    writing.close()
    writing.path.rename(away)
    assert page.refused("run", run="r1")[0] == 404
    assert page.get("runs")["runs"] == []
    away.rename(writing.path)
    assert page.get("run", run="r1")["state"] == "finished"


def test_a_file_name_that_is_no_utf8_costs_nobody_the_list(tmp_path: Path) -> None:
    Writing(tmp_path / os.fsdecode(b"r\xff.stabmon")).step(1)
    (tmp_path / os.fsdecode(b"s\xff.stabmon")).write_text("no run log")
    rows = {row["id"]: row for row in Api(tmp_path).get("runs")["runs"]}
    assert (rows[r"r\xff"]["step"], rows[r"s\xff"]["error"][:20]) == (1, r"s\xff.stabmon is not")
    assert Api(tmp_path).get("run", run=r"r\xff")["step"] == 1


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE run SET record = '[]'",
        "UPDATE run SET record = '{'",
        "DELETE FROM run",
        "DELETE FROM segments",
        "UPDATE scalars SET data = x'00'",
        "UPDATE scalars SET data = 'text'",
        "UPDATE vectors SET data = x'0000'",
        "UPDATE scalars SET step = 'many'",
        "UPDATE scalars SET time = 'noon'",
        "DROP TABLE scalars",
        "UPDATE alerts SET record = '{\"step\": 11}'",
        "UPDATE alerts SET record = '7'",
    ],
)
def test_a_damaged_run_log_says_so_and_takes_no_other_run_with_it(tmp_path: Path, damage: str) -> None:
    Writing(tmp_path / "well.stabmon").step(10)
    broken = Writing(tmp_path / "broken.stabmon")
    broken.step(11, alerts=[alert(11)])
    broken.close()
    with closing(sqlite3.connect(broken.path)) as db, db:
        db.execute(damage)
    app = create_app(lambda: b"", lambda: in_folder(tmp_path), TOKEN)
    client = TestClient(app, base_url="http://127.0.0.1", headers={"authorization": f"Bearer {TOKEN}"})
    rows = {row["id"]: row for row in client.get("/api/v1/runs").json()["runs"]}
    assert (rows["well"]["step"], rows["well"]["error"]) == (10, None)
    for path in ("run", "alerts", "curves?statistic=loss", "layers?statistic=norm_gain", "detectors"):
        answer = client.get(f"/api/v1/{path}{'&' if '?' in path else '?'}run=broken")
        assert answer.status_code == 200 or "broken.stabmon" in answer.json()["detail"]
    assert rows["broken"]["error"] is None or "broken.stabmon" in rows["broken"]["error"]


def test_a_run_log_that_another_one_took_the_place_of_shows_no_value_of_the_old_one(writing: Writing) -> None:
    writing.step(50, loss=9.0)
    writing.close()
    known = history(writing.path)
    writing.path.unlink()
    other = Writing(writing.path, name="other", start=STARTED + 1e6)
    other.step(4, loss=1.0)
    assert list(known.tail.between(1, 50)) == []  # asked before anybody noticed
    known.look_again()
    known.refresh()
    assert (known.run and known.run.name, known.step) == ("other", 4)
    (line,) = answers.series(known, "loss", [], 0, 100, 100).lines
    assert line.high == [1.0] * 4


@pytest.mark.parametrize(("jump", "told"), [(-1e6, "Healthy"), (1e6, "Healthy")])
def test_a_clock_that_jumps_makes_no_run_silent_that_was_seen_to_grow(writing: Writing, jump: float, told: str) -> None:
    clock = [100.0]
    standing = Standing(writing.path, clock=lambda: clock[0])
    writing.step(60)
    standing.refresh()
    clock[0] += 5
    writing.start += jump
    writing.step(1)
    standing.refresh()
    now = STARTED + 61  # of a machine whose clock did not jump
    assert standing.age(now) == pytest.approx(0 if jump > 0 else 5)
    assert verdict(standing, now).title == told
    clock[0] += 45
    standing.refresh()
    assert verdict(standing, now).title == ("No data for 45 s" if jump > 0 else "No data for 50 s")


def test_times_of_a_curve_never_go_back(writing: Writing) -> None:
    for step, unix in ((1, 10.0), (2, 20.0), (3, 12.0), (4, 30.0)):
        writing.emit(replace(snapshot(step), time=unix))
    known = history(writing.path)
    assert answers.series(known, "loss", [], 0, 100, 100).times == [10.0, 20.0, 20.0, 30.0]
    assert answers.layers(known, "norm_gain", 0, 100, 100).times == [10.0, 20.0, 20.0, 30.0]


def test_the_stream_goes_on_when_a_trainer_starts_again_under_the_same_name(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stabmon.server.api._TICKS", 100)
    monkeypatch.setattr("stabmon.server.standing.POLL_SECONDS", 0.0)
    writing.step(5)

    async def listen() -> list[str]:
        over = [False]
        news: AsyncIterator[str] = _news(History(writing.path), lambda: over[0])
        heard = [await anext(news)]
        writing.close()
        writing.path.unlink()
        heard.append(await anext(news))
        again = Writing(writing.path, start=STARTED + 100)
        again.step(2)
        heard.append(await anext(news))
        over[0] = True
        return heard

    first, gone, again = asyncio.run(listen())
    assert first.startswith("event: rows")
    assert gone.startswith("event: gone")
    assert again.startswith("event: rows")
    assert ('"step":5' in first, '"step":2' in again) == (True, True)
    assert str(writing.path.parent) not in gone


def test_an_export_has_every_row_bit_for_bit_and_names_with_commas(tmp_path: Path) -> None:
    name = 'h,0."x"\n'
    layout = Layout((("loss", ""), ("norm_gain", name)), (Site(name, 0, "ln"),))
    writer = RunLogWriter(tmp_path / "r.stabmon", Run("r", STARTED))
    values = np.random.default_rng(0).lognormal(size=(300, 2)).astype(np.float32)
    values[::2, 1] = np.nan
    values[7, 0] = np.inf
    for step, row in enumerate(values, start=1):
        writer.emit(Snapshot(step, STARTED + step, row, layout), [], [])
    writer.close("finished")
    text = Api(tmp_path).text("export.csv?statistic=loss&statistic=norm_gain&from=3")
    head, *rows = csv.reader(io.StringIO(text))
    assert head == ["step", "time", "loss", f"norm_gain:{name}"]
    assert [int(row[0]) for row in rows] == list(range(3, 301))
    back = np.array([[float(cell or "nan") for cell in row[2:]] for row in rows], dtype=np.float32)
    np.testing.assert_array_equal(back, values[2:])


def test_an_export_of_what_is_not_read_is_a_404(writing: Writing) -> None:
    writing.step(1)
    assert Api(writing.path.parent).refused("export.csv", statistic="attention_entropy")[0] == 404
    assert Api(writing.path.parent).refused("export.csv", statistic="nonsense")[0] == 404


def test_what_is_drawn_as_a_model_value_is_none_of_the_layers() -> None:
    assert not set(MODEL) & set(LAYERS)
