"""What `loss_shift` says: other data or another loss, no checkpoint, an update that was too large, repeated batches."""

from __future__ import annotations

from collections.abc import Mapping

from stabmon.detectors import words
from stabmon.detectors.shift_readings import Level, Repeats, Updates
from stabmon.records import Finding, Severity

_TERMS = "a term, a weight, label smoothing"


def of_data(
    severity: Severity, since: int, losses: Mapping[str, Level], updates: Updates, moved: bool, ordinary: bool
) -> Finding:
    """`moved`: targets themselves show it; `ordinary`: the updates are known to have been."""
    lost = "every further step unlearns" if severity == "critical" else "nothing is lost yet if it is mended soon"
    what, mend, meant = "other data", "the data", "another mixture of data"
    looks: tuple[str, ...] = ()
    if losses["bigram_loss"].gone:
        cause = "Targets no longer follow their inputs; the weights are what they were."
    elif moved:
        cause = "What the targets are, or what follows what, has changed; the weights are what they were."
    else:
        what, mend, meant = "other data or another loss", "what changed", f"{meant}, another loss"
        lost = f"if it is the data, {lost}" if severity == "critical" else lost
        looks = (f"Look whether the loss itself was changed at step {since}: {_TERMS}.",)
        seen = updates.read_at in (since - 1, since)
        weights = "the weights are what they were" if seen else "or one update that was not read was too large"
        cause = (
            f"Targets no longer belong to their inputs, or the inputs or the loss itself ({_TERMS}) changed; {weights}."
        )
    return Finding(
        severity=severity,
        action=f"has {what} since step {since}: {_from_to(losses)} at once. Stop it, mend {mend} "
        f"and go back to a checkpoint before step {since}; {lost}",
        cause=cause,
        remedies=(
            f"Look at the batches from step {since} on, as text: shuffled labels, another tokenizer, another file.",
            *looks,
            f"Go back to a checkpoint before step {since} once that is mended; keep the learning rate.",
            f"If the change was meant ({meant}): let it run, the loss falls from here on.",
        ),
        evidence=_evidence(losses, updates, data_fault=1.0),
        ruled_out=(f"updates that are too large (KL {updates.kl:.2g} at step {updates.read_at})",) if ordinary else (),
        since=since,
    )


def of_weights(severity: Severity, since: int, losses: Mapping[str, Level], updates: Updates) -> Finding:
    return Finding(
        severity=severity,
        action=f"has resumed without what it had learnt: {_from_to(losses)} at step {since}, as at the run's start. "
        f"Stop it and load the checkpoint before the first step; every further step trains another model",
        cause="The run was resumed and its weights were not loaded, or not into the model that is trained.",
        remedies=(
            "Load the checkpoint of the model and of the optimizer before the first step, and resume again.",
            "Look at what loading returned: missing keys, another prefix of names, a model that was wrapped later.",
            "If it was meant to start anew, give the run another name.",
        ),
        evidence=_evidence(losses, updates, data_fault=0.0),
        since=since,
    )


def of_updates(since: int, good: int, losses: Mapping[str, Level], updates: Updates) -> Finding:
    """`good`: the last step before the rise."""
    back = words.checkpoint_before(good)
    return Finding(
        severity="warning",
        action=f"has lost a part of what it had learnt: {_from_to(losses)} at step {since} and stays there. Go back to "
        f"{back}, unless it falls again within some 50 points",
        cause="Updates were too large for where the run was; the data are what they were.",
        remedies=(
            f"Roll back to {back}, and go on at a third of the learning rate.",
            "Clip gradients at 1; with Adam, lower beta2 to .95.",
            f"Look at the batches of step {since} and the few before it.",
            f"If the loss itself was changed there ({_TERMS}): nothing is lost, let it run.",
        ),
        evidence=_evidence(losses, updates, data_fault=0.0),
        ruled_out=(f"other data (unigram loss {losses['unigram_loss'].now:.3g}, as before)",),
        since=since,
    )


def of_repeats(severity: Severity, repeats: Repeats, loss: float, unigram: float) -> Finding:
    return Finding(
        severity=severity,
        action=f"is trained on one batch again and again since step {repeats.since}. Stop it and mend the data loader; "
        f"{repeats.count} steps are lost, and so is every further one",
        cause="The unigram loss of the targets hardly changes from step to step, as that of one batch does.",
        remedies=(
            "Look at the sampler and at the iterator: made anew each step, or a generator that was used up.",
            f"Go back to a checkpoint before step {repeats.since}: the batch is being learnt by heart.",
        ),
        evidence={"loss": loss, "unigram_loss": unigram, "data_fault": 1.0},
        since=repeats.since,
    )


def _from_to(losses: Mapping[str, Level]) -> str:
    return f"the loss went from {losses['loss'].before:.4g} to {losses['loss'].now:.4g}"


def _evidence(losses: Mapping[str, Level], updates: Updates, data_fault: float) -> dict[str, float]:
    values = {name: level.now for name, level in losses.items() if not level.missing}
    values |= {f"{name}_before": level.before for name, level in losses.items()}
    values |= {"output_change_kl": updates.kl, "update_norm_over_usual": updates.length, "data_fault": data_fault}
    return words.known(values)
