"""Runs for the page: six blocks of two norms each, every signal the page draws, scores, alerts and events."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from stabmon.records import Alert, Event, Layout, Run, RunState, Severity, Site, Snapshot
from stabmon.runlog import RunLogWriter

MODEL = (
    "loss", "eval_loss", "learning_rate", "bigram_loss", "unigram_loss", "uniform_loss", "context_share",
    "probe_context_share", "total_grad_sq", "step_seconds", "monitor_seconds", "output_msq", "output_change_msq",
    "output_change_context_msq", "output_change_kl", "actual_loss_change", "predicted_loss_change",
)  # fmt: skip
OF_NORMS = ("norm_input_msq", "norm_gain", "token_similarity")
OF_BLOCKS = ("grad_sq", "weight_sq", "update_sq", "block_output_change_msq", "block_output_msq")
JUDGES = {"context_stall": ["context_share"], "loss_shift": ["loss"], "residual_blowup": ["norm_input_msq"]}
_KNOWN = {"eval_loss": np.nan, "learning_rate": 3e-4, "bigram_loss": 2.4, "unigram_loss": 3.1, "uniform_loss": 5.55,
          "context_share": 0.5, "probe_context_share": 0.4, "total_grad_sq": 4.0, "step_seconds": 1.0,
          "monitor_seconds": 0.01, "output_msq": 1.0, "output_change_msq": 1e-4, "output_change_context_msq": 4e-5,
          "output_change_kl": 1e-3, "actual_loss_change": -0.9e-3, "predicted_loss_change": -1e-3}  # fmt: skip


def layout_of(blocks: int, prefix: str) -> Layout:
    """Norms `h.<block>.ln_1`, `h.<block>.ln_2` in blocks `h.<block>`."""
    norms = [Site(f"{prefix}{b}.ln_{i}", b, f"ln_{i}", "pre") for b in range(blocks) for i in (1, 2)]
    bodies = [Site(f"{prefix}{b}", b, "block") for b in range(blocks)]
    columns = [(name, "") for name in MODEL]
    columns += [(name, site.name) for name in OF_NORMS for site in norms]
    columns += [(name, site.name) for name in OF_BLOCKS for site in bodies]
    return Layout(tuple(columns), (*norms, *bodies))


Change = Callable[[int, str, Site], float | None]
"""(step, statistic, site) -> another value than the usual, or None."""


class Made:
    """A run log that grows by `steps`, on disk at once. A step takes a second, layers are read every tenth step."""

    def __init__(
        self, path: Path, blocks: int = 6, start: float = 1_000_000.0, name: str = "", prefix: str = "h."
    ) -> None:
        self.path, self.start, self.last = path, start, 0
        self.run = Run(
            name or path.stem, started=start, framework="torch", model="Tiny", version="0.1.0",
            settings={"every": "10", "level": "standard"}, environment={"device": "cpu", "optimizer": "AdamW"},
        )  # fmt: skip
        self.layout = layout_of(blocks, prefix)
        self._sites = [self.layout.site(name) for _, name in self.layout.columns]
        self._now = 0.0
        self._writer = RunLogWriter(path, self.run, clock=lambda: self._now)
        self._writer.judged_by(JUDGES)

    def steps(
        self,
        count: int,
        loss: Callable[[int], float] = lambda step: 2.0 + 3.0 / step,
        values: Mapping[str, float] | None = None,
        change: Change = lambda step, statistic, site: None,
        score: float = 0.2,
        alerts: Sequence[Alert] = (),
        events: Sequence[Event] = (),
    ) -> None:
        """Alerts and events come with the last of them."""
        for i in range(count):
            self.last += 1
            scores = np.array([score, 0.1, 0.5], dtype=np.float32)
            self._writer.scored(scores)
            told = (alerts, events) if i == count - 1 else ((), ())
            self._now += i == count - 1  # what has waited for a second is committed
            self._writer.emit(self._snapshot(self.last, loss, values or {}, change), *told)

    def close(self, state: RunState = "finished") -> None:
        self._writer.close(state)

    def alert(self, step: int, severity: Severity = "critical", **other: object) -> Alert:
        given: dict[str, object] = {
            "run": self.run.name, "detector": "context_stall", "state": "raised", "severity": severity, "step": step,
            "time": self.start + step, "since": step - 20, "site": "h.3.ln_1", "layer": 3, "score": 2.0,
            "action": "is not learning: every token gets the same answer. Restart with lr <= 3e-4",
            "cause": "The first updates were too large.", "remedies": ("Cut the learning rate", "Warm up"),
            "evidence": {"context_share": 1e-6, "loss": 3.1}, "ruled_out": ("nothing to learn: bigram gap .7",),
        }  # fmt: skip
        return Alert(**{**given, **other})  # type: ignore[arg-type]

    def _snapshot(
        self, step: int, loss: Callable[[int], float], values: Mapping[str, float], change: Change
    ) -> Snapshot:
        found = np.full(len(self.layout.columns), np.nan, dtype=np.float32)
        sampled = step <= 50 or step % 10 == 0
        for slot, (statistic, _) in enumerate(self.layout.columns):
            site = self._sites[slot]
            if statistic == "loss":
                usual = loss(step)
            elif not site.name:
                usual = values.get(statistic, _KNOWN[statistic])
            else:
                usual = _of_layer(statistic, site, step) if sampled else np.nan
            other = change(step, statistic, site)
            found[slot] = usual if other is None else other
        return Snapshot(step, self.start + step, found, self.layout)


def _of_layer(statistic: str, site: Site, step: int) -> float:
    """Told by heart: norm inputs are (layer + 1) x step, the rest does not move."""
    layer = (site.layer or 0) + 1
    return float(layer * step if statistic == "norm_input_msq" else {"token_similarity": 0.1}.get(statistic, layer))
