"""What the model is, as a Monitor tells it after the first step."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon import Monitor
from stabmon.records import ARCHITECTURE
from stabmon.runlog import read
from stabmon.settings import Settings


class Net(nn.Module):
    def __init__(self, fails_in_eval: bool = False, functional: bool = False) -> None:
        super().__init__()
        self.fails_in_eval, self.functional = fails_in_eval, functional
        self.embedding = nn.Embedding(16, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, norm_first=True, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8), enable_nested_tensor=False)
        self.head = nn.Linear(8, 16)

    def forward(self, ids: Tensor) -> Tensor:
        if self.fails_in_eval and not self.training:
            raise RuntimeError("no evaluation here")
        x = self.encoder(self.embedding(ids))
        logits: Tensor = self.head(F.layer_norm(x, (8,)) if self.functional else x)
        return logits


def train(folder: Path, watched: bool = True, **given: Any) -> tuple[Net, Monitor | None]:
    settings = {key: value for key, value in given.items() if key == "placement"}
    torch.manual_seed(0)
    model = Net(**{key: value for key, value in given.items() if key not in settings})
    optimizer = torch.optim.AdamW(model.parameters())
    monitor = Monitor(model, optimizer, folder=folder, serve=False, **settings) if watched else None
    for _ in range(3):
        ids = torch.randint(16, (4, 9))
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if monitor is not None:
            monitor.step(loss)
    if monitor is not None:
        monitor.close()
    return model, monitor


def placements(monitor: Monitor) -> dict[str, str]:
    assert monitor.latest is not None
    return {site.name: site.placement for site in monitor.latest.layout.sites_of("norm_gain")}


def test_the_model_is_described_and_the_run_log_has_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stabmon"):
        _, monitor = train(tmp_path)
    assert monitor is not None
    assert "stabmon: Net: 2 blocks, Pre-LN, final norm present" in caplog.messages
    told = {"description": "2 blocks, Pre-LN, final norm present", "tokens": "all but each sequence's first"}
    assert monitor.architecture == told
    assert monitor.run_log is not None
    (first, events), *_ = read(monitor.run_log).feeds()
    (event,) = [event for event in events if event.kind == ARCHITECTURE]
    assert (event.step, event.detail) == (1, told)
    recorded = {site.name: site.placement for site in first.layout.sites_of("norm_gain")}
    assert recorded == placements(monitor)
    assert set(recorded.values()) == {"pre", "final"}
    assert recorded["encoder.norm"] == "final"


def test_a_functional_norm_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, monitor = train(tmp_path, functional=True)
    assert monitor is not None
    assert monitor.architecture["not_seen"] == "the model (layer_norm)"
    assert any("not by a layer, so not seen: the model (layer_norm)" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ("post", {"layers.0.norm1", "layers.0.norm2", "layers.1.norm1", "layers.1.norm2"}),
        ({"*.norm1": "post"}, {"layers.0.norm1", "layers.1.norm1"}),
    ],
)
def test_the_setting_holds_over_what_is_found(tmp_path: Path, given: Any, changed: set[str]) -> None:
    _, monitor = train(tmp_path, placement=given)
    assert monitor is not None
    found = {name for name, placement in placements(monitor).items() if placement == "post"}
    assert found == {f"encoder.{name}" for name in changed}


def test_a_model_that_cannot_be_followed_is_trained_and_read_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, monitor = train(tmp_path, fails_in_eval=True)
    assert monitor is not None
    assert monitor.architecture["description"] == "2 blocks, placement unknown"
    assert set(placements(monitor).values()) == {""}
    assert any("a forward in eval mode failed: RuntimeError('no evaluation here')" in m for m in caplog.messages)
    plain, _ = train(tmp_path, watched=False, fails_in_eval=True)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))


def test_parameters_are_bit_for_bit_those_of_the_training_without(tmp_path: Path) -> None:
    model, _ = train(tmp_path)
    plain, _ = train(tmp_path, watched=False)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))


def test_the_setting_is_a_placement_or_a_mapping_to_such(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"placement='first' is not allowed: it takes one of pre, post.*Leave it out"):
        Settings.of(placement="first")
    with pytest.raises(ValueError, match=r"placement=\{'\*': 'pree'\} is not allowed"):
        Settings.of(placement={"*": "pree"})
    monkeypatch.setenv("STABMON_PLACEMENT", "res_post")
    assert Settings.of().placement == "res_post"
    monkeypatch.setenv("STABMON_PLACEMENT", '{"*.q_norm": "inner"}')
    assert Settings.of().placement == {"*.q_norm": "inner"}
