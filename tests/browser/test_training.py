"""The page of a training that goes on beside it."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from stabmon import Monitor
from tests.browser.conftest import Browser

VOCABULARY, WIDTH = 32, 16
TOLD = """
const tiles = [...document.querySelectorAll(".tile")];
const value = (title) => parseFloat(tiles.find((tile) => tile.firstChild.textContent === title).lastChild.textContent);
return [value("Step"), value("Loss")]
"""


class Net(nn.Module):
    """Two Pre-LN blocks over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found = self.embed(tokens)
        for block in self.blocks:
            found = block(found)
        return self.head(self.norm(found))


def test_a_training_is_shown_while_it_goes_on(browser: Browser, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(VOCABULARY, (4, 17), generator=torch.Generator().manual_seed(0))
    losses: list[float] = []

    def train(steps: int) -> None:
        for _ in range(steps):
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss, targets=tokens[:, 1:])
            losses.append(loss.item())

    with Monitor(model, optimizer, folder=tmp_path, run="small", port=0) as monitor:
        train(60)
        assert monitor.page_url is not None
        browser.open(monitor.page_url)
        browser.until(lambda: {"loss", "norm_input_msq"} <= set(browser.drawn()))
        assert browser.text("#name") == "small"

        def goes_on() -> bool:
            train(2)
            return int(browser.tile("Step")) >= 80

        browser.until(goes_on)
        step, loss = browser.run(TOLD)
        assert loss == pytest.approx(losses[step - 1], rel=5e-3)  # as the page says it, to three digits
        browser.to("#grad_norm")
        browser.until(lambda: "grad_norm" in browser.drawn())
        rows = browser.run(
            "return echarts.getInstanceByDom(document.querySelector('#grad_norm .chart')).getOption().yAxis[0].data"
        )
        assert [name for name in rows if "blocks.0" in name] == [rows[1]]
        device = browser.text(".facts dl")
        assert "device\ncpu" in device
        assert "AdamW" in device
        assert browser.complaints() == []
        browser.open("about:blank")
