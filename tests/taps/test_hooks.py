from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path
from threading import Thread

import torch
from torch import nn

from stabmon.taps.hooks import Hook, Stopwatch, silence


def hooked() -> tuple[nn.Linear, list[str]]:
    calls: list[str] = []
    model = nn.Linear(2, 2)

    def seen(*_: object) -> None:
        calls.append("called")

    hook = Hook(seen, lambda error: None)
    model.register_forward_pre_hook(hook, with_kwargs=True)
    model.register_forward_hook(hook)
    return model, calls


def test_copies_and_pickles_of_a_watched_model_are_not_watched() -> None:
    model, calls = hooked()
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    twins = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(saved, weights_only=False)]
    x = torch.ones(1, 2)
    assert all(torch.equal(twin(x), model(x)) for twin in twins)
    assert len(calls) == 2 * 3, "only the model itself calls back, twice a forward"


def test_a_pickled_model_loads_where_stabmon_is_not_installed(tmp_path: Path) -> None:
    model, _ = hooked()
    torch.save(model, tmp_path / "model.pt")
    code = (
        "import sys; sys.modules['stabmon'] = None; import torch;"
        f"m = torch.load({str(tmp_path / 'model.pt')!r}, weights_only=False); print(m(torch.ones(1, 2)).shape)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "torch.Size([1, 2])", done.stderr


def test_a_failing_hook_tells_once_and_goes_silent() -> None:
    errors: list[Exception] = []
    model = nn.Linear(2, 2)

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    model.register_forward_pre_hook(Hook(broken, errors.append))
    x = torch.ones(1, 2)
    model(x)
    model(x)
    assert [str(error) for error in errors] == ["broken"]


def in_a_thread(model: nn.Module) -> None:
    thread = Thread(target=model, args=(torch.ones(1, 2),))
    thread.start()
    thread.join()


def test_a_model_that_is_run_for_stabmon_does_not_silence_that_of_another_thread() -> None:
    (run, of_run), (trained, of_trained), (beside, of_beside) = hooked(), hooked(), hooked()
    with silence(run.modules()):
        run(torch.ones(1, 2))
        beside(torch.ones(1, 2))  # called by the one that is run, as a discriminator by a generator's probe
        in_a_thread(trained)
        in_a_thread(run)  # as the device's thread does, that computes a checkpointed forward again
    assert (of_run, of_beside, len(of_trained)) == ([], [], 2)
    run(torch.ones(1, 2))
    beside(torch.ones(1, 2))
    assert (len(of_run), len(of_beside)) == (2, 2)


def test_a_stopwatch_counts_each_thread_and_what_is_nested_once() -> None:
    watch, now = Stopwatch(), iter((0.0, 1.0, 3.0, 10.0))
    watch.clock = lambda: next(now)

    def other() -> None:
        with watch:
            pass

    with watch, watch:
        thread = Thread(target=other)
        thread.start()
        thread.join()
    assert watch.seconds == 2.0 + 10.0
