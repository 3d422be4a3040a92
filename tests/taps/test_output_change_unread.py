import math

import pytest
import torch
from torch import Tensor, nn

from stabmon.taps import Due
from stabmon.taps.output_change import OutputChange
from stabmon.taps.probe.calls import Call
from stabmon.taps.probe.sources import FirstCall
from tests.taps.one_update import batch, by_block, copies, read, step, tap_on, tiny_gpt2, whole


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def step_of(model: nn.Module) -> dict[str, Tensor]:
    """theta_t of a random update."""
    return {name: value + 0.1 * torch.randn_like(value) for name, value in copies(model).items()}


def test_without_labels_the_output_is_read_and_the_losses_are_not() -> None:
    model = tiny_gpt2()
    found = whole(read(tap_on(model, Call((), {"input_ids": batch()["input_ids"]}), step(model, 1e-3))))
    unread = {"probe_loss", "actual_loss_change", "predicted_loss_change"}
    assert {name for name, value in found.items() if math.isnan(value)} == unread | {"block_output_change_error"}


def test_a_loss_over_no_label_is_not_read() -> None:
    model, call = tiny_gpt2(), Call((), batch() | {"labels": torch.full((4, 24), -100)})
    found = whole(read(tap_on(model, call, step(model, 1e-3))))
    assert all(math.isnan(found[name]) for name in ("probe_loss", "actual_loss_change", "predicted_loss_change"))
    assert found["output_change_msq"] > 0


def test_a_loss_change_within_the_rounding_of_the_loss_is_not_read() -> None:
    model = tiny_gpt2()
    found = whole(read(tap_on(model, Call((), batch()), step(model, 1e-8))))
    assert math.isnan(found["actual_loss_change"])
    assert -1e-4 < found["predicted_loss_change"] < 0


def test_nothing_is_done_and_nan_is_read_when_not_due() -> None:
    class Untouchable(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            raise AssertionError("ran")

    model = Untouchable(2, 2)
    tap = tap_on(model, Call((torch.ones(1, 2),), {}), copies(model))
    assert all(math.isnan(v) for v in read(tap, Due(layers=True)).values())
    with pytest.raises(AssertionError, match="ran"):
        read(tap)


def test_no_call_yet_reads_nan_and_the_first_call_is_the_probe_from_then_on() -> None:
    model, calls = tiny_gpt2(), [None, Call((), batch()), Call((), {})]
    tap = OutputChange(model, {}, FirstCall(model, (), lambda: calls.pop(0)), lambda: copies(model))
    assert all(math.isnan(v) for v in read(tap).values())
    first, second = read(tap), read(tap)
    assert first["probe_loss", ""] == second["probe_loss", ""]
    assert len(calls) == 1


def test_blocks_are_read_only_when_due() -> None:
    model = tiny_gpt2()
    tap = tap_on(model, Call((), batch()), step(model, 1e-3), blocks=by_block(model))
    found = read(tap, Due(probe=True))
    assert found["output_change_msq", ""] > 0
    assert all(math.isnan(value) for (_, site), value in found.items() if site)


def test_a_step_that_took_no_copies_reads_the_output_and_no_change() -> None:
    model = tiny_gpt2()
    found = whole(read(tap_on(model, Call((), batch()), None)))
    assert found["probe_loss"] == pytest.approx(model.eval()(**batch()).loss.item(), rel=1e-6)
    assert 0 < found["probe_context_share"] < 1
    changes = ("output_change_msq", "output_change_context_msq", "output_change_kl", "actual_loss_change")
    assert all(math.isnan(found[name]) for name in changes)


def test_a_step_that_moved_nothing_reads_the_output_and_no_change() -> None:
    model = tiny_gpt2()
    found = whole(read(tap_on(model, Call((), batch()), copies(model))))
    changes = ("output_change_msq", "output_change_context_msq", "output_change_kl", "output_change_error")
    assert all(math.isnan(found[name]) for name in changes)
    assert 0 < found["probe_context_share"] < 1


def test_an_output_that_predicts_no_classes_has_no_kl() -> None:
    model = nn.Linear(3, 4)
    before = step_of(model)
    found = whole(read(tap_on(model, Call((torch.randn(5, 3),), {}), before, targets=torch.randn(5, 4))))
    assert found["output_change_msq"] > 0
    assert math.isnan(found["output_change_kl"])


def test_values_that_are_read_and_not_finite_are_infinite() -> None:
    model = tiny_gpt2()
    before = copies(model)
    with torch.no_grad():
        model.transformer.ln_f.bias.fill_(torch.nan)
    found = whole(read(tap_on(model, Call((), batch()), before)))
    infinite = {"output_change_msq", "output_change_context_msq", "output_change_kl"}
    assert {name for name, value in found.items() if math.isinf(value)} >= infinite | {"actual_loss_change"}
    assert math.isfinite(found["probe_loss"])


def test_an_output_of_zeros_has_no_context_share() -> None:
    model = nn.Linear(3, 4)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    found = whole(read(tap_on(model, Call((torch.randn(5, 3),), {}), copies(model))))
    assert found["output_msq"] == 0
    assert math.isnan(found["probe_context_share"])


def test_same_answer_at_every_position_has_context_share_0() -> None:
    model = nn.Linear(3, 4)
    nn.init.zeros_(model.weight)
    found = whole(read(tap_on(model, Call((torch.randn(5, 3),), {}), copies(model))))
    assert found["probe_context_share"] < 1e-12


def test_a_single_position_has_no_context_part() -> None:
    model = nn.Linear(3, 4)
    found = whole(read(tap_on(model, Call((torch.randn(1, 3),), {}), step_of(model))))
    assert found["output_change_msq"] > 0
    assert math.isnan(found["output_change_context_msq"])
    assert math.isnan(found["probe_context_share"])
