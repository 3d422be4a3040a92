from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from stabmon.sinks.trackers.choice import trackers_of
from tests.snapshots import alert


def test_scalars_and_alerts_are_in_the_event_file_at_their_steps(tmp_path: Path) -> None:
    writer = SummaryWriter(tmp_path)
    (tracker,) = trackers_of(writer)
    for step in (10, 20):
        tracker.log({"stabmon/context_share": step / 100}, step)
    tracker.tell(alert(20))
    tracker.flush()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    found = [(e.step, round(e.value, 6)) for e in events.Scalars("stabmon/context_share")]
    assert found == [(10, 0.1), (20, 0.2)]
    (text,) = events.Tensors("stabmon/alerts/text_summary")
    assert text.step == 20
    assert text.tensor_proto.string_val[0].decode().startswith("r1 is not learning. Restart  \nwarning")
    writer.close()


def test_what_comes_after_the_writer_was_closed_is_written_too(tmp_path: Path) -> None:
    writer = SummaryWriter(tmp_path)
    (tracker,) = trackers_of(writer)
    writer.close()
    tracker.log({"stabmon/context_share": 0.5}, 30)
    tracker.flush()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("stabmon/context_share")] == [(30, 0.5)]
