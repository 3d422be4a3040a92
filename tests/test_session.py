from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import nn

from stabmon import Monitor


@pytest.fixture(autouse=True)
def no_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)


def _addresses(tmp_path: Path) -> tuple[str, str]:
    """The two lines that tell where a run is served."""
    model = nn.LayerNorm(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, run="mine", log_to="none", folder=tmp_path, port=0) as monitor:
        return f"stabmon: live page of run mine: {monitor.page_url}", f"stabmon: metrics: {monitor.url}/metrics"


def test_the_address_goes_to_stderr_where_nobody_hears_info(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, metrics = _addresses(tmp_path)
    assert capsys.readouterr().err == f"{page}\n{metrics}\n"


def test_the_address_goes_to_a_log_that_hears_info(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO):
        said = _addresses(tmp_path)
    assert [record.message for record in caplog.records if record.name == "stabmon"] == list(said)
    assert capsys.readouterr().err == ""


def test_a_silenced_logger_keeps_the_address_to_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.WARNING, logger="stabmon"):
        _addresses(tmp_path)
    assert (caplog.text, capsys.readouterr().err) == ("", "")
