"""Loss, learning rate and what became of the step."""

from __future__ import annotations

from stabmon.bench.exact.twin import Step, Twin

Values = dict[str, float]


def loss(twin: Twin, step: Step) -> Values:
    """That of the step."""
    return {"": step.loss}


def eval_loss(twin: Twin, step: Step) -> Values | str:
    """That of the evaluation before it."""
    return {"": step.eval_loss} if twin.plan.loop.evaluates else "this loop evaluates nothing"


def learning_rate(twin: Twin, step: Step) -> Values:
    """That of the first group of the first optimizer, if it stepped."""
    return {"": float("nan") if step.skipped else step.rate}


def skipped_steps(twin: Twin, step: Step) -> Values:
    """1 in the step that the loss scaler leaves out."""
    return {"": float(step.skipped)}


def pretrained(twin: Twin, step: Step) -> Values:
    """All weights are random."""
    return {"": 0.0}


NAIVE = {function.__name__: function for function in (loss, eval_loss, learning_rate, skipped_steps, pretrained)}
