"""A sweep that does not wait for trials that will not learn any more: Optuna asks stabmon.

    pip install optuna

Two trials of the demo's network: with its norms after the branches it stalls at this learning rate and is stopped at
step 60, with its norms before them it learns. The pruner judges what the trial's run log holds so far; it needs no
other trials to compare with, and works as well where trials run in other processes. A minute or two on a CPU.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import optuna
import torch
from torch.nn.functional import cross_entropy

import stabmon
from stabmon import Monitor
from stabmon.demo.network import Network
from stabmon.demo.text import batches, read_text

FOLDER = Path(tempfile.mkdtemp(prefix="sweep-"))
STEPS, ASKED_EVERY = 80, 20


class StopTheIll(optuna.pruners.BasePruner):
    """Stops a trial of which stabmon says what it would wake a person for."""

    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        verdict = stabmon.replay(trial.user_attrs["run_log"])
        if verdict.severity != "critical":
            return False
        print(f"trial {trial.number} is stopped: {verdict}")
        return True


def objective(trial: optuna.Trial) -> float:
    torch.manual_seed(0)
    model = Network(trial.suggest_categorical("placement", ["post", "pre"]))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
    with Monitor(model, optimizer, run=f"trial-{trial.number}", folder=FOLDER, serve=False) as monitor:
        trial.set_user_attr("run_log", str(monitor.run_log))
        for step, (inputs, targets) in zip(range(1, STEPS + 1), batches(read_text(), seed=0), strict=False):
            loss = cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss, targets=targets)
            if step % ASKED_EVERY == 0:
                trial.report(loss.item(), step)
                if trial.should_prune():
                    raise optuna.TrialPruned
    return loss.item()


def main() -> None:
    sampler = optuna.samplers.GridSampler({"placement": ["post", "pre"]})
    study = optuna.create_study(sampler=sampler, pruner=StopTheIll())
    study.optimize(objective, n_trials=2)
    for trial in study.trials:
        print(f"trial {trial.number}, placement {trial.params['placement']}: {trial.state.name}")


if __name__ == "__main__":
    main()
