"""What to try first for each detector, and by what its worst layers are found. Its runbook has the rest."""

from __future__ import annotations

from dataclasses import dataclass

from stabmon.catalog import STATISTICS


@dataclass(frozen=True, slots=True)
class Remedy:
    first: str
    worst: str = ""
    """A statistic per layer; "" where the detector judges the whole model."""
    lowest: bool = False
    """Whether the worst layers have least of it."""


REMEDIES = {
    "nonfinite": Remedy(
        "Stop, and go back to the last checkpoint from before it; leave out the batches, or halve the learning rate.",
        "norm_input_msq",
    ),
    "exploded": Remedy("Stop, go back to the last checkpoint, and go on at a third of the learning rate."),
    "diverged": Remedy("Go back to the last checkpoint from before this step, at a third of the learning rate."),
    "loss_shift": Remedy("Stop, and look at the batches from this step on, as text, with their targets."),
    "context_stall": Remedy(
        "Restart with a warm-up of 300 steps or more, or with a third of the learning rate.", "token_similarity"
    ),
    "residual_blowup": Remedy("Cut the learning rate to a tenth now, or end the ramp that it is on.", "norm_input_msq"),
    "attention_blowup": Remedy(
        "Limit the attention logits (QK-Clip at 100), or go back at a third of the learning rate.",
        "attention_logit_max",
    ),
    "update_shock": Remedy(
        "Keep the last checkpoint; look at the schedule; if it is critical, go back at a tenth of the learning rate.",
        "update_ratio",
    ),
    "gradient_spike": Remedy(
        "Keep the last checkpoint and look at the batches; if it is critical, go back and skip them.", "grad_norm"
    ),
    "dead_layers": Remedy(
        "Look for what cuts the lower layers off (detach, no_grad); else a longer warm-up.", "grad_norm", lowest=True
    ),
    "dead_units": Remedy(
        "Go back to a checkpoint from before this step, at a third of the learning rate.", "dead_unit_share"
    ),
    "precision": Remedy(
        "Overflow: go on in bfloat16. Lost updates: keep weights in float32.", "precision_headroom", lowest=True
    ),
    "logit_drift": Remedy("Add a z-loss of 1e-4 log^2 Z; it may begin in the middle of a run."),
    "rank_trouble": Remedy("If copies differ: stop, and load one checkpoint on all ranks.", "rank_weight_spread"),
    "wiring": Remedy("Check what the message on the run's page names, repair it, and start again."),
    "flat": Remedy("If it is more than an info: restart with a third of the learning rate or a longer warm-up."),
    "spike": Remedy("Let it run; if the loss is not back within 50 points, go back to a checkpoint from before it."),
}
OTHER = "See the run's page."
"""For detectors of the user's own."""


def choice() -> str:
    """A template that sets `$remedy`, `$worst` and `$order` by the label `detector`; it prints nothing."""
    lines = [f'{{{{- $remedy := "{OTHER}" }}}}{{{{ $worst := "" }}}}{{{{ $order := "topk" -}}}}']
    for detector, remedy in REMEDIES.items():
        found = [f'$remedy = "{remedy.first}"']
        found += [f'$worst = "{STATISTICS[remedy.worst].metric}"'] if remedy.worst else []
        found += ['$order = "bottomk"'] if remedy.lowest else []
        chosen = "".join(f"{{{{ {one} }}}}" for one in found)
        lines.append(f'{{{{- if eq $labels.detector "{detector}" }}}}{chosen}{{{{ end -}}}}')
    return "\n".join(lines)
