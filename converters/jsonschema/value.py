"""JSON values: equality as JSON Schema has it, and their texts.

Numbers are int, float or Decimal; a float counts as the decimal number that `json.dumps` writes for it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

MAX_DIGITS = 400
"""Of a number that a schema may hold, after its point; before it there may be one more."""
_LARGE = 10 ** (MAX_DIGITS + 1)


class Texts(tuple[str, ...]):
    """Canonical texts in order. Whether one is among them is known at once, however many there are."""

    @cached_property
    def _members(self) -> frozenset[str]:
        return frozenset(self)

    def __contains__(self, text: object) -> bool:
        return text in self._members


def is_finite(number: int | float | Decimal) -> bool:
    """False for infinities and what is not a number."""
    return number.is_finite() if isinstance(number, Decimal) else isinstance(number, int) or math.isfinite(number)


def n_digits(number: int | float | Decimal) -> tuple[int, int]:
    """How many digits a finite number has before its point and after it; rightly only where they are more than MAX_DIGITS."""
    if isinstance(number, int):
        return (0 if abs(number) < _LARGE else MAX_DIGITS + 2), 0
    if isinstance(number, float) or not number:  # a float never has so many
        return 0, 0
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "it is finite"
    return number.adjusted() + 1, -exponent


def exact(number: int | float | Decimal) -> Fraction:
    """The number as it is written, not as binary has it. Raises ValueError or OverflowError when it isn't finite."""
    if not number:  # also one such as 0e-9999999
        return Fraction(0)
    return Fraction(Decimal(repr(number)) if isinstance(number, float) else number)


def canonical_text(value: object) -> str:
    """A text that two values share exactly when they are equal: keys sorted, 1.0 as 1, one spelling of strings."""
    match value:
        case None | bool():
            return json.dumps(value)
        case int():
            return str(value)
        case float() | Decimal():
            return str(exact(value))
        case str():
            return json.dumps(value)
        case Mapping():
            return "{" + ",".join(f"{json.dumps(k)}:{canonical_text(v)}" for k, v in sorted(value.items())) + "}"
        case list() | tuple():
            return "[" + ",".join(map(canonical_text, value)) + "]"
        case _:
            raise TypeError(f"{type(value).__name__} is not JSON")


def key_texts(key: str) -> tuple[str, ...]:
    """The spellings of a string that `json.dumps` writes, with quotes: raw, and with ensure_ascii."""
    if key.isascii() and key.isprintable() and '"' not in key and "\\" not in key:
        return (f'"{key}"',)
    return tuple(dict.fromkeys((json.dumps(key, ensure_ascii=False), json.dumps(key))))


def decimal_text(number: Fraction) -> str:
    """The number without exponent: 5/4 → 1.25, 3 → 3. Its denominator has no prime factors but 2 and 5."""
    if number.denominator == 1:
        return str(number.numerator)
    digits = fraction_digits(number)
    whole, rest = divmod(abs(number.numerator) * 10**digits // number.denominator, 10**digits)
    sign = "-" if number < 0 else ""
    return f"{sign}{whole}.{rest:0{digits}}"


def fraction_digits(number: Fraction) -> int:
    """How many digits the fraction of a decimal number needs."""
    digits, rest = 0, number.denominator
    while rest % 10 == 0:
        digits, rest = digits + 1, rest // 10
    while rest % 2 == 0:
        digits, rest = digits + 1, rest // 2
    while rest % 5 == 0:
        digits, rest = digits + 1, rest // 5
    return digits
