"""The small tier against what it must hold, and that this can fail."""

import copy
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from stabmon.bench.detection.plan import SMALL
from stabmon.bench.detection.tolerances import broken
from stabmon.cli import app

Found = dict[str, Any]


@pytest.fixture(scope="module")
def found() -> Found:
    done = CliRunner().invoke(app, ["bench", "detection", "--tier", "small", "--json"])
    assert done.exit_code == 0, done.output
    result: Found = json.loads(done.stdout.splitlines()[-1])
    return result


def test_the_small_tier_holds_what_it_must(found: Found) -> None:
    assert broken(found) == [], json.dumps(found["runs"], indent=1)


def test_every_run_is_told_of(found: Found) -> None:
    assert len(found["runs"]) == len(SMALL)
    assert found["false_alarms"]["checks"] > 3000


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        (("classes", "STALL", "recall"), 0.5, "recall of STALL is 0.5"),
        (("classes", "STALL", "critical_in_time"), 0.0, "critical_in_time of STALL"),
        (("classes", "BLOW-UP", "lead_median"), None, "lead_median of BLOW-UP is None"),
        (("classes", "DATA"), {"runs": 2}, "recall of DATA is None"),
        (("class_right",), 0.5, "class_right is 0.5"),
        (("false_alarms", "critical"), 1, "1 of severity critical"),
        (("false_alarms", "warning"), 30, "30 of severity warning"),
    ],
)
def test_what_gets_worse_is_told(found: Found, where: tuple[str, ...], value: object, said: str) -> None:
    worse = copy.deepcopy(found)
    part: Any = worse
    for key in where[:-1]:
        part = part[key]
    part[where[-1]] = value
    assert any(said in line for line in broken(worse))
