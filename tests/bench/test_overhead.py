from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from stabmon.bench import scrape
from stabmon.bench.figures import BLOCKS, LAYERS, OUTPUT, SCALARS, Cost, Pair, default_shares, rows
from stabmon.bench.isolation import failures_raised, own_settings
from stabmon.bench.overhead import KINDS, Kind, watch
from stabmon.bench.training import Size, Training
from stabmon.cli import app
from stabmon.records import Run, Snapshot
from stabmon.sinks.prometheus import Prometheus

SMALL = ["--layers", "1", "--width", "32", "--batch", "2", "--length", "8"]


def cost(*ratios: float, host: float = 0.0, waits: int = 0) -> Cost:
    return Cost([Pair(off=2.0, on=2.0 * ratio, host=host) for ratio in ratios], waits)


def test_the_last_line_of_json_is_the_rows() -> None:
    done = CliRunner().invoke(app, ["bench", "overhead", "--json", "--pairs", "2", *SMALL])
    assert done.exit_code == 0, done.output
    (name,) = found = json.loads(done.stdout.splitlines()[-1])
    assert name == "rows"
    keys = ["mode", "ratio_median", "ratio_p10", "ratio_p90", "host_ms", "device_waits", "pairs"]
    assert [list(row) for row in found["rows"]] == [keys] * 4
    assert [row["mode"] for row in found["rows"]] == ["default", "every_step", "every_step_output", "per_block"]
    assert [row["device_waits"] for row in found["rows"]] == [0] * 4
    assert [row["pairs"] for row in found["rows"]] == [2] * 4
    assert all(row["host_ms"] > 0 and row["ratio_p10"] <= row["ratio_median"] for row in found["rows"])


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--pairs", "0"], "pairs is 0; give at least 1"),
        (["--layers", "0"], "layers is 0; give at least 1"),
        (["--width", "100"], "width is 100; give a multiple of 32"),
        (["--device", "nowhere"], "device is 'nowhere', which torch cannot use"),
    ],
)
def test_a_wrong_option_is_one_line(option: Sequence[str], said: str) -> None:
    done = CliRunner().invoke(app, ["bench", "overhead", *SMALL, *option])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"stabmon: {said}")
    assert done.stderr.count("\n") == 1


def test_in_500_steps_the_defaults_read_layers_50_times_the_output_10_times_and_the_blocks_once() -> None:
    shares = default_shares()
    assert {due: round(500 * share) for due, share in shares.items()} == {
        SCALARS: 450,
        LAYERS: 40,
        OUTPUT: 9,
        BLOCKS: 1,
    }
    assert sum(shares.values()) == pytest.approx(1)


def test_the_default_is_the_kinds_of_step_by_their_frequency() -> None:
    costs = {
        SCALARS: cost(1.0, 1.0, host=0.001),
        LAYERS: cost(1.1, 1.2, host=0.002),
        OUTPUT: cost(1.5, 1.5, host=0.003, waits=1),
        BLOCKS: cost(2.0, 2.0, host=0.004),
    }
    default, every_step, output, per_block = rows(costs)
    assert default.ratio_median == pytest.approx(1 + 0.15 * 40 / 500 + 0.5 * 9 / 500 + 1.0 / 500)
    assert default.host_ms == pytest.approx((450 + 2 * 40 + 3 * 9 + 4) / 500)
    assert default.device_waits == pytest.approx(9 / 500)
    assert (every_step.ratio_p10, every_step.ratio_median, every_step.ratio_p90) == pytest.approx((1.11, 1.15, 1.19))
    assert (output.ratio_median, output.device_waits, per_block.host_ms) == (1.5, 1, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_each_measured_step_reads_what_it_is_measured_for(kind: Kind, tmp_path: Path) -> None:
    training = Training(Size(layers=1, width=32, batch=2, length=8))
    with watch(kind, training, tmp_path) as monitor:
        for _ in range(1 + kind.steps):
            training.step(monitor)
            taken = monitor.latest
        assert taken is not None
        assert read(taken) == (kind.due.layers, kind.due.probe, kind.due.blocks)


def read(taken: Snapshot) -> tuple[bool, ...]:
    return tuple(
        bool(np.isfinite(taken[name]).all())
        for name in ("norm_gain", "total_output_change_ratio", "output_change_ratio")
    )


def test_the_measured_training_is_bit_identical_with_and_without(tmp_path: Path) -> None:
    final = []
    for watched in (False, True):
        training = Training(Size(layers=2, width=32, batch=2, length=8))
        if watched:
            with watch(KINDS[2], training, tmp_path) as monitor:
                for _ in range(6):
                    training.step(monitor)
        else:
            for _ in range(6):
                training.step()
        final.append([p.detach().clone() for p in training.model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*final, strict=True))


def test_a_part_that_failed_is_not_taken_for_a_cheap_one() -> None:
    broken = ValueError("broken")
    with pytest.raises(RuntimeError, match="failed while it was measured: norms failed .*broken"), failures_raised():
        logging.getLogger("stabmon").error("norms failed", exc_info=broken)


def test_settings_of_the_machine_are_out_of_the_way_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STABMON_DISABLED", "1")
    with own_settings():
        assert "STABMON_DISABLED" not in os.environ
    assert os.environ["STABMON_DISABLED"] == "1"


def test_the_scrape_that_is_measured_has_about_2000_series() -> None:
    metrics = Prometheus(Run("bench", started=0.0))
    metrics.emit(scrape.snapshot(1), [], [])
    series = [line for line in metrics.render().decode().splitlines() if not line.startswith("#")]
    assert 2000 <= len(series) < 2100
    assert scrape.seconds(2) > 0
