from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from stabmon.records import Layout, Site, figure
from tests.snapshots import LAYOUT, NAN, alert, snapshot


@pytest.mark.parametrize(("layer", "label"), [(None, ""), (0, "000"), (7, "007"), (123, "123"), (1234, "1234")])
def test_a_layer_label_sorts_in_forward_order(layer: int | None, label: str) -> None:
    assert Site("m", layer).layer_label == label


def test_slots_of_the_model_and_of_layers_share_all_slots_between_them() -> None:
    assert LAYOUT.scalar_slots.tolist() == [0, 2]
    assert LAYOUT.layer_slots.tolist() == [1, 3, 4, 5, 6]


def test_whether_anything_was_read_at_a_layer() -> None:
    assert not snapshot(1, 10.0, NAN, 12.0, NAN, NAN, NAN, NAN).layers_read
    assert snapshot(1, NAN, NAN, NAN, NAN, 14.0, NAN, NAN).layers_read
    assert snapshot(1, NAN, np.inf, NAN, NAN, NAN, NAN, NAN).layers_read
    of_the_root = Layout((("loss", ""), ("grad_sq", "")), ())
    assert of_the_root.sampled_slots.tolist() == [1]


def test_a_statistics_values_and_sites_are_in_slot_order() -> None:
    taken = snapshot(1, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0)
    assert LAYOUT.slots("norm_input_msq").tolist() == [1, 3, 4]
    assert [site.name for site in LAYOUT.sites_of("norm_input_msq")] == ["h.0.ln", "h.1.ln", "norm"]
    assert taken["norm_input_msq"].tolist() == [11.0, 13.0, 14.0]


def test_a_derived_statistic_lies_at_the_sites_of_what_it_is_made_of() -> None:
    taken = snapshot(1, 10.0, 11.0, 12.0, 13.0, 14.0, 16.0, 25.0)
    assert [site.name for site in LAYOUT.sites_of("grad_norm")] == ["h.0", "h.1"]
    assert taken["grad_norm"].tolist() == [4.0, 5.0]


def test_what_the_layout_lacks_is_empty_and_as_a_scalar_not_a_number() -> None:
    taken = snapshot(1)
    assert LAYOUT.slots("context_share").size == taken["context_share"].size == taken["trust_ratio"].size == 0
    assert taken["update_ratio"].size == 0  # one of its two parts is not in the layout
    assert LAYOUT.sites_of("context_share") == ()
    assert np.isnan(taken.scalar("context_share"))


def test_a_scalar_is_the_whole_models_value() -> None:
    assert snapshot(1, 3.5, NAN, 49.0).scalar("total_grad_norm") == 7.0
    assert np.isnan(snapshot(1).scalar("loss"))


def test_an_unknown_statistic_is_an_error() -> None:
    with pytest.raises(KeyError, match="phase_of_moon"):
        snapshot(1)["phase_of_moon"]
    with pytest.raises(AssertionError, match=r"not in the catalog: \['phase_of_moon'\]"):
        Layout((("phase_of_moon", ""),), ())


def test_layouts_are_equal_by_what_they_hold() -> None:
    assert Layout(LAYOUT.columns, LAYOUT.sites) == LAYOUT
    assert Layout(LAYOUT.columns[::-1], LAYOUT.sites) != LAYOUT


def test_the_whole_models_site_has_no_layer() -> None:
    assert LAYOUT.site("") == Site("", None, "")
    assert LAYOUT.site("h.1") == Site("h.1", 1, "block")


def test_records_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        alert(1).step = 2  # type: ignore[misc]


def test_a_message_says_what_where_since_when_why_and_what_to_do() -> None:
    assert alert(4).message.splitlines() == [
        "r1 is not learning. Restart",
        "warning · stall · step 4, since step 2, layer 1 (h.1.ln)",
        "Evidence: loss 3.5, context_share not finite",
        "Cause: 100% certain",
        "Ruled out: nothing to learn (gap 0.5)",
        "1. cut the learning rate",
        "2. warm up",
    ]


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.123456, 4, "0.1235"), (1234567.0, 3, "1.23e+06"), (np.inf, 4, "not finite"), (np.nan, 4, "not finite")],
)
def test_a_figure_has_so_many_digits_and_nan_and_inf_are_not_told_apart(value: float, digits: int, text: str) -> None:
    """A snapshot holds Inf for both."""
    assert figure(value, digits) == text
    assert figure(np.float32(value), digits) == text


def test_a_message_leaves_out_what_there_is_nothing_to_say_of() -> None:
    bare = replace(alert(4), layer=None, site="", cause="", remedies=(), ruled_out=(), evidence={})
    assert bare.message == "r1 is not learning. Restart\nwarning · stall · step 4, since step 2"


def test_a_message_ends_with_where_the_runbook_of_a_detector_of_ours_is() -> None:
    last = alert(4, detector="context_stall").message.splitlines()[-1]
    assert last == "Runbook: stabmon runbook context_stall"
    assert "Runbook" not in alert(4, detector="one_of_yours").message
