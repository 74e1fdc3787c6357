"""The decorator of the values that a compile makes by the ten thousand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from typing_extensions import dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """A slotted dataclass that is frozen for the type checker only.

    `dataclass(frozen=True)` sets each field through `object.__setattr__`, which makes an object three times as dear: a tenth
    of a compile.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
