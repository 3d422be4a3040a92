"""What people are told of, and what not. The times are printed by `make stack`; here only what cannot be slow."""

import pytest

from tests.stack.play import Play, play


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Play:
    return play(tmp_path_factory.mktemp("play"))


def test_a_stall_is_told_on_both_ways_with_step_layers_and_remedy_and_its_end(played: Play) -> None:
    told = played.told["stall"]
    assert told.firing
    assert told.resolved
    assert told.firing.title.startswith("critical: stall: context_stall is critical at step ")
    step, remedy, layers = told.firing.text.split("\n")[1:4]
    assert step.startswith("Step ")
    assert ", since step " in step
    assert remedy.startswith("What to do first: Restart with a warm-up of 300 steps or more, or ")
    assert layers.startswith("Worst layers by stabmon_token_similarity: 00")
    assert layers.count(" norm_") == 5
    assert told.direct
    assert told.direct_resolved
    assert told.ended is not None
    assert told.resolved.at > told.ended


def test_a_blow_up_is_told_with_its_layer_and_its_end(played: Play) -> None:
    told = played.told["blow-up"]
    assert told.firing
    assert told.resolved
    assert "blow-up: residual_blowup warns at step " in told.firing.text
    assert "Worst layers by stabmon_norm_input_msq: 001 norm " in told.firing.text


def test_a_spike_of_one_step_between_two_scrapes_is_told(played: Play) -> None:
    told = played.told["one-step"]
    assert told.firing
    assert "one-step: spike warns at step " in told.firing.text


def test_a_killed_run_is_told_of_once_and_a_finished_or_preempted_one_is_not(played: Play) -> None:
    told = played.told["killed"]
    assert told.firing
    assert told.firing.title.startswith("critical: killed: gone without an end at step ")
    everything = "\n".join(message.text for message in played.messages)
    assert sum("* killed: gone" in message.text for message in played.messages if message.at > told.since) == 1
    assert "* preempted: " not in everything
    assert "* finished: " not in everything
