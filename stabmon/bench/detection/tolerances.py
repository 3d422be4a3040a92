"""What the small tier must hold: a change that makes a detector blind, slow or loud fails here within minutes.

The numbers are those of few runs of one seed, and no measurement of how good the detectors are: that is the full tier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

GRADED = 22
"""Runs of 24 that have a class, at least."""
RECALL: Mapping[str, float] = {"STALL": 1.0, "BLOW-UP": 1.0, "ATTENTION": 1.0, "SPIKE": 1.0, "DATA": 1.0}
"""Of warnings that name the class, at least."""
IN_TIME: Mapping[str, float] = {"STALL": 1.0, "SPIKE": 1.0, "DATA": 1.0}
CRITICAL_IN_TIME: Mapping[str, float] = {"STALL": 0.8}
LEAD: Mapping[str, float] = {"BLOW-UP": 50, "ATTENTION": 30}
"""Median, in steps, at least. Measured when the table was made: 137 of two runs, 43 of one."""
NAMED = 0.9
"""Share of the failures whose first warning names the class."""
CRITICALS = 0
"""False ones, at most."""
WARNINGS = 3
"""False ones, at most: a plateau that is left later may be warned of."""


def broken(found: Mapping[str, Any]) -> Sequence[str]:
    """What of the table does not hold, of the JSON of a run of the bench; empty: all does."""
    classes, false = found["classes"], found["false_alarms"]
    graded = sum(row["runs"] for row in classes.values())
    told = [f"{graded} runs have a class, fewer than {GRADED}"] if graded < GRADED else []
    least = (("recall", RECALL), ("in_time", IN_TIME), ("critical_in_time", CRITICAL_IN_TIME), ("lead_median", LEAD))
    for key, table in least:
        for name, wanted in table.items():
            value = classes.get(name, {}).get(key)
            if value is None or value < wanted:
                told.append(f"{key} of {name} is {value}, below {wanted}")
    if (found["class_right"] or 0.0) < NAMED:
        told.append(f"class_right is {found['class_right']}, below {NAMED}")
    for key, most in (("critical", CRITICALS), ("warning", WARNINGS)):
        if false[key] > most:
            told.append(f"false alarms: {false[key]} of severity {key}, more than {most}")
    return told
