"""How numbers are answered: NaN is null, what is not finite is told in words."""

from __future__ import annotations

from math import isnan
from typing import Annotated

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict

from stabmon.catalog import Array

Number = Annotated[float | None, BeforeValidator(lambda value: None if value is None or isnan(float(value)) else value)]
"""NaN is not read. Takes what was answered back, too: "Infinity"."""
_DIGITS = 6
"""As many as a float32 has."""


class Answer(BaseModel):
    """Base of every answer."""

    model_config = ConfigDict(ser_json_inf_nan="strings", from_attributes=True, frozen=True)


def numbers(values: Array) -> list[float | None]:
    """To six digits; NaN becomes null."""
    exact = values.astype(np.float64)
    with np.errstate(all="ignore"):
        scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.abs(exact))))
        rounded = np.round(exact * scale) / scale
    plain = np.where(np.isfinite(rounded), rounded, exact).astype(object)
    plain[np.isnan(exact)] = None
    found: list[float | None] = plain.tolist()
    return found
