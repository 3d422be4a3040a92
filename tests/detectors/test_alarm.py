"""One incident a detector: hold, clear, cool-down, severity."""

from collections.abc import Sequence

import numpy as np
import pytest

from stabmon.catalog import Array
from stabmon.detectors.alarm import Alarm
from stabmon.records import Finding, Severity, Site, Snapshot
from tests.detectors.series import alerts_of, make_series, told

LETTERS: dict[str, Severity] = {"i": "info", "w": "warning", "c": "critical"}


class Scripted:
    """Says one letter a reading: `.` nothing, i, w, c; `?` is a step at which nothing was read. Two norms; the
    first one scores 1, the second one 2. What it says began at the same step.
    """

    name = "scripted"
    needs: tuple[str, ...] = ("norm_input_msq",)

    def __init__(self, script: str, where: Site | None = None) -> None:
        self.script = script
        self.where = where

    def score(self, snapshot: Snapshot) -> Array:
        self.step, self.letter = snapshot.step, self.script[snapshot.step - 1]
        return np.array([1, 2] if self.letter in LETTERS else [0.2, 0.5], np.float32)

    def explain(self, site: int) -> Finding:
        return Finding(
            LETTERS[self.letter], f"says {self.letter}", "because", ("do",), {"loss": 3.0}, self.step, self.where
        )

    def snapshots(self) -> list[Snapshot]:
        return make_series({"norm_input_msq": [[np.nan] * 2 if x == "?" else [1.0, 1.0] for x in self.script]})


def hear(script: str, **alarm: int) -> Sequence[tuple[int, str]]:
    detector = Scripted(script)
    return told(alerts_of(detector, detector.snapshots(), **alarm))


@pytest.mark.parametrize(
    ("script", "alarm", "heard"),
    [
        ("..www", {}, [(3, "warning")]),
        ("..www", {"hold": 3}, [(5, "warning")]),
        ("ww.ww.ww", {"hold": 3}, []),
        ("..c", {"hold": 3}, [(3, "critical")]),
        ("wwccww", {}, [(1, "warning"), (3, "critical")]),
        ("ccwww", {"clear": 3}, [(1, "critical"), (5, "warning")]),
        ("ccwwcww", {"clear": 3}, [(1, "critical")]),
        ("wwiiiwww", {"clear": 3}, [(1, "warning"), (5, "info")]),
        ("wwiiiwww", {"clear": 3, "cooldown": 2}, [(1, "warning"), (5, "info"), (6, "warning")]),
        ("w...", {"clear": 3}, [(1, "warning"), (4, "cleared")]),
        ("w..w..", {"clear": 3}, [(1, "warning")]),
        ("w..wwwww", {"clear": 2, "cooldown": 4}, [(1, "warning"), (3, "cleared"), (7, "warning")]),
        ("w..c", {"clear": 2, "cooldown": 4}, [(1, "warning"), (3, "cleared"), (4, "critical")]),
        ("c..w.c", {"clear": 2, "cooldown": 9}, [(1, "critical"), (3, "cleared")]),
        ("w????.?.", {"clear": 2}, [(1, "warning"), (8, "cleared")]),
        ("w?w", {"hold": 2}, [(3, "warning")]),
        ("??", {}, []),
    ],
)
def test_what_is_heard_of_a_script(script: str, alarm: dict[str, int], heard: list[tuple[int, str]]) -> None:
    assert hear(script, **alarm) == heard


def test_an_alert_says_all_of_its_finding_and_names_the_worst_site() -> None:
    detector = Scripted("w")
    (alert,) = alerts_of(detector, detector.snapshots())
    assert (alert.site, alert.layer, alert.score) == ("layers.1.norm", 1, 2)
    assert (alert.run, alert.detector, alert.headline) == ("run", "scripted", "run says w")
    assert (alert.cause, alert.remedies, alert.since) == ("because", ("do",), 1)
    assert alert.evidence == {"loss": 3.0, "sites": 2}


def test_a_finding_may_name_another_place() -> None:
    detector = Scripted("w", where=Site("deep", layer=7))
    (alert,) = alerts_of(detector, detector.snapshots())
    assert (alert.site, alert.layer) == ("deep", 7)


def test_a_cleared_alert_closes_the_incident_that_was_raised() -> None:
    detector = Scripted("w..")
    raised, cleared = alerts_of(detector, detector.snapshots(), clear=2)
    assert (cleared.since, cleared.site, cleared.severity) == (raised.since, raised.site, raised.severity)
    assert (cleared.step, cleared.score) == (3, 0.5)
    assert cleared.headline == "run is out of scripted, which began at step 1"


def test_an_incident_keeps_the_step_at_which_it_began_when_its_severity_changes() -> None:
    detector = Scripted("w.cc..w")
    alerts = alerts_of(detector, detector.snapshots(), clear=2, cooldown=0)
    assert [(a.step, a.severity, a.state, a.since) for a in alerts] == [
        (1, "warning", "raised", 1),
        (3, "critical", "raised", 1),
        (6, "critical", "cleared", 1),
        (7, "warning", "raised", 7),
    ]


def test_an_alarm_is_called_as_its_detector() -> None:
    assert Alarm(Scripted(""), "run").name == "scripted"


@pytest.mark.parametrize(("name", "value"), [("hold", 0), ("clear", 0), ("cooldown", -1)])
def test_a_setting_out_of_range_is_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}; pass a whole number >= "):
        Alarm(Scripted(""), "run", **{name: value})
