"""stabmon under DistributedDataParallel: two processes on one machine over gloo, 30 steps, under 20 s.

python examples/ddp.py

Under torchrun the processes are there already: call `torch.distributed.init_process_group()`, then the loop below.
"""

import tempfile

import torch
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from stabmon import Monitor

RANKS, VOCABULARY, WIDTH, LENGTH, BATCH, STEPS = 2, 64, 32, 32, 8, 30


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.embedding(tokens), mask=self.mask, is_causal=True))
        return logits


def counting(random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sequences that count up in steps of their own: (tokens, the token that follows each)."""
    start, stride = (torch.randint(1, 8, (BATCH, 1), generator=random) for _ in range(2))
    text = (start + stride * torch.arange(LENGTH + 1)) % VOCABULARY
    return text[:, :-1], text[:, 1:]


def train(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    random = torch.Generator().manual_seed(rank)
    # On every rank alike: rank 0 is watched, whose gradients and weights are everyone's; on others it does nothing.
    with Monitor(model, optimizer, run="ddp") as monitor:
        for _ in range(STEPS):
            tokens, targets = counting(random)
            loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss, targets=targets)
        latest = monitor.latest
    if latest is not None:
        print(f"rank {rank}, step {latest.step}: loss {latest.scalar('loss'):.2f}, alerts: {len(monitor.alerts)}")
        print(f"gradient of both ranks' batches {latest.scalar('total_grad_norm'):.3f}")
    torch.distributed.destroy_process_group()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        spawn(train, (folder,), nprocs=RANKS)


if __name__ == "__main__":
    main()
