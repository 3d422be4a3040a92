"""Readings against plain arithmetic."""

import torch

from stabmon.taps.readings import Readings

CPU = torch.device("cpu")


def test_a_mean_counts_each_call_by_its_weight() -> None:
    readings = Readings(2, ["mean", "sum", "max"], CPU)
    readings.add(1, torch.tensor([2.0, 3.0, -5.0]), weight=1)
    readings.add(1, torch.tensor([8.0, 4.0, -7.0]), weight=torch.tensor(2.0))
    assert readings.values()[1].tolist() == [6.0, 7.0, -5.0]
    assert readings.weights()[1].tolist() == [3.0, 2.0, 2.0]
    assert readings.values()[0].isnan().all()


def test_nan_given_is_skipped_and_inf_stays() -> None:
    readings = Readings(1, ["mean", "mean", "max"], CPU)
    readings.add(0, torch.tensor([torch.nan, torch.inf, torch.nan]))
    readings.add(0, torch.tensor([4.0, 1.0, 2.0]))
    assert readings.values()[0].tolist() == [4.0, torch.inf, 2.0]


def test_after_clear_nothing_is_read() -> None:
    readings = Readings(1, ["mean", "max"], CPU)
    readings.add(0, torch.tensor([4.0, 9.0]))
    readings.clear()
    assert readings.values().isnan().all()
    readings.add(0, torch.tensor([1.0, -3.0]))
    assert readings.values()[0].tolist() == [1.0, -3.0]
