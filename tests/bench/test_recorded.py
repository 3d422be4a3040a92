"""The benchmark on recorded runs, on a small folder whose figures are known beforehand."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from stabmon.bench import intervals
from stabmon.bench.recorded import adjudication
from stabmon.bench.recorded.alarms import is_calibration
from stabmon.bench.recorded.baselines import baselines
from stabmon.bench.recorded.classes import figures
from stabmon.bench.recorded.folder import Recording
from stabmon.bench.recorded.judging import Call, Judged
from stabmon.bench.recorded.targets import losses, targets
from stabmon.cli import app

Floats = NDArray[np.float64]


def learning(seed: int, count: int = 400, first: float = 10.0) -> Floats:
    t = np.arange(1, count + 1)
    return np.asarray((2 + (first - 2) * t**-0.5) * np.exp(np.random.default_rng(seed).normal(0, 0.02, count)))


def broken(seed: int, at: int, factor: float) -> Floats:
    loss = learning(seed)
    loss[at:] *= factor
    return loss


def spoilt(seed: int, at: int) -> Floats:
    loss = learning(seed)
    loss[at:] = np.nan
    return loss


RUNS = {
    "good1": ("healthy", "", learning(1)),
    "good2": ("healthy", "", learning(2)),
    "lying": ("healthy", "", broken(3, 300, 3.5)),
    "nan1": ("nan", "250", spoilt(4, 250)),
    "up1": ("diverged", "260", broken(5, 260, 3.5)),
    "missed": ("diverged", "100", learning(6)),
    "odd": ("strange", "", learning(7)),
}


def write(path: Path, header: str, rows: Iterable[Iterable[object]]) -> None:
    with gzip.open(path, "wt", newline="") if path.suffix == ".gz" else path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(header.split(","))
        out.writerows(rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "index.csv", "id,file,label,onset", ((k, f"{k}.csv", v[0], v[1]) for k, v in RUNS.items()))
    for name, (_, _, loss) in RUNS.items():
        write(tmp_path / f"{name}.csv", "step,loss", enumerate(loss))
    flat = 7.2 * np.exp(np.random.default_rng(8).normal(0, 0.003, 100))
    dense = [("900", 100 * i, value) for i, value in enumerate([11.0, *flat])]
    dense += [("901", 100 * i, value) for i, value in enumerate(learning(9, 200, 11.0))]
    write(tmp_path / "algoperf.csv.gz", "run_id,step,loss", dense)
    write(tmp_path / "algoperf_outcomes.csv", "run_id,outcome", [("900", "never_learned"), ("901", "ok")])
    return tmp_path


def graded(folder: Path, *options: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["bench", "recorded", str(folder), "--json", *options])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_figures_of_each_class_are_those_of_the_folder(folder: Path) -> None:
    found = graded(folder)
    assert list(found) == ["classes", "false_alarms", "parts", "baselines", "targets", "confusion"]
    recall = {name: (row["runs"], row["recall"], row["precision"]) for name, row in found["classes"].items()}
    assert recall == {
        "nan": (1, 1, 1),
        "diverged": (2, 0.5, 0.5),  # of the two that were called so one is labelled healthy
        "never_learned": (1, 1, 1),
        "healthy": (3, pytest.approx(2 / 3), pytest.approx(3 / 4)),
        "ok": (1, 1, pytest.approx(3 / 4)),
    }
    assert found["classes"]["nan"]["lead_median"] == 0
    assert -12 <= found["classes"]["diverged"]["lead_median"] < 0
    assert found["classes"]["healthy"]["lead_p10"] is None
    assert found["confusion"]["strange"] == {"quiet": 1}


def test_false_alarms_are_counted_on_every_point_of_the_unfailed_runs(folder: Path) -> None:
    false = graded(folder)["false_alarms"]
    assert (false["checks"], false["critical"], false["runs"], false["runs_critical"]) == (1400, 1, 4, 1)
    assert false["per_1e5"] == pytest.approx(1e5 / 1400)
    assert false["interval"] == pytest.approx([0.0253178 * 1e5 / 1400, 5.5716434 * 1e5 / 1400], rel=1e-5)


def test_a_verdict_takes_a_true_event_out_of_the_false_alarms(folder: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.csv"
    graded(folder, "--events", str(events))
    rows = list(csv.DictReader(events.read_text().splitlines()))
    assert {row["run"] for row in rows} == {"lying"}
    write(
        folder / "adjudication.csv",
        "run,point,verdict,why",
        ((row["run"], row["point"], "true", "the loss is three times as high") for row in rows),
    )
    found = graded(folder)
    assert found["false_alarms"]["critical"] == 0
    assert found["false_alarms"]["critical_before_adjudication"] == 1
    assert found["classes"]["diverged"]["precision"] == 1


def test_every_baseline_is_told_with_its_rate_on_the_same_points(folder: Path) -> None:
    found = graded(folder)["baselines"]
    assert list(found) == ["stabmon, warning", "stabmon, critical", *baselines()]
    assert found["stabmon, warning"]["recall"] > found["stabmon, critical"]["recall"], "a run that never learned"
    assert {tuple(row) for row in found.values()} == {("recall", "precision", "lead_median", "per_1e5", "interval")}
    assert found["LossNotDecreasing(10)"]["per_1e5"] > 500 > found["stabmon, critical"]["per_1e5"]


def test_the_parts_are_halves_that_make_up_the_whole(folder: Path) -> None:
    runs = {part: graded(folder, "--part", part)["confusion"] for part in ("all", "calibration", "test")}
    whole = graded(folder)
    assert sum(part["checks"] for part in whole["parts"].values()) == whole["false_alarms"]["checks"]
    count = {part: sum(sum(row.values()) for row in found.values()) for part, found in runs.items()}
    assert count["calibration"] + count["test"] == count["all"] == 9
    assert count["calibration"] == sum(is_calibration(run) for run in [*RUNS, "900", "901"])


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("index.csv", None, "neither index.csv (columns id, file, label) nor algoperf.csv.gz"),
        ("adjudication.csv", "run,point,verdict,why\ngood1,3,perhaps,x\n", "verdict (true or false) and why"),
        ("good1.csv", "step,loss\n1,high\n", "give numbers in the columns step, loss"),
    ],
)
def test_a_wrong_file_is_one_line(folder: Path, file: str, text: str | None, said: str) -> None:
    if text is None:
        for path in folder.iterdir():
            path.unlink()
    else:
        (folder / file).write_text(text)
    done = CliRunner().invoke(app, ["bench", "recorded", str(folder)])
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_wrong_part_is_one_line(folder: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "recorded", str(folder), "--part", "half"])
    assert (done.exit_code, done.stderr) == (
        2,
        "stabmon: part is 'half'; give one of all, calibration, test\n",
    )


def test_it_runs_where_torch_is_not() -> None:
    code = "import stabmon.bench.recorded.command, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_published_verdicts_can_be_read() -> None:
    verdicts = adjudication.read(Path(__file__).parents[2] / "docs/recorded/adjudication.csv")
    assert verdicts.true_at("542", 198)
    assert not verdicts.true_at("542", 300)


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(0, 855, 0.0, 0.0043052), (1, 100, 0.000253146, 0.0544594), (13, 14, 0.661317, 0.998193), (5, 5, 0.478176, 1)],
)
def test_the_interval_of_a_share_is_that_of_clopper_and_pearson(hits: int, of: int, low: float, high: float) -> None:
    """Ends of the closed forms 1 - .025^(1/n) and .025^(1/n), and published tables."""
    assert intervals.binomial(hits, of) == pytest.approx((low, high), rel=2e-5)


@pytest.mark.parametrize(
    ("events", "low", "high"), [(0, 0.0, 3.688879), (1, 0.0253178, 5.5716434), (10, 4.795389, 18.39036)]
)
def test_the_interval_of_a_count_is_that_of_garwood(events: int, low: float, high: float) -> None:
    assert intervals.poisson(events) == pytest.approx((low, high), rel=1e-5)


def test_a_loss_of_progress_is_found_where_it_begins() -> None:
    (lost,) = losses(broken(5, 260, 3.5))
    level = min(np.median(learning(5)[i : i + 12]) for i in range(249))
    assert (lost.point, lost.gained) == (260, pytest.approx(np.log(learning(5)[0] / level)))
    assert losses(learning(5)) == []
    short = learning(5)
    short[260:271] *= 3.5
    assert losses(short) == []


def judged(label: str, loss: Floats, *calls: Call, other_label: str = "") -> Judged:
    recording = Recording("r", "r", label, None, "loss", [], other_label)
    return Judged(recording, range(len(loss)), loss.tolist(), True, calls, {})


def test_a_warning_calls_a_loss_and_where_something_had_been_gained_a_critical_is_asked_for() -> None:
    """One rises by a fifth without ever having fallen; the other is lost twice."""
    risen, twice = learning(10, first=2.0), broken(11, 250, 3.5)
    risen[300:] *= 1.2
    twice[270:340] /= 3.5
    warned = Call(308, 308, "diverged", "warning", until=500)
    first = Call(258, 258, "diverged", "critical", until=275)
    again = Call(355, 355, "exploded", "critical", until=400)

    def counted(*calls: Call, of_risen: tuple[Call, ...] = ()) -> list[tuple[int, int, Sequence[str]]]:
        rows = targets([judged("ok", risen, *of_risen), judged("diverged", twice, *calls)])
        return [(row.hits, row.of, row.missed) for row in rows[1:3]]

    assert counted(first) == [(1, 3, ["r@300", "r@340"]), (1, 2, ["r@340"])]
    assert counted(first, replace(again, severity="warning"), of_risen=(warned,)) == [(3, 3, []), (1, 2, ["r@340"])]
    assert counted(first, again, of_risen=(warned,)) == [(3, 3, []), (2, 2, [])]
    assert counted(first, replace(again, point=361))[1] == (1, 2, ["r@340"])  # 21 points after
    assert counted(first, replace(again, detector="flat"))[1] == (1, 2, ["r@340"])


def test_a_plateau_that_the_other_list_calls_failed_is_counted_apart() -> None:
    stuck = np.full(100, 7.0)
    called = Call(50, 5000, "flat", "critical", until=99)
    label = "plateau_then_drop"
    runs = [
        judged(label, stuck, called, other_label="never_learned"),
        judged(label, stuck),
        judged(label, stuck, called),
    ]
    assert [(row.hits, row.of) for row in targets(runs)][-2:] == [(1, 3), (1, 2)]


def test_a_warning_of_a_quiet_run_costs_precision_and_leaves_its_own_label_right() -> None:
    """A plateau that ended, as by its label, was called as runs that never learn are."""
    warned = Call(50, 5000, "flat", "warning", until=99)
    stuck = np.full(100, 7.0)
    runs = [judged("never_learned", stuck, warned), judged("plateau_then_drop", stuck, warned), judged("ok", stuck)]
    unread = adjudication.read(None)
    assert {label: (row.recall, row.precision) for label, row in figures(runs, unread).items()} == {
        "never_learned": (1, 0.5),
        "plateau_then_drop": (1, 1),
        "ok": (1, 1),
    }
    loud = judged("ok", stuck, replace(warned, severity="critical"))
    assert figures([loud], unread)["ok"].recall == 0


def naive(name: str, loss: Floats) -> list[int]:
    """Points at which that rule speaks, from its definition."""
    points = range(128, len(loss))
    if name == "6 sigma/128":
        return [i for i in points if loss[i] > loss[i - 128 : i].mean() + 6 * loss[i - 128 : i].std()]
    if name == "LossNotDecreasing(10)":
        return [i for i in range(10, len(loss)) if loss[i] >= loss[i - 10]]
    return [i for i in range(len(loss)) if i - int(np.argmin(loss[: i + 1])) >= 100]


@pytest.mark.parametrize("name", ["6 sigma/128", "LossNotDecreasing(10)", "patience-100"])
def test_a_baseline_speaks_where_its_definition_says(name: str) -> None:
    loss = broken(5, 300, 1.3)
    rule = baselines()[name]
    assert [i for i, value in enumerate(loss) if rule.alarms(float(value), float("nan"))] == naive(name, loss) != []
