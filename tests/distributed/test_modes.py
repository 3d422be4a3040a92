"""What two processes read together, against one process that sees all of it: the quick part of `bench ranks`."""

from __future__ import annotations

import math

import pytest

from stabmon.bench.ranks import Line, measure

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore::FutureWarning:torch")

MODES = ["ddp", "fsdp2", "tensor_parallel", "pipeline"]


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    return measure(2, MODES, "standard")


def of(lines: list[Line], mode: str) -> dict[str, Line]:
    return {line.statistic: line for line in lines if line.mode == mode}


@pytest.mark.parametrize("mode", MODES)
def test_per_layer_values_are_those_of_one_process(lines: list[Line], mode: str) -> None:
    found = of(lines, mode)
    always = ("loss", "norm_input_msq", "norm_input_var", "norm_gain", "grad_sq", "total_grad_sq", "weight_sq")
    for statistic in (*always, "update_sq", "final_norm_input_msq", "activation_max", "learning_rate"):
        error = found[statistic].relative_error
        assert error is not None, statistic
        assert error <= 1e-5, statistic
    wrong = {s: line.relative_error for s, line in found.items() if not line.right}
    assert wrong == {}


@pytest.mark.parametrize("mode", MODES)
def test_one_collective_in_a_sampled_step_and_none_in_others(lines: list[Line], mode: str) -> None:
    counts = {(line.collectives_per_sample, line.collectives_otherwise) for line in of(lines, mode).values()}
    assert counts == {(1, 0)}


@pytest.mark.parametrize("mode", MODES)
def test_parameters_are_bit_for_bit_those_without_stabmon(lines: list[Line], mode: str) -> None:
    assert of(lines, mode)["parameters"].relative_error == 0.0


def test_the_output_change_is_read_under_ddp_alone(lines: list[Line]) -> None:
    read = {mode: of(lines, mode)["output_change_msq"].relative_error is not None for mode in MODES}
    assert read == {"ddp": True, "fsdp2": False, "tensor_parallel": False, "pipeline": False}
    error = of(lines, "ddp")["output_change_msq"].relative_error
    assert error is not None
    assert not math.isnan(error)
