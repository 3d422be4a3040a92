import logging
from collections.abc import Sequence

import pytest

from stabmon.pipeline import Pipeline
from stabmon.records import Alert, Event, Snapshot
from tests.snapshots import RUN, AlertsAt, Recorder, snapshot


class Broken:
    """Raises at one step, as a judge and as a sink; counts its calls."""

    def __init__(self, at: int, name: str = "broken") -> None:
        self.name = name
        self.at = at
        self.calls = 0
        self.closed = 0

    def judge(self, snapshot: Snapshot) -> list[Alert]:
        self.emit(snapshot, [], [])
        return []

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        self.calls += 1
        if snapshot.step == self.at:
            raise RuntimeError("out of luck")

    def close(self, state: str) -> None:
        self.closed += 1
        raise OSError("disk full")


def test_alerts_of_all_judges_reach_every_sink_and_are_kept() -> None:
    sinks = [Recorder("a"), Recorder("b")]
    pipeline = Pipeline(RUN, [AlertsAt(2, 3), AlertsAt(3, name="blowup")], sinks)
    returned = [[(a.detector, a.step) for a in pipeline.feed(snapshot(step))] for step in (1, 2, 3)]
    assert returned == [[], [("stall", 2)], [("stall", 3), ("blowup", 3)]]
    assert [(a.detector, a.step) for a in pipeline.alerts] == [("stall", 2), ("stall", 3), ("blowup", 3)]
    assert all(sink.alerts == pipeline.alerts and sink.steps == [1, 2, 3] for sink in sinks)


def test_events_reach_every_sink() -> None:
    sink, event = Recorder(), Event(1, 1001.0, "learning_rate", {"from": 1.0, "to": 0.5})
    Pipeline(RUN, [], [sink]).feed(snapshot(1), [event])
    assert sink.events == [event]


def test_a_broken_judge_is_dropped_and_told_in_the_same_feed() -> None:
    broken, sink = Broken(at=2), Recorder()
    pipeline = Pipeline(RUN, [broken, AlertsAt(2)], [sink])
    for step in (1, 2, 3):
        pipeline.feed(snapshot(step))
    assert broken.calls == 2
    assert sink.events == [Event(2, 1002.0, "part_failed", {"part": "broken", "error": "RuntimeError"})]
    assert [a.step for a in sink.alerts] == [2]


def test_a_broken_sink_is_dropped_and_told_to_the_others_in_the_next_feed() -> None:
    broken, before, after = Broken(at=2), Recorder(), Recorder()
    pipeline = Pipeline(RUN, [], [before, broken, after])
    for step in (1, 2, 3, 4):
        pipeline.feed(snapshot(step))
    assert broken.calls == 2
    told = [Event(2, 1002.0, "part_failed", {"part": "broken", "error": "RuntimeError"})]
    assert before.events == after.events == told
    assert before.steps == after.steps == [1, 2, 3, 4]


def test_a_failure_is_logged_once_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = Pipeline(RUN, [Broken(at=1)], [])
    with caplog.at_level(logging.DEBUG, logger="stabmon"):
        for step in (1, 2, 3):
            pipeline.feed(snapshot(step))
    (record,) = caplog.records
    assert record.name == "stabmon"
    assert record.getMessage() == "broken failed at step 1 and is dropped; training goes on"
    assert "out of luck" in caplog.text
    assert "Traceback" in caplog.text


def test_an_interrupt_is_not_swallowed() -> None:
    class Interrupted(Recorder):
        def emit(self, *_: object) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Pipeline(RUN, [], [Interrupted()]).feed(snapshot(1))


def test_close_reaches_every_sink_once_even_past_one_that_fails() -> None:
    broken, sink = Broken(at=9), Recorder()
    pipeline = Pipeline(RUN, [AlertsAt(1)], [broken, sink])
    pipeline.close("finished")
    pipeline.close("failed")
    assert (broken.closed, sink.states) == (1, ["finished"])


def test_a_dropped_sink_is_still_closed() -> None:
    broken = Broken(at=1)
    pipeline = Pipeline(RUN, [], [broken])
    pipeline.feed(snapshot(1))
    pipeline.close("finished")
    assert broken.closed == 1


def test_after_close_a_feed_goes_nowhere() -> None:
    sink = Recorder()
    pipeline = Pipeline(RUN, [AlertsAt(1)], [sink])
    pipeline.close("stopped")
    assert pipeline.feed(snapshot(1)) == []
    assert sink.steps == []


class Attentive(AlertsAt):
    """Wants to know of events."""

    def __init__(self, *steps: int) -> None:
        super().__init__(*steps, name="attentive")
        self.heard: list[str] = []

    def notice(self, event: Event) -> None:
        self.heard.append(event.kind)
        if event.kind == "worse":
            raise RuntimeError("out of luck")

    def judge(self, snapshot: Snapshot) -> list[Alert]:
        self.heard.append(f"step {snapshot.step}")
        return super().judge(snapshot)


def test_an_event_is_told_to_those_who_want_to_know_before_its_snapshot_is_judged() -> None:
    judge, other, sink = Attentive(), AlertsAt(3), Recorder()
    pipeline = Pipeline(RUN, [judge, other], [sink])
    pipeline.feed(snapshot(1))
    pipeline.feed(snapshot(2), [Event(1, 1001.0, "resume", {"at": 1})])
    pipeline.feed(snapshot(3), [Event(3, 1003.0, "worse", {})])
    assert judge.heard == ["step 1", "resume", "step 2", "worse"]
    assert [event.kind for event in sink.events] == ["resume", "worse", "part_failed"]
    assert [alert.step for alert in pipeline.alerts] == [3]
