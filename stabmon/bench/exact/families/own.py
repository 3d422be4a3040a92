"""Networks of the bench's own."""

from __future__ import annotations

from functools import partial

from stabmon.bench.exact.families import Family
from stabmon.bench.exact.families.batches import noisy_pictures, pictures, words
from stabmon.bench.exact.networks import Encoder, Gpt, ResidualCnn, UNet, made

_NEXT = words(aligned=True)

OWN = [
    Family("GPT, Pre-LN", partial(made, Gpt, "pre"), _NEXT, {"LayerNorm": "centred"}, [r"blocks\.\d+"], padded=True),
    Family(
        "GPT, Post-LN, dropout",
        partial(made, Gpt, "post", 0.2),
        _NEXT,
        {"LayerNorm": "centred"},
        [r"blocks\.\d+"],
        padded=True,
        dropout=True,
    ),
    Family(
        "nn.TransformerEncoder, pre",
        partial(made, Encoder, True),
        _NEXT,
        {"LayerNorm": "centred"},
        [r"encoder\.layers\.\d+"],
        padded=True,
    ),
    Family(
        "nn.TransformerEncoder, post",
        partial(made, Encoder, False),
        _NEXT,
        {"LayerNorm": "centred"},
        [r"encoder\.layers\.\d+"],
        padded=True,
    ),
    Family("ResNet, BatchNorm", partial(made, ResidualCnn), pictures, {"BatchNorm2d": "batch"}, [r"blocks\.\d+"]),
    Family("U-Net, GroupNorm", partial(made, UNet), noisy_pictures, {"GroupNorm": "groups"}, [r"(down|up)\.\d+"]),
]
