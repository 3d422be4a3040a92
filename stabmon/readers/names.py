"""Which column is what, guessed from its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

EVALUATED = {"eval", "evaluation", "val", "valid", "validation", "dev", "test", "heldout", "holdout"}
_LOSS = {"loss", "losses", "nll", "bpb", "crossentropyloss", "celoss", "xent"}
_NO_LOSS = {"scale", "scaler", "aux", "z", "min", "max", "best", "std", "var", "delta", "diff", "balance", "router"}
_NO_LOSS |= {"moe", "ratio", "lower", "upper", "target", "weight"}
_STEPS: tuple[str, ...] = (
    *("globalstep", "trainglobalstep", "trainerglobalstep", "optimizerstep", "trainstep", "trainingstep", "step"),
    *("steps", "currentsteps", "currentstep", "iteration", "iterations", "iter", "iters", "niter", "numupdates"),
    *("updates", "update", "stepidx", "globalbatch", "batch", "batchidx", "it"),
    *("globalstepmaxsteps", "timetotaltimesteps"),
)
_TIMES = {"timestamp", "walltime", "wallclock", "time", "createdat", "datetime", "runtime", "elapsed", "elapsedtime"}
_SUBJECTS = {"id", "runid", "run", "runname", "name", "file", "filename", "path", "experiment", "model", "checkpoint"}
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


def words(name: str) -> list[str]:
    """`train/gradNorm_1` -> train, grad, norm, 1."""
    return [word.lower() for word in _WORD.findall(name)]


def loss(name: str) -> float | None:
    """How unlikely it is to be the training's loss; None: it is not."""
    found = words(name)
    if not _LOSS & set(found) or (EVALUATED | _NO_LOSS) & set(found):
        return None
    plain = {"train", "training", "trainer", "tr", "lm", "loss", "losses", "total", "ce", "step", "mean", "avg"}
    plain |= {"cross", "entropy"}
    extra = len([word for word in found if word not in plain])
    usual = 0 if {"loss", "losses"} & set(found) else 3
    return usual + 5 * ("epoch" in found) + 2 * extra + 0.1 * len(found) - 0.2 * ("step" in found)


def eval_loss(name: str) -> float | None:
    found = words(name)
    if not _LOSS & set(found) or not EVALUATED & set(found) or (_NO_LOSS & set(found)):
        return None
    return len(found) + ("test" in found)


def learning_rate(name: str) -> float | None:
    found = words(name)
    if "lr" in found or ("learning" in found and "rate" in found):
        return len(found)
    return None


def grad_norm(name: str) -> float | None:
    """Of the whole model: `grad_norm/layers.0` is not."""
    found = [word for word in words(name) if word not in {"train", "training", "optim", "total", "global", "2", "l"}]
    plain = {"grad", "grads", "gradient", "gradients", "norm", "gnorm", "gradnorm", "total", "preclip", "pre", "clip"}
    if not set(found) <= plain or ("clip" in found and "pre" not in found):
        return None
    return len(found) if {"norm", "gnorm", "gradnorm"} & set(found) else None


def step(name: str) -> float | None:
    joined = "".join(words(name))
    if joined == "step":  # W&B counts rows as `_step`
        return _STEPS.index("step") + (0.5 if name.startswith("_") else 0)
    return _STEPS.index(joined) if joined in _STEPS else None


def epoch(name: str) -> float | None:
    return {("epoch",): 0, ("train", "epoch"): 1, ("epochs",): 2}.get(tuple(words(name)))


def time(name: str) -> float | None:
    found = "".join(words(name))
    return len(found) if found in _TIMES else None


def run(name: str) -> float | None:
    return {"runid": 0, "run": 1, "runname": 2}.get("".join(words(name)))


def subject(name: str) -> bool:
    """What a table of runs names each of its rows by."""
    return "".join(words(name)) in _SUBJECTS


ROLES: dict[str, Callable[[str], float | None]] = {
    "step": step,
    "loss": loss,
    "eval_loss": eval_loss,
    "grad_norm": grad_norm,
    "learning_rate": learning_rate,
    "epoch": epoch,
    "time": time,
    "run": run,
}


def best(role: str, counts: dict[str, int], among: Iterable[str] | None = None) -> list[str]:
    """Names that may play it, the likeliest first; one with a single value behind those with more. counts: values seen
    of each name.
    """
    ranked = [(rank, name) for name in (among or counts) if (rank := ROLES[role](name)) is not None]
    most = max((counts[name] for _, name in ranked), default=0)
    return [n for _, n in sorted(ranked, key=lambda r: (counts[r[1]] == 0, counts[r[1]] == 1 < most, *r))]
