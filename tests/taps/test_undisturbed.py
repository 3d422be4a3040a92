import random
import sys
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stabmon.taps.hooks import Hook
from stabmon.taps.probe.undisturbed import undisturbed


class Restless(nn.Module):
    """Draws from every random source, counts its calls, and keeps what it computed."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        self.calls = 0
        self.kept: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.kept = self.inner(x) + torch.rand(()) + random.random() + np.random.rand()
        self.added = self.kept
        return self.kept


class Compilable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(4, 4), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.dropout(self.linear(x))
        return y


def states() -> tuple[list[int], object, list[int]]:
    return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]


def test_random_states_of_torch_python_and_numpy_are_as_before() -> None:
    model, before = Restless(), states()
    with undisturbed(model):
        model(torch.ones(1, 4))
        assert states() != before
    assert states() == before


def test_attributes_that_a_forward_rebinds_are_as_before() -> None:
    model = Restless()
    model(torch.ones(1, 4))
    del model.added
    kept = model.kept
    with undisturbed(model):
        model(torch.ones(1, 4))
        assert model.calls == 2
    assert model.calls == 1
    assert model.kept is kept
    assert not hasattr(model, "added")


def test_each_module_gets_its_own_training_flag_back() -> None:
    model = Restless().train()
    model.inner[1].eval()  # a user froze the dropout alone
    with undisturbed(model):
        assert [m.training for m in model.modules()] == [False] * 4
    assert [m.training for m in model.modules()] == [True, True, True, False]


def test_an_exception_leaves_all_as_before() -> None:
    model = Restless().train()
    before = states()
    with pytest.raises(RuntimeError, match="mat1 and mat2"), undisturbed(model):
        model(torch.ones(1, 5))
    assert states() == before
    assert all(m.training for m in model.modules())
    assert model.calls == 0


def test_autocast_and_reduced_precision_are_off_inside_and_back_after() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with undisturbed(nn.Linear(2, 2)):
                assert not torch.is_autocast_enabled("cpu")
                assert torch.backends.cuda.matmul.fp32_precision == "ieee"
                assert not torch.backends.mha.get_fastpath_enabled()
            assert torch.is_autocast_enabled("cpu")
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.mha.get_fastpath_enabled()
    finally:
        torch.set_float32_matmul_precision("highest")


def settings() -> tuple[object, ...]:
    backends: Any = torch.backends
    precisions = (backends.cuda.matmul, backends.cudnn.conv, backends.mkldnn.matmul)
    return (
        backends.mha.get_fastpath_enabled(),
        *(getattr(p, "fp32_precision", None) for p in precisions),
        backends.cudnn.allow_tf32,
        Hook.silenced,
        states(),
    )


def test_two_threads_take_turns_and_leave_all_as_before() -> None:
    models, first_is_in, second_is_in, overlapped = (Restless(), Restless()), Event(), Event(), []
    before = settings()

    def one() -> None:
        with undisturbed(models[0]):
            first_is_in.set()
            overlapped.append(second_is_in.wait(0.3))
            torch.rand(())

    def two() -> None:
        first_is_in.wait(10)
        with undisturbed(models[1]):
            second_is_in.set()
            first.join(10)
            torch.rand(())

    first, second = Thread(target=one), Thread(target=two)
    first.start()
    second.start()
    second.join(10)
    assert overlapped == [False]
    assert settings() == before


def test_one_thread_may_enter_twice() -> None:
    models = Restless(), Restless()
    before = settings()
    with undisturbed(models[0]), undisturbed(models[1]):
        torch.rand(())
    assert settings() == before


def test_who_waits_for_too_long_gives_up_and_leaves_all_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stabmon.taps.probe.undisturbed.PATIENCE", 0.05)
    model, told = Restless(), []

    def other() -> None:
        try:
            with undisturbed(model):
                pass
        except TimeoutError as error:
            told.append(str(error))

    with undisturbed(nn.Linear(2, 2)):
        thread = Thread(target=other)
        thread.start()
        thread.join(10)
    assert told == ["another thread's model has run for 0 s"]
    assert all(m.training for m in model.modules())


def test_the_forward_that_accelerate_wrapped_in_autocast_runs_without_it() -> None:
    from accelerate import Accelerator

    model = Accelerator(cpu=True, mixed_precision="bf16").prepare(nn.Linear(64, 8, bias=False))
    wrapped, x = vars(model)["forward"], torch.randn(3, 64)
    full = x.double() @ model.weight.double().T
    assert (model(x) - full).abs().max() > 1e-3
    with undisturbed(model):
        assert (model(x) - full).abs().max() < 1e-5
    assert vars(model)["forward"] is wrapped


def test_a_compiled_model_runs_eagerly_and_is_not_compiled_again() -> None:
    compiled: list[int] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> torch.fx.GraphModule:
        compiled.append(1)
        return graph

    model = Compilable()
    model.compile(backend=backend)
    model(torch.ones(2, 4))
    assert "torch._dynamo" in sys.modules
    assert len(compiled) == 1
    with undisturbed(model):
        model(torch.ones(2, 4))
    model(torch.ones(2, 4))
    assert len(compiled) == 1
