"""The tree of a regular expression: a closed union of frozen nodes, with constructors that keep it small.

Groups are gone (capturing has no meaning for a language), flags and case folding are applied, laziness is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from converters.grammar.charset import CharSet


@dataclass(frozen=True, slots=True)
class Class:
    """One character of `chars` (the empty set matches nothing)."""

    chars: CharSet


@dataclass(frozen=True, slots=True)
class Cat:
    """`items` one after the other; no items is the empty string."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of `options`."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item` `min` to `max` times (None: without end)."""

    item: Node
    min: int
    max: int | None


class Anchor(Enum):
    """A condition on the place alone."""

    START = "start of the text"
    END = "end of the text"
    LINE_START = "start of a line"
    LINE_END = "end of a line"
    BOUNDARY = "word boundary"
    NO_BOUNDARY = "no word boundary"


@dataclass(frozen=True, slots=True)
class At:
    """The empty string where `anchor` holds."""

    anchor: Anchor


@dataclass(frozen=True, slots=True)
class Look:
    """The empty string where `item` matches from here on (`behind`: up to here), or with `negated` doesn't."""

    item: Node
    behind: bool
    negated: bool


Node: TypeAlias = Class | Cat | Or | Repeat | At | Look

EMPTY = Cat(())


def cat(items: list[Node]) -> Node:
    """`items` in order, flattened."""
    flat: list[Node] = []
    for item in items:
        if isinstance(item, Cat):
            flat.extend(item.items)
        else:
            flat.append(item)
    return flat[0] if len(flat) == 1 else Cat(tuple(flat))


def either(options: list[Node]) -> Node:
    """One of `options`, flattened; single characters among them become one class."""
    flat: dict[Node, None] = {}
    chars: CharSet | None = None
    place: Node | None = None
    for option in options:
        for part in option.options if isinstance(option, Or) else (option,):
            if not isinstance(part, Class):
                flat[part] = None
            elif chars is None:
                chars, place = part.chars, part
                flat[part] = None
            else:
                chars = chars | part.chars
    if place is not None and chars is not None:
        flat = dict.fromkeys(Class(chars) if part is place else part for part in flat)
    return next(iter(flat)) if len(flat) == 1 else Or(tuple(flat))


def repeat(item: Node, low: int, high: int | None) -> Node:
    """`item` `low` to `high` times; the trivial counts vanish."""
    if high == 0 or item == EMPTY:
        return EMPTY
    if low == high == 1:
        return item
    if isinstance(item, Repeat) and item.max is None and item.min <= 1 and high is None and low <= 1:
        return Repeat(item.item, min(item.min, low), None)
    return Repeat(item, low, high)
