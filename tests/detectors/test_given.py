"""What is said of detectors that are none, before a training."""

from typing import Any

import pytest

from stabmon.detectors import default_detectors
from stabmon.detectors.given import detectors_of
from stabmon.detectors.spike import Spike


class Mine:
    name = "mine"
    needs: tuple[str, ...] = ("loss",)

    def score(self, snapshot: Any) -> Any: ...

    def explain(self, site: int) -> Any: ...


class Misspelt(Mine):
    needs = ("loss", "norm_gian")


class Blind(Mine):
    needs = ()


def test_what_is_given_judges_and_else_the_defaults() -> None:
    mine = Mine()
    assert detectors_of(iter([mine])) == [mine]
    assert detectors_of([]) == []
    assert [d.name for d in detectors_of(None)] == [d.name for d in default_detectors()]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Mine(), "detectors=Mine: must be a list"),
        ("spike", "detectors='spike': must be a list"),
        (default_detectors, "detectors=function: must be a list"),
        ([Mine], r"detectors=\[the class Mine\]: must be objects"),
        (["spike"], r"detectors=\['spike'\]: must be objects"),
        ([Blind()], r"detectors=\[Blind\]: must be objects"),
        ([Misspelt()], "mine needs 'norm_gian', which is no statistic; did you mean 'norm_gain'"),
        ([*default_detectors(), Spike()], "'spike' is there twice"),
    ],
)
def test_what_is_none_is_refused_with_what_to_do(given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        detectors_of(given)
