"""The typed schema: a closed set of assertions over nodes with numbers for names.

A node is a conjunction of assertions; children and `$ref` targets are node ids, so recursive schemas are plain data.
Nothing here knows JSON's spelling of a schema (`build` reads that) or grammars.
"""

from __future__ import annotations

from dataclasses import field
from fractions import Fraction
from typing import Literal, TypeAlias

from converters.constraint import Draft
from converters.record import record

NodeId: TypeAlias = int
JsonType: TypeAlias = Literal["null", "boolean", "number", "string", "array", "object"]

Integers: TypeAlias = Literal["value", "text", "both"]
"""What makes a number an integer: its value (1.0 is one), in draft 4 its text (1.0 is none); "both" where drafts are mixed,
and in tools' arguments."""

ALL_TYPES: frozenset[JsonType] = frozenset(("null", "boolean", "number", "string", "array", "object"))

ALWAYS: NodeId = 0
"""The node of `true` and `{}`."""
NEVER: NodeId = 1
"""The node of `false`."""


@record
class Assertion:
    """One thing a node demands. `path` is the JSON pointer of its keyword; it doesn't count for equality."""

    path: str = field(compare=False)


@record
class TypeIs(Assertion):
    """The value has one of `types`; with `integers_only` a number must be integral."""

    types: frozenset[JsonType]
    integers_only: bool = False


@record
class Finite(Assertion):
    """`enum` and `const`: one of `values`, told apart by their canonical texts."""

    texts: tuple[str, ...]
    values: tuple[object, ...] = field(compare=False)


@record
class AtLeast(Assertion):
    """A number is at least (`exclusive`: above) `value`."""

    value: Fraction
    exclusive: bool = False


@record
class AtMost(Assertion):
    """A number is at most (`exclusive`: below) `value`."""

    value: Fraction
    exclusive: bool = False


@record
class Multiple(Assertion):
    """A number is a multiple of `of`, which is above 0."""

    of: Fraction


@record
class Length(Assertion):
    """A string has `min` to `max` (None: any number of) code points."""

    min: int
    max: int | None


@record
class Pattern(Assertion):
    """Some part of a string matches the regex `pattern`."""

    pattern: str


@record
class Format(Assertion):
    """A string is of the known format `name`."""

    name: str


@record
class Properties(Assertion):
    """`properties`, `patternProperties`, `additionalProperties` (`explicit`: it was said) of one node: they belong together."""

    declared: tuple[tuple[str, NodeId], ...]
    patterns: tuple[tuple[str, NodeId], ...] = ()
    additional: NodeId = ALWAYS
    explicit: bool = True


@record
class Required(Assertion):
    """An object has every one of `keys`."""

    keys: tuple[str, ...]


@record
class PropertyCount(Assertion):
    """An object has `min` to `max` (None: any number of) members."""

    min: int
    max: int | None


@record
class PropertyNames(Assertion):
    """Every key, as a string, is a value of `names`."""

    names: NodeId


@record
class DependentRequired(Assertion):
    """An object that has `key` has every one of `keys`."""

    key: str
    keys: tuple[str, ...]


@record
class DependentSchema(Assertion):
    """An object that has `key` is a value of `then`."""

    key: str
    then: NodeId


@record
class Items(Assertion):
    """The first items are values of `prefix`, one by one; the others of `rest` (`explicit`: it was said)."""

    prefix: tuple[NodeId, ...]
    rest: NodeId
    explicit: bool = True


@record
class ItemCount(Assertion):
    """An array has `min` to `max` (None: any number of) items."""

    min: int
    max: int | None


@record
class Contains(Assertion):
    """Of an array's items `min` to `max` (None: any number of) are values of `item`."""

    item: NodeId
    min: int = 1
    max: int | None = None


@record
class Unique(Assertion):
    """No two items of an array are equal."""


@record
class AllOf(Assertion):
    """A value of every node (also `$ref`: one node)."""

    nodes: tuple[NodeId, ...]


@record
class AnyOf(Assertion):
    """A value of at least one node."""

    nodes: tuple[NodeId, ...]


@record
class OneOf(Assertion):
    """A value of exactly one node."""

    nodes: tuple[NodeId, ...]


@record
class Not(Assertion):
    """Not a value of `node`."""

    node: NodeId


@record
class Conditional(Assertion):
    """A value of `then` if it is one of `condition`, else a value of `otherwise`."""

    condition: NodeId
    then: NodeId
    otherwise: NodeId


@record
class UnevaluatedProperties(Assertion):
    """The members that nothing else in `scope` (the same node without this keyword) looks at are values of `node`."""

    scope: NodeId
    node: NodeId


@record
class UnevaluatedItems(Assertion):
    """The items that nothing else in `scope` (the same node without this keyword) looks at are values of `node`."""

    scope: NodeId
    node: NodeId


@record
class Impossible(Assertion):
    """The schema `false`."""


Leaf: TypeAlias = (
    TypeIs | Finite | AtLeast | AtMost | Multiple | Length | Pattern | Format | Properties | Required | PropertyCount
    | PropertyNames | DependentRequired | DependentSchema | Items | ItemCount | Contains | Unique | Impossible
)  # fmt: skip
"""Assertions about the value itself; the others combine nodes about the same value."""


@record
class Node:
    """A conjunction. `path` is the pointer of the schema it was read from."""

    assertions: tuple[Assertion, ...]
    path: str = field(compare=False, default="")


@record
class Schema:
    """A whole schema: nodes by id, the root's id, the draft it speaks, its integers, and what the caller must be told."""

    nodes: tuple[Node, ...]
    root: NodeId
    draft: Draft
    integers: Integers = "value"
    notes: tuple[str, ...] = ()
