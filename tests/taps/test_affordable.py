import pytest
import torch

from stabmon.taps.probe.calls import Call, affordable


@pytest.mark.parametrize(
    ("batch", "time", "tokens"), [(4, 8, 128), (32, 128, 128), (64, 128, 256), (16, 1024, 512), (512, 2048, 512)]
)
def test_a_probe_has_a_32nd_of_the_calls_tokens_between_128_and_512(batch: int, time: int, tokens: int) -> None:
    assert affordable(Call((torch.zeros(batch, time, dtype=torch.int64),), {})) == tokens
