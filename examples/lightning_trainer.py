"""stabmon in a Lightning Trainer: a small Pre-LN language model, 30 steps of two batches each, under 20 s.

python examples/lightning_trainer.py
"""

import tempfile

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabmon.lightning import StabilityCallback

VOCABULARY, WIDTH, LENGTH, BATCH, STEPS = 64, 64, 32, 16, 30


def counting(sequences: int) -> TensorDataset:
    """Sequences that count up in steps of their own: (tokens, the token that follows each)."""
    start, stride = torch.randint(VOCABULARY, (sequences, 1)), torch.randint(1, 8, (sequences, 1))
    text = (start + stride * torch.arange(LENGTH + 1)) % VOCABULARY
    return TensorDataset(text[:, :-1], text[:, 1:])


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 4, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.embedding(tokens), mask=self.mask, is_causal=True))
        return logits


class LanguageModel(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = Network()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        tokens, targets = batch
        return F.cross_entropy(self.network(tokens).flatten(0, 1), targets.flatten())

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main() -> None:
    pl.seed_everything(0)
    callback = StabilityCallback(run="lightning")
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            default_root_dir=folder, max_steps=STEPS, accumulate_grad_batches=2, gradient_clip_val=1.0,
            val_check_interval=20, accelerator="cpu", callbacks=[callback], logger=False,
            enable_checkpointing=False, enable_progress_bar=False,
        )  # fmt: skip
        training, validation = (DataLoader(counting(size), batch_size=BATCH) for size in (2 * STEPS * BATCH, 64))
        trainer.fit(LanguageModel(), training, validation)
    monitor = callback.monitor
    if monitor and monitor.latest:
        latest = monitor.latest
        print(f"step {latest.step}: loss {latest.scalar('loss'):.2f}, unigram {latest.scalar('unigram_loss'):.2f}")
        for site, norm in zip(latest.layout.sites_of("grad_norm"), latest["grad_norm"], strict=True):
            print(f"  layer {site.layer_label:3s} {site.role:20s} gradient before clipping {norm:8.4f}")
        print(f"alerts: {len(monitor.alerts)}")


if __name__ == "__main__":
    main()
