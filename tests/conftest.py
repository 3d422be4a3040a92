import os
import signal

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job is deaf to Ctrl-C, and so is what it starts; tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _own_settings_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the person who runs the tests has set must not decide them."""
    for name in os.environ:
        if name.startswith("STABMON_") or name in ("WANDB_RUN_ID", "SLURM_JOB_ID"):
            monkeypatch.delenv(name)
    # A run that was scraped stays half a minute for the next scrape; tests of that say so.
    monkeypatch.setenv("STABMON_LINGER_SECONDS", "0")
