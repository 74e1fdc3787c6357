"""Durations as Go writes them, and as those write them who don't know that: "1h30m", "300ms", "-1", "60"."""

from __future__ import annotations

import math
import re
from typing import Annotated

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from server.api.fields import read_number

_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")  # both letters mean micro
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_MAX_CHARS = 64


def parse_duration_s(text: str) -> float | None:
    """Seconds, negative ones included; None for what is no duration. A number without a unit is seconds."""
    text = text.strip()
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if len(digits) > _MAX_CHARS:
        return None
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", digits):
        return sign * float(digits)
    if not re.fullmatch(f"(?:{_PART.pattern})+", digits):
        return None
    return sign * sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(digits))


def _period(value: object) -> float:
    seconds = parse_duration_s(value) if isinstance(value, str) else read_number(value)
    if seconds is None:
        raise PydanticCustomError("invalid_value", "must be seconds, or a duration like 5m, not {it}", {"it": repr(value)})
    return math.inf if seconds < 0 else seconds


Period = Annotated[float, BeforeValidator(_period)]
"""The type of a field: seconds as a number, or a duration as text; what is negative is for ever."""
