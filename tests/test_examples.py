"""Every example runs. Its own text promises under 20 s on a CPU; the time is not asserted, machines differ."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stabmon.runlog import newest, read

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_trains_to_its_end_without_an_alert(example: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1",
        "STABMON_FOLDER": str(tmp_path / "runs"), "STABMON_PORT": "0",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "alerts: 0" in done.stdout.replace("alerts 0", "alerts: 0"), done.stdout
    log = newest(tmp_path / "runs")
    assert log is not None
    recorded = read(log)
    assert (recorded.state, len(list(recorded.feeds())) >= 20) == ("finished", True)


def test_no_example_hides_the_package_that_it_shows() -> None:
    """A script's folder comes first on its path: `examples/lightning.py` would be what it imports as `lightning`."""
    assert not {path.stem for path in EXAMPLES} & {"accelerate", "lightning", "torch", "transformers", "wandb"}
