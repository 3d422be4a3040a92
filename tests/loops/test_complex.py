"""Complex weights, as of Fourier neural operators, are the pairs of real ones that the optimizer takes them for."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.loops.witness import Watched, by_site, seed

WIDTH, LENGTH, MODES, CLASSES, STEPS = 8, 16, 5, 4, 3


class Spectral(nn.Module):
    """Adds what the lowest frequencies along the sequence become."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, MODES, dtype=torch.cfloat) / WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        low = torch.fft.rfft(self.norm(x), dim=1)[:, :MODES]
        added: Tensor = torch.fft.irfft(torch.einsum("btd,det->bte", low, self.weight), n=LENGTH, dim=1)
        return x + added


class Operator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Spectral() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def pairs(tensor: Tensor | None) -> Tensor:
    """float64, whatever it was."""
    assert tensor is not None
    return torch.view_as_real(tensor.detach()).double() if tensor.is_complex() else tensor.detach().double()


@pytest.mark.parametrize("level", ["light", "standard"])
def test_what_is_read_of_them_is_what_their_real_and_imaginary_parts_do(tmp_path: Path, level: str) -> None:
    seed()
    model = Operator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watched = Watched(tmp_path, model, [optimizer], level=level)
    inputs, targets = torch.randn(2, LENGTH, WIDTH), torch.randint(CLASSES, (2, LENGTH))
    for _ in range(STEPS):
        before = {name: pairs(p).clone() for name, p in model.named_parameters()}
        logits = model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watched.step(loss, targets)
        moved = {name: pairs(p) - before[name] for name, p in model.named_parameters()}
        gradients = {name: pairs(p.grad) for name, p in model.named_parameters()}
    snapshot = watched.kept.snapshots[-1]
    promised = sum(float((gradients[name] * moved[name]).sum()) for name in moved)
    assert snapshot.scalar("predicted_loss_change") == pytest.approx(promised, rel=1e-3)
    change = (model(inputs) - logits).detach()
    change = change - change.mean(-1, keepdim=True)
    assert snapshot.scalar("output_change_msq") == pytest.approx(float(change.square().mean()), rel=1e-3)
    assert snapshot.scalar("output_change_error") == 0
    if level == "standard":
        naive = naive_rms_t(model.blocks[0], optimizer)
        assert by_site(snapshot, "rms_t_msq")["blocks.0"] == pytest.approx(naive, rel=1e-3)


def naive_rms_t(block: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Mean of g^2 / v_hat; the gradients are still there."""
    found = []
    for p in block.parameters():
        second = pairs(optimizer.state[p]["exp_avg_sq"]) / (1 - 0.999**STEPS)
        found.append((pairs(p.grad).square() / second.clamp_min(1e-16)).reshape(-1))
    return float(torch.cat(found).mean())
