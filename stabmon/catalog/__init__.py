"""Every statistic, spelled once: name, meaning, unit, how readings combine, how it is shown.

Taps write the *stored* ones (additive: sums, mean squares, counts). The *derived* ones are the human
forms (norm, rms, ratio), computed from stored ones when a snapshot is asked for them. One file per subject.
"""

from stabmon.catalog import activations, attention, blocks, norms, optimizer, probe, ranks, training
from stabmon.catalog.served import PEAKS
from stabmon.catalog.statistic import FLOOR_SQ, Array, Combine, Scope, Statistic

__all__ = ["FLOOR_SQ", "PARTS", "PEAKS", "STATISTICS", "Array", "Combine", "Scope", "Statistic"]

PARTS = (training, norms, blocks, attention, probe, activations, optimizer, ranks)

STATISTICS: dict[str, Statistic] = {row.name: row for part in PARTS for row in part.TABLE}
