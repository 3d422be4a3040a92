import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F

from stabmon.demo import Network, Plan, batches, entropies, patience, read_text


def test_patience_speaks_once_the_wait_is_over() -> None:
    losses = [3.0, 2.0, *[2.5] * 200]
    assert patience(losses, 100) == 102  # best at step 2


def test_patience_starts_again_at_every_new_best() -> None:
    losses = [3.0, *[3.1] * 99, 2.9, *[3.1] * 99]
    assert patience(losses, 100) is None
    assert patience([*losses, 2.9], 100) == 201  # equal is not better


def test_patience_counts_steps_without_a_finite_loss() -> None:
    assert patience([1.0, *[math.nan] * 3], 3) == 4


def test_entropies_equal_those_counted_by_hand() -> None:
    data = read_text()[:5000]
    tokens = data.tolist()
    singles, firsts, pairs = Counter(tokens), Counter(tokens[:-1]), Counter(zip(tokens, tokens[1:], strict=False))
    unigram = -sum(n / 5000 * math.log(n / 5000) for n in singles.values())
    bigram = -sum(n / 4999 * math.log(n / firsts[first]) for (first, _), n in pairs.items())
    assert entropies(data) == pytest.approx((unigram, bigram), rel=1e-12)


def test_text_that_repeats_ab_has_unigram_entropy_ln_2_and_bigram_entropy_0() -> None:
    text = torch.tensor([97, 98] * 5000, dtype=torch.uint8)
    assert entropies(text) == pytest.approx((math.log(2), 0.0), abs=1e-12)


def test_targets_are_the_inputs_one_byte_on() -> None:
    inputs, targets = next(batches(read_text(), seed=0))
    assert inputs.shape == targets.shape == (16, 64)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_the_same_seed_gives_the_same_batches_whatever_torch_drew_before() -> None:
    text = read_text()
    first = next(batches(text, seed=3))[0]
    torch.rand(7)
    assert torch.equal(next(batches(text, seed=3))[0], first)
    assert not torch.equal(next(batches(text, seed=4))[0], first)


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_a_later_byte_leaves_earlier_logits_as_they_were(placement: str) -> None:
    torch.manual_seed(0)
    model = Network(placement)
    tokens = torch.randint(256, (2, 64))
    changed = tokens.clone()
    changed[:, 40] = (changed[:, 40] + 1) % 256
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :40], after[:, :40])
    assert not torch.allclose(before[:, 40], after[:, 40])


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_the_first_loss_is_that_of_xavier_logits(placement: str) -> None:
    # A normed vector has d unit entries, a Xavier entry the variance 2/(d+V): logits vary by 2d/(d+V) = 2/3,
    # and a loss over V logits of variance s^2, blind to the target, is ln V + s^2/2 = 5.88.
    torch.manual_seed(0)
    inputs, targets = next(batches(read_text(), seed=0))
    loss = F.cross_entropy(Network(placement)(inputs).flatten(0, 1), targets.flatten())
    assert loss.item() == pytest.approx(math.log(256) + 1 / 3, abs=0.15)


def test_the_network_has_8_blocks_of_two_norms_and_zero_biases() -> None:
    for placement, norms in (("post", 16), ("pre", 17)):
        model = Network(placement)
        assert sum(isinstance(module, torch.nn.LayerNorm) for module in model.modules()) == norms
        assert all(not p.any() for name, p in model.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("placement", "mid"),
        ("optimizer", "lion"),
        ("lr", 0.0),
        ("lr", math.nan),
        ("steps", 0),
        ("warmup", -1),
        ("device", "gpu"),
    ],
)
def test_a_bad_option_is_named_with_its_value(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{option} is {value!r}") as caught:
        Plan(**{option: value})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
