import os

import pytest


@pytest.fixture(autouse=True)
def _own_settings_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the person who runs the tests has set must not decide them."""
    for name in os.environ:
        if name.startswith("STABMON_") or name in ("WANDB_RUN_ID", "SLURM_JOB_ID"):
            monkeypatch.delenv(name)
