"""stabmon in an Accelerate loop that accumulates gradients: a small Pre-LN classifier, 60 steps, under 20 s.

python examples/accelerate_loop.py, or accelerate launch examples/accelerate_loop.py
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabmon import Monitor

VOCABULARY, WIDTH, LENGTH, BATCH, STEPS, ACCUMULATED = 16, 32, 16, 32, 60, 4


def majority(sequences: int) -> TensorDataset:
    """(tokens, which token is the most frequent)."""
    tokens = torch.randint(VOCABULARY, (sequences, LENGTH))
    often = torch.randint(VOCABULARY, (sequences, 1))
    tokens = torch.where(torch.rand(tokens.shape) < 0.4, often, tokens)
    return TensorDataset(tokens, F.one_hot(tokens, VOCABULARY).sum(1).argmax(1))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.embedding(tokens)).mean(1))
        return logits


def main() -> None:
    set_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED)
    network = Model()
    data = DataLoader(majority(BATCH * STEPS * ACCUMULATED), batch_size=BATCH)
    model, optimizer, batches = accelerator.prepare(network, torch.optim.AdamW(network.parameters(), lr=3e-3), data)
    with Monitor(model, optimizer, run="accelerate") as monitor:  # what prepare() returned
        for tokens, targets in batches:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(tokens), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:  # the optimizer did step, after the last of the accumulated batches
                monitor.step(loss, targets=targets)
        latest = monitor.latest
    if latest is not None:
        print(f"step {latest.step}: loss {latest.scalar('loss'):.2f}, unigram {latest.scalar('unigram_loss'):.2f}")
        print(f"gradient before clipping {latest.scalar('total_grad_norm'):.3f}")
    print(f"alerts: {len(monitor.alerts)}; recorded in {monitor.run_log}")


if __name__ == "__main__":
    main()
