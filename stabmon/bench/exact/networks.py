"""Networks of the bench's own: a GPT with its norms before or after, a residual CNN, a U-Net, torch's own encoder.

Each takes a batch as keywords and returns its loss and its output. Shapes: B sequences, T tokens, D features, V ids.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

VOCABULARY, WIDTH, HEADS, LAYERS, LONGEST, CLASSES, CHANNELS = 61, 24, 3, 3, 16, 10, 8

Outputs = dict[str, Tensor]


class Attention(nn.Module):
    """Causal, and without what the mask leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x_BTD: Tensor, visible_B1TT: Tensor) -> Tensor:
        q, k, v = (p(x_BTD).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=visible_B1TT)
        y_BTD: Tensor = self.out(mixed.transpose(1, 2).flatten(-2))
        return y_BTD


class Block(nn.Module):
    """Attention and feed-forward, each with its norm before ("pre") or after ("post")."""

    def __init__(self, placement: str, dropout: float) -> None:
        super().__init__()
        self.pre = placement == "pre"
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH), nn.Dropout(dropout)
        )

    def forward(self, x_BTD: Tensor, visible_B1TT: Tensor) -> Tensor:
        if self.pre:
            x_BTD = x_BTD + self.attention(self.ln_1(x_BTD), visible_B1TT)
            return x_BTD + self.mlp(self.ln_2(x_BTD))  # type: ignore[no-any-return]
        x_BTD = self.ln_1(x_BTD + self.attention(x_BTD, visible_B1TT))
        return self.ln_2(x_BTD + self.mlp(x_BTD))  # type: ignore[no-any-return]


class Gpt(nn.Module):
    """Causal language model; `labels` are the tokens to predict, -100 where none is."""

    def __init__(self, placement: str, dropout: float = 0.0) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.blocks = nn.ModuleList(Block(placement, dropout) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH) if placement == "pre" else nn.Identity()
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.reentrant: bool | None = None

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, bool]) -> None:
        """Named as in transformers."""
        self.reentrant = gradient_checkpointing_kwargs["use_reentrant"]

    def forward(self, input_ids: Tensor, labels: Tensor, attention_mask: Tensor | None = None) -> Outputs:
        time = input_ids.shape[1]
        visible_B1TT = torch.ones(time, time, dtype=torch.bool, device=input_ids.device).tril()[None, None]
        if attention_mask is not None:
            visible_B1TT = visible_B1TT & attention_mask.bool()[:, None, None, :]
        x_BTD = self.token(input_ids) + self.position.weight[:time]
        for block in self.blocks:
            if self.reentrant is None or not self.training:
                x_BTD = block(x_BTD, visible_B1TT)
            else:
                x_BTD = checkpoint(block, x_BTD, visible_B1TT, use_reentrant=self.reentrant)
        logits_BTV = self.head(self.norm(x_BTD))
        return {"loss": F.cross_entropy(logits_BTV.float().flatten(0, 1), labels.flatten()), "logits": logits_BTV}


class Encoder(nn.Module):
    """torch's own encoder as a language model that sees all tokens but the padding."""

    def __init__(self, norm_first: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, 0.0, batch_first=True, norm_first=norm_first)
        final = nn.LayerNorm(WIDTH) if norm_first else None
        self.encoder = nn.TransformerEncoder(layer, LAYERS, final, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, input_ids: Tensor, labels: Tensor, attention_mask: Tensor | None = None) -> Outputs:
        padding = None if attention_mask is None else attention_mask == 0
        logits_BTV = self.head(self.encoder(self.embedding(input_ids), src_key_padding_mask=padding))
        return {"loss": F.cross_entropy(logits_BTV.float().flatten(0, 1), labels.flatten()), "logits": logits_BTV}


class ResidualCnn(nn.Module):
    """A ResNet in small: convolutions with batch norms around a residual stream, classes at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, CHANNELS, 3, padding=1), nn.BatchNorm2d(CHANNELS), nn.ReLU())
        self.blocks = nn.ModuleList(Residual() for _ in range(2))
        self.head = nn.Linear(CHANNELS, CLASSES)

    def forward(self, pixel_values: Tensor, labels: Tensor) -> Outputs:
        x = self.stem(pixel_values)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x.mean((2, 3)))
        return {"loss": F.cross_entropy(logits.float(), labels), "logits": logits}


class Residual(nn.Module):
    """conv - norm - relu - conv - norm, added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False) for _ in range(2))
        self.bn1, self.bn2 = nn.BatchNorm2d(CHANNELS), nn.BatchNorm2d(CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class UNet(nn.Module):
    """A diffusion model in small: what noise was added, from the noisy picture and the time."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Linear(1, CHANNELS)
        self.stem = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.down = nn.ModuleList(Grouped() for _ in range(2))
        self.up = nn.ModuleList(Grouped() for _ in range(2))
        self.out_norm = nn.GroupNorm(2, CHANNELS)
        self.out = nn.Conv2d(CHANNELS, 3, 3, padding=1)

    def forward(self, pixel_values: Tensor, times: Tensor, labels: Tensor) -> Outputs:
        x = self.stem(pixel_values) + self.time(times[:, None])[:, :, None, None]
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        for block in self.up:
            x = block(F.interpolate(x, scale_factor=2.0) + kept.pop())
        noise = self.out(F.silu(self.out_norm(x)))
        return {"loss": F.mse_loss(noise.float(), labels.float()), "sample": noise}


class Grouped(nn.Module):
    """norm - silu - conv, added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, CHANNELS)
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(F.silu(self.norm(x)))  # type: ignore[no-any-return]


def made(network: type[nn.Module], *arguments: Any) -> nn.Module:
    """With weights that are the same each time."""
    torch.manual_seed(0)
    return network(*arguments)
