"""Networks of the bench's own."""

from __future__ import annotations

from functools import partial

from stabmon.bench.exact.families import Family
from stabmon.bench.exact.families.batches import Words, noisy_pictures, pictures, words
from stabmon.bench.exact.networks import Encoder, Gpt, ResidualCnn, UNet, made

_NEXT, _MASKED = words(aligned=True), words(aligned=False, masked=True)


def _gpt(name: str, placement: str, dropout: float, trunks: tuple[str, str]) -> Family:
    attention, mlp = trunks
    return Family(
        name,
        partial(made, Gpt, placement, dropout),
        _NEXT,
        {"LayerNorm": "centred"},
        [r"blocks\.\d+"],
        {"attention": (attention, "out:attention"), "mlp": (mlp, "out:mlp")},
        padded=True,
    )


def _encoder(name: str, norm_first: bool, batch: Words, trunks: tuple[str, str]) -> Family:
    attention, mlp = trunks
    return Family(
        name,
        partial(made, Encoder, norm_first),
        batch,
        {"LayerNorm": "centred"},
        [r"encoder\.layers\.\d+"],
        {"self_attn": (attention, "out:dropout1"), "linear2": (mlp, "out:dropout2")},
        padded=True,
    )


OWN = [
    _gpt("GPT, Pre-LN", "pre", 0.0, ("in:ln_1", "in:ln_2")),
    _gpt("GPT, Post-LN, dropout", "post", 0.2, ("in:", "out:ln_1")),
    _encoder("nn.TransformerEncoder, pre", True, _NEXT, ("in:norm1", "in:norm2")),
    _encoder("nn.TransformerEncoder, post", False, _MASKED, ("in:", "out:norm1")),
    Family(
        "ResNet, BatchNorm",
        partial(made, ResidualCnn),
        pictures,
        {"BatchNorm2d": "batch"},
        [r"blocks\.\d+"],
        {"conv2": ("in:", "change")},
    ),
    Family(
        "U-Net, GroupNorm",
        partial(made, UNet),
        noisy_pictures,
        {"GroupNorm": "groups"},
        [r"(down|up)\.\d+"],
        {"conv": ("in:", "out:conv")},
    ),
]
