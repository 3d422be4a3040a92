"""What is refused before the first step, by name; afterwards nothing is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from stabmon import Monitor
from stabmon.runlog import read
from tests.trainings import Keep, Network, adamw, rows, watched


def refused(folder: Path, model: Any, optimizer: Any, **given: Any) -> str:
    with pytest.raises((TypeError, ValueError)) as caught:
        Monitor(model, optimizer, **{**watched(folder, Keep()), **given})
    return str(caught.value)


def test_what_is_no_model_and_no_step_are_refused_by_name(tmp_path: Path) -> None:
    network = Network()
    assert refused(tmp_path, None, adamw(network)).startswith("model=NoneType: must be the torch.nn.Module")
    for start in (-1, 2.5, "3"):
        assert refused(tmp_path, network, adamw(network), start_step=start).startswith(f"start_step={start!r}:")


def test_a_model_that_has_no_shape_yet_is_refused_and_left_without_hooks(tmp_path: Path) -> None:
    network = Network()
    network.head = nn.LazyLinear(4)
    told = refused(tmp_path, network, adamw(network))
    assert told == "model: head.weight has no shape yet; call the model once before making the Monitor"
    assert not any(m._forward_pre_hooks for m in network.modules() if m is not network.head)


def test_a_model_that_has_no_values_yet_is_refused_and_left_without_hooks(tmp_path: Path) -> None:
    network = Network().to("meta")
    told = refused(tmp_path, network, adamw(network))
    assert told.startswith("model: embedding.weight is on the meta device and has no values; make optimizer and")
    assert not any(m._forward_pre_hooks for m in network.modules())


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    network = Network()
    assert "has 256 bytes" in refused(tmp_path, network, adamw(network), run="ü" * 128)


@pytest.mark.parametrize(("given", "name"), [("../../etc/x", "-..-etc-x"), ("team/run 1", "team-run 1")])
def test_a_trackers_id_never_leads_out_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, name: str
) -> None:
    monkeypatch.setenv("WANDB_RUN_ID", given)
    network = Network()
    with Monitor(network, adamw(network), **watched(tmp_path, Keep())) as monitor:
        assert monitor.run_log == tmp_path / "runs" / f"{name}.stabmon"


@pytest.mark.parametrize("wrong", [None, "low", torch.ones(2)])
def test_an_evaluation_without_a_number_raises_before_the_first_step_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: Any
) -> None:
    network = Network()
    with Monitor(network, adamw(network), **watched(tmp_path, Keep())) as monitor:
        with pytest.raises((TypeError, ValueError), match="loss="):
            monitor.evaluated(wrong)
        network(**{key: value[None] for key, value in rows()[0].items()})["loss"].backward()
        monitor.step()
        monitor.evaluated(wrong)
    assert "an evaluation of step 1 is not recorded: loss=" in caplog.text


def test_a_forked_child_that_exits_does_not_end_its_parents_run(tmp_path: Path) -> None:
    network = Network()
    with Monitor(network, adamw(network), **watched(tmp_path, Keep())) as monitor:
        monitor.step(1.0)
        if (child := os.fork()) == 0:
            monitor.close("stopped")  # what the interpreter does at exit
            os._exit(0)
        os.waitpid(child, 0)
        assert monitor.run_log is not None
        assert read(monitor.run_log).state == "running"
