import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from stabmon.records import Event
from stabmon.runlog import in_folder
from stabmon.server.app import create_app
from tests.server.recorded import STARTED, Writing, alert, snapshot

TOKEN = "open-sesame"


class Api:
    """GETs under /api/v1 with the token; a stream ends after its first event."""

    def __init__(self, folder: Path, live: bool = False) -> None:
        rounds = iter([False] * 3)
        app = create_app(lambda: b"", lambda: in_folder(folder), TOKEN, live=live, closing=lambda: next(rounds, True))
        self._client = TestClient(app, base_url="http://127.0.0.1", headers={"authorization": f"Bearer {TOKEN}"})

    def get(self, path: str, **parameters: Any) -> Any:
        response = self._client.get(f"/api/v1/{path}", params=parameters)
        assert response.status_code == 200, response.text
        assert response.headers["cache-control"] == "no-store"
        return response.json()

    def refused(self, path: str, **parameters: Any) -> tuple[int, str]:
        response = self._client.get(f"/api/v1/{path}", params=parameters)
        return response.status_code, response.json()["detail"]

    def text(self, path: str) -> str:
        return self._client.get(f"/api/v1/{path}").text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def writing(folder: Path) -> Writing:
    return Writing(folder / "r1.stabmon")


def test_the_list_has_state_step_loss_and_open_alerts_newest_first(folder: Path, writing: Writing) -> None:
    writing.step(5, loss=3.5, alerts=[alert(5)])
    writing.close("failed")
    other = Writing(folder / "sub" / "r2.stabmon", name="second")
    other.step(200)
    found = Api(folder).get("runs")
    assert found["live"] is False
    assert [run["id"] for run in found["runs"]] == ["sub/r2", "r1"]
    newest, older = found["runs"]
    assert (newest["name"], newest["state"], newest["step"], newest["open_alerts"]) == ("second", "running", 200, 0)
    assert (older["state"], older["step"], older["loss"], older["open_alerts"]) == ("failed", 5, 3.5, 1)
    assert older["verdict"]["title"].startswith("Failed. NOT LEARNING since step 3: every token gets the same answer")
    assert older["time"] == STARTED + 5


def test_a_file_that_is_no_run_log_is_a_row_that_says_so_without_its_folder(folder: Path, writing: Writing) -> None:
    (folder / "text.stabmon").write_text("x" * 4096, encoding="utf-8")
    (folder / "empty.stabmon").touch()
    later = Writing(folder / "later.stabmon")
    later.close()
    with sqlite3.connect(later.path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    errors = {run["id"]: run["error"] for run in Api(folder).get("runs")["runs"]}
    assert errors["r1"] is None
    assert "text.stabmon is not a readable stabmon run log" in errors["text"]
    assert "empty.stabmon is not a stabmon run log" in errors["empty"]
    assert "later.stabmon has run log format 99" in errors["later"]
    assert str(folder) not in json.dumps(errors)
    status, detail = Api(folder).refused("run", run="later")
    assert (status, "later.stabmon has run log format 99" in detail) == (422, True)


def test_without_a_run_there_is_an_empty_list_and_a_404(folder: Path) -> None:
    assert Api(folder, live=True).get("runs")["runs"] == []
    assert Api(folder).refused("run") == (404, "there is no run")


@pytest.mark.parametrize("run", ["nothing", "../r1", "/etc/passwd", "<script>"])
def test_an_unknown_run_is_a_404_that_says_where_they_are(folder: Path, writing: Writing, run: str) -> None:
    status, detail = Api(folder).refused("run", run=run)
    assert status == 404
    assert detail == f"there is no run {run!r}; /api/v1/runs has them"


def test_the_summary_has_verdict_newest_values_and_what_stabmon_costs(folder: Path, writing: Writing) -> None:
    writing.step(100, loss=2.0, step_seconds=0.5, monitor_seconds=0.005)
    writing.close()
    found = Api(folder).get("run")
    assert (found["id"], found["state"], found["step"], found["first_step"]) == ("r1", "finished", 100, 1)
    assert found["verdict"] == {
        "level": "ended",
        "title": "Finished",
        "text": "Step 100, loss 2, 0.4 nats below the bigram baseline. No alert was open.",
        "basis": "Based on the alerts of 100 steps; the loss is compared as the mean of the newest steps.",
        "unseen": [],
    }
    assert found["values"]["loss"] == 2.0
    assert "learning_rate" not in found["values"]  # this run's layout does not have it
    assert found["cost"]["recent_ratio"] == pytest.approx(0.01)
    assert found["cost"]["total_seconds"] == pytest.approx(0.5)
    taken = {row["name"]: (row["per_layer"], row["sites"]) for row in found["statistics"]}
    assert taken["loss"] == (False, 1)
    assert taken["grad_norm"] == (True, 2)
    assert "grad_sq" not in taken


def test_a_series_keeps_lowest_and_highest_in_so_many_points(folder: Path, writing: Writing) -> None:
    for step in range(1, 101):
        writing.emit(snapshot(step, loss=9.0 if step == 50 else 2.0))
    found = Api(folder).get("series", statistic="loss", points=10)
    assert found["unit"] == "nats"
    assert found["steps"] == [16, 32, 48, 64, 80, 96, 100]
    (line,) = found["lines"]
    assert line["low"] == [2.0] * 7
    assert line["high"] == [2.0, 2.0, 2.0, 9.0, 2.0, 2.0, 2.0]


def test_a_series_can_be_had_for_some_sites_and_steps(folder: Path, writing: Writing) -> None:
    writing.step(20)
    found = Api(folder).get("series", statistic="norm_input_msq", site=["h.1.ln"], **{"from": 5, "to": 7})
    assert found["steps"] == [5, 6, 7]
    assert [line["site"] for line in found["lines"]] == [{"name": "h.1.ln", "layer": 1, "role": "ln"}]
    assert found["lines"][0]["high"] == [10.0, 12.0, 14.0]


def test_what_was_not_read_is_null_and_what_is_not_finite_a_word(folder: Path, writing: Writing) -> None:
    writing.emit(snapshot(1, values={"norm_gain": float("inf")}))
    writing.emit(snapshot(2, values={"norm_gain": float("nan")}))
    writing.emit(snapshot(3))
    found = Api(folder).get("layers", statistic="norm_gain", points=3)
    assert found["values"] == [["Infinity", None, 3.0], ["Infinity", None, 6.0]]


def test_a_matrix_has_equally_wide_cells_with_the_highest_of_each(folder: Path, writing: Writing) -> None:
    for step in range(1, 101):
        writing.emit(snapshot(step, layers=step <= 10 or step % 10 == 0))
    found = Api(folder).get("layers", statistic="norm_input_msq", points=20)
    assert found["width"] == 5
    assert found["steps"] == list(range(1, 101, 5))
    assert [site["layer"] for site in found["sites"]] == [0, 1]
    first = found["values"][0]
    assert first[:4] == [5.0, 10.0, None, 20.0]  # steps 1-5, 6-10, 11-15 (not read), 16-20
    assert found["values"][1][-1] == 200.0


def test_numbers_have_the_six_digits_that_a_float32_has(folder: Path, writing: Writing) -> None:
    writing.emit(snapshot(1, loss=2.3456789))
    assert Api(folder).get("series", statistic="loss")["lines"][0]["low"] == [2.34568]


def test_alerts_and_events_come_newest_first(folder: Path, writing: Writing) -> None:
    writing.step(5, alerts=[alert(5, "warning")], events=[Event(5, 1.0, "evaluation", {"eval_loss": 2.5})])
    writing.step(5, alerts=[alert(10, "critical")], events=[Event(10, 2.0, "resume", {"at": 9})])
    found = Api(folder).get("alerts")["alerts"]
    assert [(row["step"], row["severity"], row["open"]) for row in found] == [
        (10, "critical", True),
        (5, "warning", False),
    ]
    assert found[0]["headline"].startswith("r1 is not learning")
    assert found[0]["remedies"] == ["Cut the learning rate", "Warm up"]
    assert found[0]["evidence"] == {"loss": 3.1, "context_share": None, "norm_input_msq": "Infinity"}
    events = Api(folder).get("events")["events"]
    assert [(row["step"], row["kind"], row["detail"]) for row in events] == [
        (10, "resume", {"at": 9.0}),
        (5, "evaluation", {"eval_loss": 2.5}),
    ]


def test_an_unknown_statistic_is_refused_with_those_there_are(folder: Path, writing: Writing) -> None:
    status, detail = Api(folder).refused("series", statistic="los")
    assert status == 404
    assert detail.startswith("there is no statistic 'los' here; there are: loss, ")
    status, detail = Api(folder).refused("layers", statistic="loss")
    assert (status, detail.startswith("there is no statistic 'loss' here; there are: norm_input_msq")) == (404, True)


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"points": 1}, "points: input should be greater than or equal to 2"),
        ({"points": 4001}, "points: input should be less than or equal to 4000"),
        ({"points": "x"}, "points: input should be a valid integer"),
        ({"from": -1}, "from: input should be greater than or equal to 0"),
    ],
)
def test_parameters_out_of_bounds_are_refused_in_a_sentence(
    folder: Path, writing: Writing, parameters: dict[str, Any], why: str
) -> None:
    status, detail = Api(folder).refused("series", **{"statistic": "loss", **parameters})
    assert (status, detail[: len(why)]) == (422, why)


def test_the_stream_tells_at_once_up_to_which_step_there_are_rows(folder: Path, writing: Writing) -> None:
    writing.step(7, alerts=[alert(7)])
    lines = Api(folder).text("stream").split("\n")
    assert lines[0] == "event: rows"
    told = json.loads(lines[1].removeprefix("data: "))
    assert told.pop("age") > 1e9  # its clock says 1970
    assert told == {"version": 1, "step": 7, "state": "running", "alerts": 1, "marks_version": 0}
    assert lines[2:] == ["", ""]  # nothing twice, and it ended when the server did
