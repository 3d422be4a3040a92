"""How replay ends: by a signal, by a file that goes bad, by nothing to read."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stabmon.cli import app
from stabmon.cli.stopping import ended_gently, undisturbed
from stabmon.readers import Notes, found
from tests.replays.files import diverging_losses, healthy_losses, table

ROOT = Path(__file__).parents[2]
MODULE = sys.modules["stabmon.cli.replay"]
"""`stabmon.cli.replay` is the command of that name."""
TWICE = """
import os, signal, sys
from stabmon.cli import found, main
taken = found.Found.take
def again(self, verdict):
    os.kill(os.getpid(), signal.SIGTERM)
    taken(self, verdict)
found.Found.take = again
main()
"""


def said(*arguments: object) -> tuple[int, str]:
    """Exit code, and all that was printed."""
    result = CliRunner().invoke(app, ["replay", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_a_second_sigterm_does_not_end_the_summary(tmp_path: Path) -> None:
    path = table(tmp_path / "log.csv", diverging_losses())
    command = [sys.executable, "-c", TWICE, "replay", "--follow", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any("has diverged" in line for line in process.stdout)
            process.send_signal(signal.SIGTERM)
            rest, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, "log.csv (CSV, steps 1 to 2" in rest) == (2, True)


def test_a_sigterm_before_anything_was_read_is_a_line_and_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(MODULE, "_paths", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert said("--follow", tmp_path / "log.csv") == (3, "stabmon: stopped before there was a verdict\n")
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_nohup_asked_for_holds() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_gently(True, 3):
            os.kill(os.getpid(), signal.SIGHUP)
            undisturbed(True)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_followed_file_that_goes_bad_is_judged_as_far_as_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(tmp_path / "log.csv", diverging_losses())

    def spoil(*_: object) -> None:
        if path.is_file():
            path.unlink()
            path.mkdir()

    monkeypatch.setattr(MODULE.Told, "emit", spoil)
    code, told = said("--follow", path)
    assert code == 3
    assert "log.csv cannot be read: Is a directory" in told
    assert "log.csv (CSV, steps 1 to 299" in told
    assert "critical" in told


def test_an_empty_name_is_no_name_of_this_folder() -> None:
    code, told = said("")
    assert (code, "a file's name is empty" in told) == (3, True)


@pytest.mark.parametrize("more", [[], ["--html", "page.html"]])
def test_a_pattern_that_meets_folders_without_a_run_is_refused(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    code, told = said(tmp_path / "*", *more)
    assert (code, "matches 2 folders without a run" in told) == (3, True)


def test_what_may_not_be_read_in_a_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = table(tmp_path / "a.csv", healthy_losses(30))
    denied = [table(tmp_path / name, healthy_losses(30)) for name in ("b.csv", "c.csv")]
    opens = Path.open

    def guarded(path: Path, mode: str = "r") -> object:
        if path in denied:
            raise PermissionError(13, "Permission denied")
        return opens(path, mode)

    monkeypatch.setattr(Path, "open", guarded)
    notes = Notes()
    assert found([str(tmp_path)], notes) == [good]
    assert notes == [f"{denied[0]} and 1 more may not be read by you (permission denied); left out."]


def test_since_a_step_past_the_end_is_told(tmp_path: Path) -> None:
    path = table(tmp_path / "log.csv", healthy_losses(40))
    code, told = said(path, "--since", 5000)
    assert (code, "It ends at step 40, before 5,000: only what stood at its end is told." in told) == (0, True)
    assert said(path, "--since", -1)[0] == 3
