"""What is left of a schema when every combination is worked out: cases, and per JSON type the facts that a case states.

A term is a conjunction of schemas and negated schemas; it is what stands at a place of the document. `algebra` turns a term
into cases, the lowering turns cases into grammar. Only data here.
"""

from __future__ import annotations

from dataclasses import field
from fractions import Fraction
from typing import TypeAlias

from converters.jsonschema.schema import ALL_TYPES, ALWAYS, NEVER, Format, JsonType, NodeId, Pattern
from converters.record import record

Literal: TypeAlias = tuple[NodeId, bool]
"""A node, or with False its negation."""
Term: TypeAlias = frozenset[Literal]

ANYTHING: Term = frozenset()
NOTHING: Term = frozenset({(NEVER, True)})


def conjunction(literals: frozenset[Literal]) -> Term:
    """The term of `literals`, with the trivial ones gone and contradictions found."""
    kept = literals - {(ALWAYS, True), (NEVER, False)}
    if (NEVER, True) in kept or (ALWAYS, False) in kept:
        return NOTHING
    if len(kept) > 1 and any((node, not positive) in kept for node, positive in kept):
        return NOTHING
    return kept


@record
class StringFacts:
    """Strings of `min` to `max` code points that pass every test (or, with False, fail it) and aren't `excluded`."""

    min: int = 0
    max: int | None = None
    tests: frozenset[tuple[Pattern | Format, bool]] = frozenset()
    excluded: frozenset[str] = frozenset()


@record
class NumberFacts:
    """Numbers between two bounds (None: none), multiples of some numbers and not of others, integral or not (None: either)."""

    low: Fraction | None = None
    low_exclusive: bool = False
    high: Fraction | None = None
    high_exclusive: bool = False
    multiples: frozenset[Fraction] = frozenset()
    non_multiples: frozenset[Fraction] = frozenset()
    integral: bool | None = None
    excluded: frozenset[Fraction] = frozenset()
    path: str = field(default="", compare=False)


@record
class Members:
    """Declared keys have their terms, keys that match a pattern its term (declared ones too), all others `additional`."""

    path: str = field(compare=False)
    declared: tuple[tuple[str, Term], ...] = ()
    patterns: tuple[tuple[str, Term], ...] = ()
    additional: Term = ANYTHING
    explicit: bool = True


@record
class SomeMember:
    """At least one key of `names` that matches `pattern` and is not `outside` (by name or pattern) has a value of `value`."""

    path: str = field(compare=False)
    value: Term = ANYTHING
    pattern: str | None = None
    outside_keys: frozenset[str] = frozenset()
    outside_patterns: frozenset[str] = frozenset()
    names: Term = ANYTHING


@record
class ObjectFacts:
    """Objects. `has` are required keys, in the order in which they were asked for; `names` rule every key."""

    members: tuple[Members, ...] = ()
    has: tuple[str, ...] = ()
    min: int = 0
    max: int | None = None
    names: tuple[Term, ...] = ()
    some: tuple[SomeMember, ...] = ()
    path: str = field(default="", compare=False)


@record
class Elements:
    """The first items are of `prefix`, one by one, the others of `rest`."""

    prefix: tuple[Term, ...]
    rest: Term = ANYTHING


@record
class Occurs:
    """`min` to `max` of the items from `start` on are of `item`."""

    path: str = field(compare=False)
    item: Term
    min: int
    max: int | None
    start: int = 0


@record
class ArrayFacts:
    """Arrays of `min` to `max` items; `distinct`: no two (False: some two) are equal."""

    elements: tuple[Elements, ...] = ()
    min: int = 0
    max: int | None = None
    occurs: tuple[Occurs, ...] = ()
    distinct: bool | None = None
    path: str = field(default="", compare=False)


@record
class Shape:
    """A value of one of `types` for which the facts of its type hold."""

    types: frozenset[JsonType] = ALL_TYPES
    booleans: frozenset[bool] = frozenset((False, True))
    strings: StringFacts = StringFacts()
    numbers: NumberFacts = NumberFacts()
    objects: ObjectFacts = ObjectFacts()
    arrays: ArrayFacts = ArrayFacts()


@record
class Values:
    """One of finitely many values, told apart by their canonical texts."""

    texts: tuple[str, ...]
    values: tuple[object, ...] = field(compare=False)


ANY_STRING, ANY_NUMBER, ANY_OBJECT, ANY_ARRAY = StringFacts(), NumberFacts(), ObjectFacts(), ArrayFacts()

Case: TypeAlias = Shape | Values
