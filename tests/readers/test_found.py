"""Which files a user means."""

from __future__ import annotations

from pathlib import Path

import pytest

from stabmon.readers import NoRun, Notes, found, opened
from tests.readers.made import nanogpt, trainer_state


def test_files_folders_patterns_and_standard_input(tmp_path: Path) -> None:
    for name in ("a/one.log", "a/b/two.log", "c.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(nanogpt().text)
    (tmp_path / "a" / "config.json").write_text('{"layers": 8}')
    (tmp_path / "a" / "weights.bin").write_bytes(bytes(100))
    one, two, three = tmp_path / "a" / "one.log", tmp_path / "a" / "b" / "two.log", tmp_path / "c.log"
    assert found([str(tmp_path)]) == sorted([one, two, three])
    assert found([str(tmp_path / "*.log"), str(one)]) == [three, one]
    assert found([str(tmp_path / "a"), str(one)]) == sorted([one, two])
    assert found([str(tmp_path / "**" / "*.log")]) == sorted([one, two, three])
    assert found(["-"]) == [Path("-")]


def test_a_file_that_was_named_is_told_even_if_it_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "note[1].txt").write_text("hello")
    assert found([str(tmp_path / "note[1].txt")]) == [tmp_path / "note[1].txt"]


def test_of_a_trainers_checkpoints_the_state_that_reaches_furthest(tmp_path: Path) -> None:
    for name in ("run/checkpoint-500", "run/checkpoint-1000", "done/checkpoint-500", "done"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "trainer_state.json").write_text(trainer_state().text)
    names = [str(path.relative_to(tmp_path).parent) for path in found([str(tmp_path)])]
    assert names == ["done", "run/checkpoint-1000"]


def test_home_is_meant_by_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.log").write_text(nanogpt().text)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [opened(path).format for path in found(["~/x.log"])] == ["nanoGPT log"]


def test_a_table_of_runs_is_no_run(tmp_path: Path) -> None:
    """Left out of a folder, and told; refused where it is named, unless the loss is named too."""
    (tmp_path / "log.csv").write_text("name,step,loss\na,1,3\nb,2,2\n")
    (tmp_path / "index.csv").write_text("id,file,first_loss,last_loss\n1,a.csv,9,2\n2,b.csv,8,3\n")
    (tmp_path / "plain.csv").write_text("id,loss\n1,9\n2,8\n")
    notes = Notes()
    assert found([str(tmp_path)], notes) == [tmp_path / "log.csv", tmp_path / "plain.csv"]
    assert notes == ["index.csv is a table of runs, one a row, and no run; it was left out."]
    with pytest.raises(NoRun, match=r"index\.csv is a table of runs, one a row, and no run; give the runs themselves"):
        opened(tmp_path / "index.csv")
    assert opened(tmp_path / "index.csv", loss="last_loss").format == "CSV"
