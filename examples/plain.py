"""stabmon in a plain PyTorch loop: a small Pre-LN language model on a made-up language, 100 steps, under 20 s.

python examples/plain.py
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon import Monitor

VOCABULARY, WIDTH, LENGTH, BATCH, STEPS = 64, 64, 32, 16, 100


class Language:
    """Every token has four possible successors, drawn once: half of the entropy can be learnt."""

    def __init__(self) -> None:
        self.random = torch.Generator().manual_seed(0)
        self.successors = torch.randint(VOCABULARY, (VOCABULARY, 4), generator=self.random)

    def batch(self) -> tuple[Tensor, Tensor]:
        """Tokens [B, T] and the token that follows each."""
        tokens = [torch.randint(VOCABULARY, (BATCH,), generator=self.random)]
        for _ in range(LENGTH):
            choice = torch.randint(4, (BATCH,), generator=self.random)
            tokens.append(self.successors[tokens[-1], choice])
        text = torch.stack(tokens, dim=1)
        return text[:, :-1], text[:, 1:]


class Model(nn.Module):
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


def main() -> None:
    torch.manual_seed(0)
    model, language = Model(), Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with Monitor(model, optimizer, run="plain") as monitor:
        print(f"metrics: {monitor.url}/metrics")
        for _ in range(STEPS):
            tokens, targets = language.batch()
            loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss, targets=targets)
        latest = monitor.latest
    if latest is not None:
        print(f"step {latest.step}: loss {latest.scalar('loss'):.2f}, unigram {latest.scalar('unigram_loss'):.2f}")
        for site, length in zip(latest.layout.sites_of("norm_input_msq"), latest["norm_input_msq"], strict=True):
            print(f"  layer {site.layer_label} {site.role:10s} norm input {length:8.3f}")
    print(f"alerts: {len(monitor.alerts)}; recorded in {monitor.run_log}")


if __name__ == "__main__":
    main()
