from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from torch import nn

from stabmon.records import Layout, Snapshot
from stabmon.taps.model.origin import READINGS, Origin
from stabmon.taps.notices import Notices


def network(frozen: bool = False) -> nn.Module:
    model = nn.Sequential(nn.Linear(30, 30), nn.Linear(3, 3))
    model[0].requires_grad_(not frozen)
    return model


def seen(origin: Origin, losses: list[float], unigrams: list[float]) -> list[float]:
    return [float(origin.see(n, *pair)[0]) for n, pair in enumerate(zip(losses, unigrams, strict=True), 1)]


def test_a_first_loss_far_below_the_unigram_loss_is_recognised_once_the_counts_are_there() -> None:
    origin = Origin(network())
    unigrams = [5.5] + [3.2] * (READINGS + 2)
    found = seen(origin, [2.4] * len(unigrams), unigrams)
    assert found == [0.0] * (READINGS - 1) + [1.0] * (len(unigrams) - READINGS + 1)
    [event] = origin.events
    assert (event.kind, event.step) == ("pretrained", READINGS)
    assert event.detail["why"] == "its first loss, 2.4, is far below the unigram loss, 3.2"


def test_a_run_from_scratch_is_not_recognised_later_when_it_has_learnt() -> None:
    origin = Origin(network())
    assert not any(seen(origin, [5.6, 5.0, 4.0] + [1.0] * 40, [5.5] + [3.2] * 42))
    assert origin.events == []


@pytest.mark.parametrize("nothing", [0.0, inf])
def test_a_first_batch_without_targets_tells_nothing_of_the_weights(nothing: float) -> None:
    unigrams = [nan] + [3.2] * (READINGS + 2)
    assert not any(seen(Origin(network()), [nothing] + [3.5] * (READINGS + 2), unigrams))
    assert any(seen(Origin(network()), [nothing] + [2.4] * (READINGS + 2), unigrams))


def test_without_baselines_nothing_is_recognised_by_the_loss() -> None:
    assert not any(seen(Origin(network()), [0.1] * 30, [nan] * 30))


def test_mostly_frozen_parameters_are_recognised_at_once() -> None:
    origin = Origin(network(frozen=True))
    assert seen(origin, [nan], [nan]) == [1.0]
    assert origin.events[0].detail["why"] == "99% of its parameters are not trained"


@pytest.mark.parametrize("before", [0.0, 1.0])
def test_a_resumed_run_is_what_it_was(before: float) -> None:
    origin = Origin(network())
    layout = Layout((("pretrained", ""),), ())
    origin.resume(100, Snapshot(100, 0.0, np.array([before], np.float32), layout))
    assert set(seen(origin, [0.1] * 30, [3.0] * 30)) == {before}
    assert origin.events == [], "it was told of already"


def test_a_run_whose_beginning_no_run_log_tells_of_counts_as_pretrained() -> None:
    origin = Origin(network())
    origin.resume(100, None)
    assert seen(origin, [nan], [nan]) == [1.0]
    assert origin.events[0].detail["why"] == "it goes on from step 100, and no run log tells of its beginning"


@pytest.mark.parametrize(("scored", "pretrained"), [(2.4, True), (5.5, False)])
def test_where_the_loss_is_of_another_kind_what_the_network_scores_tells_of_its_weights(
    scored: float, pretrained: bool
) -> None:
    """Rewards begin at 0, which is far below any unigram loss."""
    origin = Origin(network(), Notices(callback=True))
    found = [float(origin.see(n, 1e-9, 3.2, 5.5, scored)[0]) for n in range(1, READINGS + 2)]
    assert any(found) == pretrained
    assert not origin.comparable
    if pretrained:
        why = "what it scores on its first targets, 2.4, is far below the unigram loss, 3.2"
        assert origin.events[0].detail["why"] == why
