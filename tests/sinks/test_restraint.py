from dataclasses import replace

import pytest

from stabmon.records import Alert, Severity
from stabmon.sinks.restraint import DAY, Restraint
from tests.snapshots import alert


def at(second: float, severity: Severity = "warning", state: str = "raised", detector: str = "stall") -> Alert:
    return replace(alert(1, severity, state, detector), time=second)


def told(*alerts: Alert, least: Severity = "warning") -> list[float | None]:
    restraint = Restraint(least)
    return [restraint.when(given) for given in alerts]


def test_a_detectors_first_warning_is_told_at_once_and_its_later_ones_of_a_day_together() -> None:
    seconds = (1000.0, 2000.0, 1000.0 + DAY - 1, 1000.0 + DAY + 5)
    assert told(*map(at, seconds)) == [1000, 1000 + DAY, 1000 + DAY, 1005 + DAY]


def test_the_warning_of_another_detector_is_news() -> None:
    assert told(at(1000), at(1001, detector="blowup")) == [1000, 1001]


def test_warnings_do_not_hold_a_critical_one_back() -> None:
    assert told(at(1000), at(1001), at(1002, "critical")) == [1000, 1000 + DAY, 1002]


def test_a_flapping_critical_one_pages_once_in_ten_minutes() -> None:
    pages = [at(1000, "critical"), at(1010, "critical", "cleared"), at(1020, "critical"), at(1601, "critical")]
    assert told(*pages) == [1000, 1010, 1600, 1601]


def test_where_the_clock_was_set_back_nobody_waits_until_it_is_there_again() -> None:
    hour = 3600.0
    assert told(at(9 * hour, "critical"), at(hour, "critical"), at(hour + 1, "critical")) == [
        9 * hour,
        hour,
        hour + 600,
    ]
    assert told(at(50 * hour), at(hour), at(hour + 1)) == [50 * hour, hour, hour + DAY]
    assert told(at(50 * hour), at(hour, state="cleared")) == [50 * hour, hour]


def test_the_end_is_told_at_once_to_who_was_told_of_the_beginning_and_only_once() -> None:
    assert told(at(1000), at(1300, state="cleared"), at(1301, state="cleared")) == [1000, 1300, None]


def test_the_end_of_what_waits_for_a_digest_waits_with_it() -> None:
    alerts = [at(1000), at(1300, state="cleared"), at(1400), at(1500, state="cleared")]
    assert told(*alerts) == [1000, 1300, 1000 + DAY, 1000 + DAY]


def test_the_end_of_an_eased_page_is_told_at_once() -> None:
    alerts = [at(900), at(950, state="cleared"), at(1000, "critical"), at(1100), at(1200, state="cleared")]
    assert told(*alerts) == [900, 950, 1000, 900 + DAY, 1200]


@pytest.mark.parametrize(("least", "when"), [("info", 1000.0), ("warning", None), ("critical", None)])
def test_what_is_too_little_to_tell_is_not_told_nor_is_its_end(least: Severity, when: float | None) -> None:
    assert told(at(1000, "info"), at(1000, "info", "cleared"), least=least) == [when, when]


def test_an_unknown_severity_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="least='page': must be one of info, warning, critical"):
        Restraint("page")  # type: ignore[arg-type]
