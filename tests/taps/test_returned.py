from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stabmon.taps.probe.calls import Call
from stabmon.taps.probe.fitting import fit
from stabmon.taps.probe.probe import Answer
from stabmon.taps.probe.returned import last_classes, output_of


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def ids(*shape: int, high: int = 4) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(1))


class Returns(nn.Module):
    """Returns whatever it is told to make of its linear layer's output."""

    def __init__(self, shape: Any, **config: Any) -> None:
        super().__init__()
        self.linear, self.norm, self.shape = nn.Linear(3, 4), nn.LayerNorm(4), shape
        self.config = SimpleNamespace(**config)

    def forward(self, x: Tensor, **_: Any) -> Any:
        return self.shape(self.linear(x))


def answer(model: nn.Module, call: Call, targets: Tensor | None = None, norms: tuple[nn.Module, ...] = ()) -> Answer:
    return fit(model, call, targets, norms)({}, lambda found: found)


X = torch.randn(2, 5, 3)


@pytest.mark.parametrize(
    ("shape", "output", "loss"),
    [
        (lambda z: z, True, None),
        (lambda z: (z, z.sum()), True, "sum"),
        (lambda z: (z.sum(), z), True, "sum"),
        (lambda z: {"aux": z.mean(), "hidden": 2 * z, "logits": z}, True, None),
        (lambda z: {"loss": z.sum(), "hidden": z}, True, "sum"),
        (lambda z: z.sum(), False, "sum"),
    ],
    ids=["tensor", "tuple", "hf tuple", "mapping", "mapping with loss", "loss alone"],
)
def test_output_and_loss_are_found_in_what_the_model_returns(shape: Any, output: bool, loss: str | None) -> None:
    model = Returns(shape)
    found = answer(model, Call((X,), {"labels": ids(2, 5)}))
    z = model.linear(X).detach()
    assert (found.z is not None) is output
    if found.z is not None:
        torch.testing.assert_close(found.z, (z - z.mean(-1, keepdim=True)).reshape(10, 4))
    assert (found.loss is None) is (loss is None)
    if found.loss is not None:
        assert found.loss.item() == pytest.approx(z.sum().item(), rel=1e-6)


@pytest.mark.parametrize("ignored", [-100, -1])
@pytest.mark.parametrize("targets", [ids(2, 5), ids(10)], ids=["[B, T]", "[B*T]"])
def test_given_targets_make_the_loss_and_negative_ones_do_not_count(targets: Tensor, ignored: int) -> None:
    targets = targets.clone()
    targets.view(-1)[3] = ignored
    model = Returns(lambda z: z)
    found = answer(model, Call((X,), {}), targets)
    log_p = model.linear(X).detach().reshape(10, 4).log_softmax(-1)
    picked = [-log_p[i, t].item() for i, t in enumerate(targets.flatten().tolist()) if t >= 0]
    assert found.loss is not None
    assert found.loss.item() == pytest.approx(sum(picked) / 9, rel=1e-6)
    assert found.supervised


@pytest.mark.parametrize(
    ("returned", "targets", "classes"),
    [
        ((2, 7, 5), (2, 5), (2, 5, 7)),
        ((2, 5, 7), (2, 5), (2, 5, 7)),
        ((2, 5, 5), (2, 5), (2, 5, 5)),
        ((2, 3, 4, 5), (2, 4, 5), (2, 4, 5, 3)),
        ((2, 4, 5, 3), (2, 4, 5), (2, 4, 5, 3)),
        ((2, 3, 4, 5), None, (2, 4, 5, 3)),
        ((2, 5, 7), None, (2, 5, 7)),
        ((2, 7), (2,), (2, 7)),
    ],
)
def test_where_the_classes_are_is_told_by_the_targets(
    returned: tuple[int, ...], targets: tuple[int, ...] | None, classes: tuple[int, ...]
) -> None:
    given = None if targets is None else torch.zeros(targets, dtype=torch.long)
    output = output_of(torch.zeros(returned), given)
    assert output is not None
    assert output.shape == last_classes(torch.Size(returned), given) == classes


@pytest.mark.parametrize("wrong", [4, 50_256])
def test_targets_that_are_no_classes_of_the_output_make_no_loss_to_be_read(wrong: int) -> None:
    """As where the model returns hidden states, and the head is in the loss."""
    targets = ids(2, 5).clone()
    targets[0, 0] = wrong
    assert not answer(Returns(lambda z: z), Call((X,), {}), targets).supervised
    assert not answer(Returns(lambda z: z), Call((X,), {}), torch.full((2, 5), -100)).supervised
    own = answer(Returns(lambda z: {"loss": z.sum(), "hidden": z}), Call((X,), {}), targets)
    assert own.supervised, "its own loss is another matter"


def test_targets_of_another_shape_make_no_loss() -> None:
    model = Returns(lambda z: z)
    assert answer(model, Call((X,), {}), ids(5, 2)).loss is None
    assert answer(model, Call((X,), {}), torch.randn(2, 5)).loss is None


def test_without_an_output_that_of_the_last_norm_stands_for_it_uncentred() -> None:
    model = Returns(lambda z: model.norm(z).sum())
    found = answer(model, Call((X,), {"labels": ids(2, 5)}), norms=(model.norm,))
    assert found.z is not None
    assert not found.classes
    torch.testing.assert_close(found.z, model.norm(model.linear(X)).reshape(10, 4))
    assert len(model.norm._forward_hooks) == 0


def test_an_image_has_its_channels_as_values_and_its_pixels_as_positions() -> None:
    model = nn.Conv2d(3, 4, 1)
    x = torch.randn(2, 3, 5, 6)
    z = model(x).permute(0, 2, 3, 1).reshape(60, 4)
    found = answer(model, Call((x,), {}))
    assert found.z is not None
    torch.testing.assert_close(found.z, z)
    segmented = answer(model, Call((x,), {}), ids(2, 5, 6))
    assert segmented.classes
    assert segmented.loss is not None
    expected = nn.functional.cross_entropy(model(x), ids(2, 5, 6))
    assert segmented.loss.item() == pytest.approx(expected.item(), rel=1e-6)


# ---------------------------------------------------------------------- classes


def plain(z: Tensor) -> Any:
    return z


def logits(z: Tensor) -> Any:
    return {"logits": z}


@pytest.mark.parametrize(
    ("shape", "config", "labels", "classes"),
    [
        (plain, {}, ids(2, 5), True),
        (plain, {}, torch.randn(2, 5, 4), False),
        (plain, {}, None, False),
        (logits, {}, None, True),
        (logits, {}, torch.randn(2, 5), False),
        (logits, {"problem_type": "regression"}, None, False),
        (logits, {"problem_type": "multi_label_classification"}, ids(2, 5), False),
        (lambda z: {"logits": z[..., :1]}, {}, ids(2, 5), False),
    ],
)
def test_an_output_predicts_classes_where_targets_or_its_name_say_so(
    shape: Any, config: dict[str, str], labels: Tensor | None, classes: bool
) -> None:
    given = {} if labels is None else {"labels": labels}
    assert answer(Returns(shape, **config), Call((X,), given)).classes is classes


def test_an_output_for_each_integer_that_went_in_predicts_classes() -> None:
    model = nn.Sequential(nn.Embedding(7, 3), nn.Linear(3, 7))
    assert answer(model, Call((ids(2, 5),), {})).classes


# ---------------------------------------------------------------------- padding

MASK = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])


@pytest.mark.parametrize(
    ("given", "config"),
    [
        ({"attention_mask": MASK}, {}),
        ({"src_key_padding_mask": MASK == 0}, {}),
        ({"decoder_attention_mask": MASK, "attention_mask": 1 - MASK}, {"is_encoder_decoder": True}),
        ({"labels": torch.where(MASK > 0, 1, -100), "attention_mask": 1 - MASK}, {"is_encoder_decoder": True}),
    ],
    ids=["attention_mask", "key padding", "decoder mask", "labels of a decoder"],
)
def test_padding_does_not_count_and_is_0(given: dict[str, Tensor], config: dict[str, Any]) -> None:
    model = Returns(plain, **config)
    found = answer(model, Call((X,), given))
    assert found.z is not None
    assert found.weights is not None
    assert found.weights.tolist() == MASK.flatten().tolist()
    assert torch.equal(found.z.abs().sum(-1) > 0, MASK.flatten() > 0)


def test_a_mask_of_another_shape_is_not_the_outputs() -> None:
    assert answer(Returns(plain), Call((X,), {"attention_mask": torch.ones(2, 9)})).weights is None
