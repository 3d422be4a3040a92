"""Attention of torch's own layers, of timm and of hand-written models against a naive computation."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon.taps import Due
from stabmon.taps.attention.scores import scores_given, scores_of, summary
from stabmon.taps.attention.tap import Attention
from tests.taps.attention_naive import measured, naive, parts_of, read
from tests.timm_models import timm

INPUT = torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(0))
PADDING = torch.arange(9) >= torch.tensor([[9], [5]])
CAUSAL = torch.ones(9, 9).triu(1) > 0


def split(x: Tensor, weight: Tensor, bias: Tensor | None, heads: int) -> Tensor:
    """float64[N, H, T, D]."""
    y = F.linear(x.detach().double(), weight.detach().double(), None if bias is None else bias.detach().double())
    return y.unflatten(-1, (heads, -1)).transpose(1, 2)


def projected(x: Tensor, attention: nn.MultiheadAttention, hidden: Tensor | None = None) -> Tensor:
    """float64[N, H, T, S] of self-attention; hidden: broadcasts to it."""
    q, k, _ = split(x, attention.in_proj_weight, attention.in_proj_bias, 3 * attention.num_heads).chunk(3, dim=1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return scores if hidden is None else scores.masked_fill(hidden, -torch.inf)


def sharpened(model: nn.Module) -> nn.Module:
    """With weights so large that attention is not even."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "in_proj_weight" in name or "qkv" in name or "_proj_weight" in name:
                p.mul_(3)
    return model


@pytest.mark.parametrize("hidden", ["nothing", "padding", "later", "both"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_an_encoder_of_torch(batch_first: bool, hidden: str) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=batch_first)
    model = sharpened(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    padding = PADDING if hidden in ("padding", "both") else None
    mask = CAUSAL if hidden in ("later", "both") else None
    x = INPUT if batch_first else INPUT.transpose(0, 1)
    found = measured(Attention, model, lambda m: m(x, mask=mask, src_key_padding_mask=padding))
    before: list[Tensor] = []
    for encoder in model.layers:
        encoder.self_attn.register_forward_pre_hook(lambda _, args: before.append(args[0]))
    model(x, mask=mask, src_key_padding_mask=padding)
    every = torch.zeros(2, 1, 9, 9, dtype=torch.bool)
    every = every if padding is None else every | padding[:, None, None]
    every = every if mask is None else every | mask
    for i, entered in enumerate(before):
        scores = projected(entered if batch_first else entered.transpose(0, 1), model.layers[i].self_attn, every)
        got = [found[s, f"layers.{i}.self_attn"] for s in ("attention_logit_max", "attention_entropy")]
        assert got == pytest.approx(naive(scores, None if padding is None else ~padding)[:2], rel=1e-5)


class Cross(nn.Module):
    """Queries of one input, keys of another and narrower one, weights returned."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.attend = nn.MultiheadAttention(16, 2, kdim=6, vdim=6, batch_first=True)

    def forward(self, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
        out, _ = self.attend(self.norm(x), y, y, attn_mask=mask, need_weights=True)
        return out  # type: ignore[no-any-return]


@pytest.mark.parametrize("per_head", [True, False])
def test_keys_of_another_width_with_an_added_mask(per_head: bool) -> None:
    torch.manual_seed(0)
    model, y = sharpened(Cross()), torch.randn(2, 5, 6)
    mask = torch.randn(4, 9, 5) if per_head else torch.randn(9, 5)
    found = measured(Attention, model, lambda m: m(INPUT, y, mask))
    q = split(model.norm(INPUT), model.attend.q_proj_weight, model.attend.in_proj_bias[:16], 2)
    k = split(y, model.attend.k_proj_weight, model.attend.in_proj_bias[16:32], 2)
    added = mask.reshape(2, 2, 9, 5) if per_head else mask
    wanted = naive(q @ k.transpose(-1, -2) / math.sqrt(8) + added)
    assert [found[s, "attend"] for s in ("attention_logit_max", "attention_entropy", "attention_entropy_min")] == (
        pytest.approx(wanted, rel=1e-5)
    )


@pytest.mark.parametrize("fused", [True, False])
def test_a_vit_of_timm_with_and_without_its_fused_kernel(fused: bool) -> None:
    torch.manual_seed(0)
    model = timm.models.VisionTransformer(
        img_size=16, patch_size=4, embed_dim=16, depth=2, num_heads=2, qk_norm=True, class_token=True, num_classes=3
    )
    sharpened(model)
    entered: list[Tensor] = []
    for block in model.blocks:
        block.attn.fused_attn = fused
    images = torch.randn(2, 3, 16, 16)
    found = measured(Attention, model, lambda m: m(images))
    for block in model.blocks:
        block.attn.register_forward_pre_hook(lambda _, args: entered.append(args[0]))
    model(images)
    for i, x in enumerate(entered):
        attention = model.blocks[i].attn
        q, k, _ = split(x, attention.qkv.weight, attention.qkv.bias, 6).float().chunk(3, dim=1)
        q, k = attention.q_norm(q).detach().double(), attention.k_norm(k).detach().double()
        got = [found[s, f"blocks.{i}.attn"] for s in ("attention_logit_max", "attention_entropy")]
        assert got == pytest.approx(naive(q @ k.transpose(-1, -2) / math.sqrt(8))[:2], rel=2e-5)


class Handwritten(nn.Module):
    """A block that attends by itself, after nanoGPT with one head (`kernel`), or with its own softmax."""

    def __init__(self, kernel: bool) -> None:
        super().__init__()
        self.kernel = kernel
        self.norm = nn.LayerNorm(16)
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))

    def scores(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        found: Tensor = self.query(x) @ self.key(x).transpose(1, 2)
        return found

    def forward(self, x: Tensor) -> Tensor:
        if self.kernel:
            y = self.norm(x)
            parts = (layer(y).unsqueeze(1) for layer in (self.query, self.key, self.value))
            return x + F.scaled_dot_product_attention(*parts, is_causal=True, scale=1.0).squeeze(1)
        weights = self.scores(x).masked_fill(CAUSAL, -torch.inf).softmax(dim=-1)
        return x + weights @ self.value(self.norm(x))


@pytest.mark.parametrize("kernel", [True, False])
def test_a_hand_written_block_is_known_by_its_projections(kernel: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Handwritten(kernel), nn.Linear(16, 4))
    found = measured(Attention, model, lambda m: m(INPUT))
    wanted = naive(model[0].scores(INPUT).detach().masked_fill(CAUSAL, -torch.inf).unsqueeze(1))
    assert [found["attention_logit_max", "0"], found["attention_entropy", "0"]] == pytest.approx(wanted[:2], rel=1e-5)


def test_of_long_sequences_some_queries_of_two_sequences_are_read() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(5, 2, 600, 4), torch.randn(5, 2, 600, 4)
    scores = (q @ k.transpose(-1, -2) / 2).masked_fill(torch.ones(600, 600).triu(1) > 0, -torch.inf)
    got, queries = summary(scores_of(q, k, is_causal=True)[0])
    read = scores[[0, 2]][:, :, ::5]
    assert int(queries) == 2 * 2 * 119  # of 120 each, without the first, which sees one key
    assert got.tolist() == pytest.approx(naive(read), rel=1e-5)
    assert got[0] <= scores.amax()


MASKS: dict[str, Tensor | None] = {
    "none": None,
    "bool": torch.rand(2, 1, 7, 9, generator=torch.Generator().manual_seed(1)) > 0.3,
    "per key": torch.rand(2, 1, 1, 9, generator=torch.Generator().manual_seed(2)) > 0.3,
    "added": torch.randn(7, 9, generator=torch.Generator().manual_seed(3)),
    "added per head": torch.randn(1, 4, 7, 9, generator=torch.Generator().manual_seed(4)),
}


@pytest.mark.parametrize("scale", [None, 0.7])
@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("mask", MASKS)
def test_the_softmax_of_the_scores_is_what_the_kernel_attends_with(mask: str, heads: int, scale: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, h, t, 8, generator=generator) for h, t in ((4, 7), (heads, 9), (heads, 9)))
    wanted = F.scaled_dot_product_attention(q, k, v, MASKS[mask], scale=scale, enable_gqa=True)
    scores, _ = scores_of(q, k, MASKS[mask], scale=scale)
    torch.testing.assert_close(scores.softmax(-1) @ v.repeat_interleave(4 // heads, 1), wanted, rtol=1e-5, atol=1e-6)


def test_the_kernels_triangle_begins_at_the_first_key() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, t, 8, generator=generator) for t in (5, 9, 9))
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(scores_of(q, k, is_causal=True)[0].softmax(-1) @ v, wanted, rtol=1e-5, atol=1e-6)


def test_windows_and_heads_in_one_dimension_are_told_apart() -> None:
    windows, _ = scores_given(torch.randn(2, 6, 4, 7, 7), 4)
    folded, _ = scores_given(torch.randn(8, 7, 7), 4)
    assert (windows.shape, folded.shape) == ((2, 4, 7, 7), (2, 4, 7, 7))


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ([0.0, 0.0, 0.0], [0.0, 1.0, 1.0]),
        ([2.0, -INF, -INF], [2.0, NAN, NAN]),
        ([-INF, -INF, -INF], [NAN, NAN, NAN]),
        ([1.0, NAN, 1.0], [INF, INF, INF]),
        ([INF, 0.0, 0.0], [INF, INF, INF]),
        ([3.0, 3.0, torch.finfo(torch.float32).min], [3.0, 1.0, 1.0]),
        ([3.0, 3.0, -1e9], [3.0, 1.0, 1.0]),
        ([9000.0, 0.0, -9000.0], [9000.0, 0.0, 0.0]),
        ([0.0, -1.0, -50.0], [NAN, 0.5299, 0.5299]),
    ],
)
def test_what_one_row_of_scores_says(row: list[float], wanted: list[float]) -> None:
    found, _ = summary(torch.tensor(row).expand(1, 2, 4, 3))
    assert found.tolist() == pytest.approx(wanted, rel=1e-3, abs=1e-6, nan_ok=True)


def test_micro_batches_have_one_largest_and_a_mean_weighted_by_queries() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Handwritten(kernel=True), nn.Linear(16, 4))
    inputs = INPUT, 2 * INPUT[:1, :4]
    one, two = (measured(Attention, model, lambda m, x=x: m(x)) for x in inputs)
    both = measured(Attention, model, *(lambda m, x=x: m(x) for x in inputs))
    assert both["attention_logit_max", "0"] == max(found["attention_logit_max", "0"] for found in (one, two))
    wanted = (16 * one["attention_entropy", "0"] + 3 * two["attention_entropy", "0"]) / 19
    assert both["attention_entropy", "0"] == pytest.approx(wanted, rel=1e-6)


def test_a_step_without_layers_reads_nothing() -> None:
    model = nn.Sequential(Handwritten(kernel=True), nn.Linear(16, 4))
    tap = Attention(parts_of(model))
    model(INPUT)
    assert all(value == value for value in read(tap).values())
    tap.arm(Due())
    model(INPUT)
    assert all(value != value for value in read(tap).values())
