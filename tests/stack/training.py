"""Trainings to be watched: `python training.py FOLDER stalls:NAME trains:NAME …`, a process for each.

`stalls` is the demo's network, which stalls until NAME.mend is there: then its blocks are put back to their first
weights, at a lower learning rate. `trains` is a small one that learns, until NAME.stop is there; SIGTERM ends it as a
cluster does that takes the machine back. NAME.pid and, at its end, NAME.exit tell of the process.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

from stabmon import Monitor
from stabmon.demo import network
from stabmon.demo.text import batches, read_text


def stalls(name: str, folder: Path) -> None:
    torch.manual_seed(0)
    network.WIDTH = 48  # stalls as the demo's 128 do, in a quarter of the time
    model = network.Network("post")
    first = {key: value.clone() for key, value in model.state_dict().items() if key.startswith("blocks.")}
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, betas=(0.9, 0.98))
    mended = False
    with Monitor(model, optimizer, run=name, folder=folder, port=0) as monitor:
        for windows in batches(read_text(), 0):
            inputs, targets = (part[:8, :32] for part in windows)
            loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss, targets=targets)
            if not mended and (folder / f"{name}.mend").exists():
                mended = True
                model.load_state_dict(first, strict=False)
                optimizer.state.clear()
                optimizer.param_groups[0]["lr"] = 1e-6


def trains(name: str, folder: Path) -> None:
    taken_back: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: taken_back.append(number))
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    monitor = Monitor(model, optimizer, run=name, folder=folder, port=0)
    while not taken_back and not (folder / f"{name}.stop").exists():
        inputs = torch.randn(32, 8)
        loss = (model(inputs).squeeze() - inputs.sum(1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        monitor.step(loss)
        time.sleep(0.05)
    monitor.close("preempted" if taken_back else "finished")


def main(folder: Path, jobs: list[str]) -> None:
    """torch is imported once, and each training forked from there."""
    names = {}
    for job in jobs:
        kind, name = job.split(":")
        if not (pid := os.fork()):
            {"stalls": stalls, "trains": trains}[kind](name, folder)
            sys.exit()
        names[pid] = name
        (folder / f"{name}.pid").write_text(str(pid))
    for _ in jobs:
        pid, status = os.wait()
        (folder / f"{names[pid]}.exit").write_text(str(os.waitstatus_to_exitcode(status)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
