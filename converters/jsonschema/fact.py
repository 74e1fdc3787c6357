"""Single assertions as facts: adding one to a shape, and saying what it means that one fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

from converters.jsonschema import schema as s
from converters.jsonschema.shape import (
    ArrayFacts,
    Elements,
    Members,
    NumberFacts,
    ObjectFacts,
    Occurs,
    Shape,
    SomeMember,
    StringFacts,
    Term,
    conjunction,
)
from converters.jsonschema.space import Space
from converters.jsonschema.value import exact
from converters.record import record

MAX_TOLD = 16
"""Of so many keys the alternatives say what they are in the others: each makes all alternatives longer."""

Claim: TypeAlias = tuple[s.NodeId | s.Assertion, bool]
"""A node or an assertion, or with False its negation."""
Option: TypeAlias = tuple[Claim, ...]
"""Claims that hold together."""


def term_of(node: s.NodeId, positive: bool = True) -> Term:
    """The term of one literal."""
    return conjunction(frozenset({(node, positive)}))


def add_fact(shape: Shape, fact: s.Assertion, positive: bool) -> Shape | None:
    """`shape` and also `fact`, or its failure; None when that is impossible.

    A failure has the type that the assertion speaks of; failures that are alternatives are taken apart by `negated` first.
    """
    match fact:
        case s.Impossible():
            return None if positive else shape
        case s.TypeIs(_, types, integers_only):
            return _typed(shape, types, integers_only, positive)
        case s.Finite():
            return _without(shape, fact)
        case s.AtLeast() | s.AtMost() | s.Multiple():
            shape = shape if positive else _only(shape, "number")
            numbers = _numbers(shape.numbers, fact, positive)
            return replace(shape, numbers=replace(numbers, path=_blamed(shape.numbers.path, fact)))
        case s.Length() | s.Pattern() | s.Format():
            shape = shape if positive else _only(shape, "string")
            return replace(shape, strings=_strings(shape.strings, fact, positive))
        case s.Properties() | s.Required() | s.PropertyCount() | s.PropertyNames():
            shape = shape if positive else _only(shape, "object")
            return replace(
                shape, objects=replace(_objects(shape.objects, fact, positive), path=_blamed(shape.objects.path, fact))
            )
        case s.Items() | s.ItemCount() | s.Contains() | s.Unique():
            shape = shape if positive else _only(shape, "array")
            arrays = _arrays(shape.arrays, fact, positive)
            return None if arrays is None else replace(shape, arrays=replace(arrays, path=_blamed(shape.arrays.path, fact)))
        case SomeKey(_, some):
            return replace(_only(shape, "object"), objects=replace(shape.objects, some=(*shape.objects.some, some)))
        case SomeItem(_, occurs):
            return replace(_only(shape, "array"), arrays=replace(shape.arrays, occurs=(*shape.arrays.occurs, occurs)))
        case _:
            raise AssertionError(f"{type(fact).__name__} is no fact")


@record
class SomeKey(s.Assertion):
    """What no single keyword states: an object has some member such as `some`."""

    some: SomeMember


@record
class SomeItem(s.Assertion):
    """What no single keyword states: an array has items such as `occurs`."""

    occurs: Occurs


def negated(fact: s.Assertion, space: Space) -> tuple[Option, ...] | None:
    """The ways in which an assertion can fail, as alternatives; None when the failure is one plain fact."""
    path = fact.path
    match fact:
        case s.Impossible():
            return ((),)
        case s.Finite(_, _, values):
            nodes = [space.node_of_value(value, path) for value in values if isinstance(value, (dict, list, tuple))]
            plain = [value for value in values if not isinstance(value, (dict, list, tuple))]
            if not nodes:
                return None
            rest = tuple((node, False) for node in nodes)
            if plain:
                rest = (*rest, *(((space.node_of_value(value, path), False)) for value in plain))
            return (rest,)
        case s.Required(_, keys):
            only: tuple[s.Assertion, bool] = (s.TypeIs(path, frozenset({"object"})), True)
            return tuple((only, (s.Properties(path, ((key, s.NEVER),), explicit=False), True)) for key in keys)
        case s.DependentRequired(_, key, keys):
            has = (s.Required(path, (key,)), True)
            return tuple((has, (s.Required(path, (other,)), False)) for other in keys)
        case s.DependentSchema(_, key, node):
            only = (s.TypeIs(path, frozenset({"object"})), True)
            return ((only, (s.Required(path, (key,)), True), (node, False)),)
        case s.Properties():
            return tuple(_broken_properties(fact, space))
        case s.PropertyNames(_, names):
            return (((SomeKey(path, SomeMember(path, names=term_of(names, False))), True),),)
        case s.Items():
            return tuple(_broken_items(fact, space))
        case s.Contains(_, item, low, high):
            only = (s.TypeIs(path, frozenset({"array"})), True)
            fewer: tuple[Option, ...] = ((only, (s.Contains(path, item, 0, low - 1), True)),) if low else ()
            return fewer if high is None else (*fewer, (only, (s.Contains(path, item, high + 1, None), True)))
        case s.Length(_, low, high) | s.PropertyCount(_, low, high) | s.ItemCount(_, low, high):
            kind: s.JsonType = {s.Length: "string", s.PropertyCount: "object", s.ItemCount: "array"}[type(fact)]  # type: ignore[assignment]
            only = (s.TypeIs(path, frozenset({kind})), True)
            below: tuple[Option, ...] = ((only, (type(fact)(path, 0, low - 1), True)),) if low else ()
            return below if high is None else (*below, (only, (type(fact)(path, high + 1, None), True)))
        case _:
            return None


def negated_node(assertions: Sequence[s.Assertion], space: Space) -> list[Option]:
    """The ways in which a conjunction can fail, as alternatives.

    A key that is required and has a schema fails in one way, not two: {"required": ["a"], "properties": {"a": T}} fails when
    {"properties": {"a": {"not": T}}} holds, which an absent key does. After that, the key is there and is a T: alternatives
    that leave the value of a key open are read beside one another, and those of the values in it beside those.
    """
    required = [a for a in assertions if isinstance(a, s.Required)]
    properties = [a for a in assertions if isinstance(a, s.Properties)]
    if len(required) != 1 or len(properties) != 1:
        return [((a, False),) for a in assertions]
    path, declared = properties[0].path, dict(properties[0].declared)
    both = [key for key in required[0].keys if declared.get(key, s.ALWAYS) != s.ALWAYS]
    only: Claim = (s.TypeIs(path, frozenset({"object"})), True)
    options: list[Option] = [((a, False),) for a in assertions if a not in (required[0], properties[0])]
    right: tuple[Claim, ...] = ()
    for key in both:
        wrong = space.make(s.Not(path, declared[key]))
        options += [(only, *right, (s.Properties(path, ((key, wrong),), explicit=False), True))]
        if len(right) < 2 * MAX_TOLD:
            value = s.Properties(path, ((key, declared[key]),), explicit=False)
            right = (*right, (s.Required(path, (key,)), True), (value, True))
    keys = tuple(key for key in required[0].keys if key not in both)
    rest = tuple((key, s.ALWAYS if key in both else node) for key, node in properties[0].declared)
    others = [*(negated(s.Required(required[0].path, keys), space) or ())]
    others += _broken_properties(replace(properties[0], declared=rest), space)
    return [*options, *((*option, *right) for option in others)]


def _broken_properties(fact: s.Properties, space: Space) -> list[Option]:
    path = fact.path
    only: tuple[s.Assertion, bool] = (s.TypeIs(path, frozenset({"object"})), True)
    options: list[Option] = []
    right: tuple[Claim, ...] = ()
    for key, node in fact.declared:
        if node != s.ALWAYS:
            wrong = space.make(s.Not(path, node))
            broken = s.Properties(path, ((key, wrong),), explicit=False)
            options.append((only, *right, (s.Required(path, (key,)), True), (broken, True)))
            if len(right) < MAX_TOLD:
                right = (*right, (s.Properties(path, ((key, node),), explicit=False), True))
    for pattern, node in fact.patterns:
        if node != s.ALWAYS:
            options.append((*right, (SomeKey(path, SomeMember(path, term_of(node, False), pattern)), True)))
    if fact.additional != s.ALWAYS:
        keys, patterns = frozenset(k for k, _ in fact.declared), frozenset(p for p, _ in fact.patterns)
        some = SomeMember(path, term_of(fact.additional, False), None, keys, patterns)
        options.append((*right, (SomeKey(path, some), True)))
    return options


def _broken_items(fact: s.Items, space: Space) -> list[Option]:
    path = fact.path
    only: tuple[s.Assertion, bool] = (s.TypeIs(path, frozenset({"array"})), True)
    options: list[Option] = []
    for i, node in enumerate(fact.prefix):
        if node != s.ALWAYS:
            items = s.Items(path, (s.ALWAYS,) * i + (space.make(s.Not(path, node)),), s.ALWAYS)
            options.append((only, (s.ItemCount(path, i + 1, None), True), (items, True)))
    if fact.rest != s.ALWAYS:
        occurs = Occurs(path, term_of(fact.rest, False), 1, None, len(fact.prefix))
        options.append((only, (SomeItem(path, occurs), True)))
    return options


def _only(shape: Shape, kind: s.JsonType) -> Shape:
    return replace(shape, types=shape.types & {kind})


def _typed(shape: Shape, types: frozenset[s.JsonType], integers_only: bool, positive: bool) -> Shape | None:
    if not positive:
        types = (s.ALL_TYPES - types) | ({"number"} if integers_only else frozenset())
    types = shape.types & types
    if integers_only and "number" in types:
        if shape.numbers.integral is (not positive):
            types -= {"number"}
        shape = replace(shape, numbers=replace(shape.numbers, integral=positive))
    return replace(shape, types=types) if types else None


def _without(shape: Shape, fact: s.Finite) -> Shape | None:
    """The shape without some null, boolean, number and string values."""
    types, booleans = shape.types, shape.booleans
    strings: set[str] = set(shape.strings.excluded)
    numbers: set[Fraction] = set(shape.numbers.excluded)
    for value in fact.values:
        match value:
            case None:
                types -= {"null"}
            case bool():
                booleans -= {value}
            case str():
                strings.add(value)
            case _:
                numbers.add(exact(value))  # type: ignore[arg-type]
    types = types if booleans else types - {"boolean"}
    return replace(
        shape,
        types=types,
        booleans=booleans,
        strings=replace(shape.strings, excluded=frozenset(strings)),
        numbers=replace(shape.numbers, excluded=frozenset(numbers)),
    )


def _numbers(facts: NumberFacts, fact: s.AtLeast | s.AtMost | s.Multiple, positive: bool) -> NumberFacts:
    match fact:
        case s.Multiple(_, of):
            if positive:
                return replace(facts, multiples=facts.multiples | {of})
            return replace(facts, non_multiples=facts.non_multiples | {of})
        case s.AtLeast(_, value, exclusive) | s.AtMost(_, value, exclusive):
            exclusive = exclusive is positive
            if isinstance(fact, s.AtLeast) is positive:
                if facts.low is None or (value, exclusive) > (facts.low, facts.low_exclusive):
                    return replace(facts, low=value, low_exclusive=exclusive)
            elif facts.high is None or (-value, exclusive) > (-facts.high, facts.high_exclusive):
                return replace(facts, high=value, high_exclusive=exclusive)
    return facts


def _strings(facts: StringFacts, fact: s.Length | s.Pattern | s.Format, positive: bool) -> StringFacts:
    if isinstance(fact, s.Length):
        return replace(facts, min=max(facts.min, fact.min), max=_least(facts.max, fact.max))
    return replace(facts, tests=facts.tests | {(fact, positive)})


def _objects(
    facts: ObjectFacts, fact: s.Properties | s.Required | s.PropertyCount | s.PropertyNames, positive: bool
) -> ObjectFacts:
    assert positive, "failures of object facts are alternatives"
    match fact:
        case s.Properties(path, declared, patterns, additional, explicit):
            members = Members(
                path,
                tuple((key, term_of(node)) for key, node in declared),
                tuple((key, term_of(node)) for key, node in patterns),
                term_of(additional),
                explicit,
            )
            return facts if members in facts.members else replace(facts, members=(*facts.members, members))
        case s.Required(_, keys):
            return replace(facts, has=tuple(dict.fromkeys((*facts.has, *keys))))
        case s.PropertyCount(_, low, high):
            return replace(facts, min=max(facts.min, low), max=_least(facts.max, high))
        case s.PropertyNames(_, names):
            return replace(facts, names=tuple(dict.fromkeys((*facts.names, term_of(names)))))


def _arrays(facts: ArrayFacts, fact: s.Items | s.ItemCount | s.Contains | s.Unique, positive: bool) -> ArrayFacts | None:
    match fact:
        case s.Items(_, prefix, rest):
            elements = Elements(tuple(map(term_of, prefix)), term_of(rest))
            if elements == Elements(()):
                return facts
            return facts if elements in facts.elements else replace(facts, elements=(*facts.elements, elements))
        case s.ItemCount(_, low, high):
            return replace(facts, min=max(facts.min, low), max=_least(facts.max, high))
        case s.Contains(path, item, low, high):
            return replace(facts, occurs=(*facts.occurs, Occurs(path, term_of(item), low, high)))
        case s.Unique():
            return None if facts.distinct is (not positive) else replace(facts, distinct=positive)


_COSTLY = (s.Unique, s.Contains, s.PropertyCount, s.Multiple)
_COSTLY_NAMES = ("uniqueItems", "contains", "minProperties", "maxProperties", "multipleOf")


def _blamed(path: str, fact: s.Assertion) -> str:
    """The keyword to name when the facts of a type have no small grammar: the costly one among them."""
    if path and not isinstance(fact, _COSTLY) and path.rpartition("/")[2] in _COSTLY_NAMES:
        return path
    return fact.path


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)
