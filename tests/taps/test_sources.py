import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stabmon.settings import Settings
from stabmon.taps.parts import Parts, examine
from stabmon.taps.probe import fitting, sources
from stabmon.taps.probe.calls import Call
from stabmon.taps.probe.sources import FirstCall, given_probe, source_of


def ids(*shape: int) -> Tensor:
    return torch.randint(7, shape, generator=torch.Generator().manual_seed(1))


class Pieces(nn.Module):
    """An encoder and a decoder that a loop calls one after the other; the whole has no forward."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Embedding(7, 8), nn.LayerNorm(8))
        self.decoder = nn.Linear(8, 7)


def in_pieces(model: Pieces, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    logits: Tensor = model.decoder(model.encoder(batch["x"]))
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch["y"].flatten()), logits


def whole() -> nn.Sequential:
    return nn.Sequential(nn.Embedding(7, 8), nn.LayerNorm(8), nn.Linear(8, 7))


@contextmanager
def parts_of(model: nn.Module) -> Iterator[Parts]:
    parts = examine(model, [torch.optim.SGD(model.parameters(), lr=0.1)], Settings.of())
    try:
        yield parts
    finally:
        parts.forward.detach()
        parts.norm_tap.detach()


# ---------------------------------------------------------------------- a batch of the user's


@pytest.mark.parametrize("batch", [ids(2, 5), (ids(2, 5),), {"input": ids(2, 5)}], ids=["tensor", "tuple", "dict"])
def test_a_given_batch_is_what_the_model_is_called_with(batch: Any) -> None:
    model = whole()
    probe = given_probe(model, Settings.of(probe=batch))
    assert probe is not None
    z = probe({}, lambda answer: answer.z)
    logits = model(ids(2, 5)).reshape(10, 7)
    assert z is not None
    torch.testing.assert_close(z, logits - logits.mean(-1, keepdim=True))


def test_a_given_batch_keeps_512_tokens() -> None:
    probe = given_probe(whole(), Settings.of(probe=ids(40, 20)))
    assert probe is not None
    assert torch.equal(probe.call.args[0], ids(40, 20)[:25])


def test_a_function_of_the_users_calls_a_model_that_has_no_forward_of_its_own() -> None:
    model, batch = Pieces(), {"x": ids(2, 5), "y": ids(2, 5)}
    probe = given_probe(model, Settings.of(probe=batch, forward=in_pieces))
    assert probe is not None
    loss, logits = in_pieces(model, batch)
    answer = probe({}, lambda found: found)
    assert answer.loss is not None
    assert answer.z is not None
    assert answer.loss.item() == loss.item()
    assert answer.classes
    torch.testing.assert_close(answer.z, (logits - logits.mean(-1, keepdim=True)).reshape(10, 7))


def test_a_batch_without_tensors_or_that_the_model_does_not_take_is_refused_by_name() -> None:
    model = whole()
    with pytest.raises(
        ValueError, match="^probe=dict: holds no tensor, or only empty ones; give a batch as the model takes it"
    ):
        given_probe(model, Settings.of(probe={"x": [1, 2]}))
    with pytest.raises(ValueError, match="^probe: Sequential called with probe=tuple raised TypeError: .* forward="):
        given_probe(model, Settings.of(probe=(ids(2, 5), ids(2, 5))))
    with pytest.raises(ValueError, match=r"^probe: forward\(model, probe\) raised KeyError: 'x'"):
        given_probe(Pieces(), Settings.of(probe={"z": ids(2, 5)}, forward=in_pieces))


@pytest.mark.parametrize("returned", [None, 3.0])
def test_a_forward_that_returns_no_tensor_and_a_batch_of_nothing_are_refused(returned: float | None) -> None:
    with pytest.raises(ValueError, match=r"returned, and neither logits nor \(loss, logits\)\. Give"):
        given_probe(whole(), Settings.of(probe=ids(2, 5), forward=lambda model, batch: returned))
    with pytest.raises(ValueError, match="^probe=Tensor: holds no tensor, or only empty ones"):
        given_probe(whole(), Settings.of(probe=ids(0, 5)))


def test_trying_a_batch_leaves_no_trace() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rng = torch.get_rng_state()
    given_probe(model, Settings.of(probe=torch.randn(5, 3, generator=torch.Generator().manual_seed(0))))
    assert torch.equal(torch.get_rng_state(), rng)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(m.training for m in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_the_last_norm_stands_in_only_where_the_model_returns_no_output() -> None:
    model = whole()
    batch = ids(2, 5)
    returns, sums = (Settings.of(probe=batch, forward=f) for f in (nn.Module.__call__, lambda m, x: m(x).sum()))
    for settings, norms in ((returns, ()), (sums, [model[1]])):
        probe = given_probe(model, settings)
        with parts_of(model) as parts:
            found = source_of(probe, parts, settings, lambda: None)()
        assert found is not None
        assert found.norms == norms


# ---------------------------------------------------------------------- which it is


def test_a_given_probe_comes_before_the_first_call_which_is_let_go_of() -> None:
    model = whole()
    settings = Settings.of(probe=ids(2, 5))
    probe = given_probe(model, settings)
    with parts_of(model) as parts:
        source = source_of(probe, parts, settings, lambda: None)
        model(ids(3, 5))
        found = source()
        assert parts.forward.take_first() is None
    assert found is not None
    assert torch.equal(found.call.args[0], ids(2, 5))


def test_a_model_of_over_a_billion_parameters_has_no_probe_unless_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sources, "MAX_PARAMETERS", 10)
    model = whole()
    with parts_of(model) as parts, caplog.at_level(logging.WARNING, "stabmon"):
        source = source_of(None, parts, Settings.of(), lambda: None)
        model(ids(2, 5))
        assert source() is None
        assert source() is None
        asked = source_of(None, parts, Settings.of(probe_every=50), lambda: None)
    assert isinstance(asked, FirstCall)
    assert len(caplog.records) == 1
    assert "not read: copies of 0.0 billion parameters take much memory" in caplog.text


def test_there_is_no_probe_where_little_memory_is_free_unless_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, call = whole(), Call((ids(2, 5),), {})
    monkeypatch.setattr(fitting, "free_bytes", lambda device: 12 * sum(p.numel() for p in model.parameters()))
    with caplog.at_level(logging.WARNING, "stabmon"):
        assert FirstCall(model, (), lambda: call, asked=False)() is None
    assert "little memory is free. To have it read, give probe_every or probe" in caplog.text
    assert FirstCall(model, (), lambda: call, asked=True)() is not None


def test_half_weights_are_not_widened_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    model = whole().bfloat16()
    count = sum(p.numel() for p in model.parameters())
    for free, wide in ((16 * count, False), (16 * count + 1, True)):
        monkeypatch.setattr(fitting, "free_bytes", lambda device, free=free: free)
        assert fitting.fit(model, Call((ids(2, 5),), {})).wide is wide


def test_a_model_that_is_not_all_on_this_rank_is_not_called() -> None:
    model = whole()
    model[2].weight.ds_id = 0  # as DeepSpeed ZeRO marks parameters
    assert given_probe(model, Settings.of(probe=ids(2, 5))) is None


def test_no_call_yet_is_no_probe() -> None:
    assert FirstCall(whole(), (), lambda: None)() is None
    assert FirstCall(whole(), (), lambda: Call((ids(2, 5),), {}))() is not None
