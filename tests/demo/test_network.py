import math

import pytest
import torch
import torch.nn.functional as F

from stabmon.demo.network import Network
from stabmon.demo.text import batches, read_text


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
