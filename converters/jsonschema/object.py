"""Objects: the facts of a case become entries and a tail, which `member` writes down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from converters.automata import intersection
from converters.errors import UnsupportedFeature
from converters.grammar.expr import NEVER, Expr, alt, lit, seq
from converters.jsonschema.keys import (
    KeyClass,
    alternatives_of_some,
    class_dfa,
    declared_keys,
    term_of_key,
    undeclared,
)
from converters.jsonschema.member import Entry, MemberWalk
from converters.jsonschema.shape import ANYTHING, NOTHING, ObjectFacts, SomeMember

if TYPE_CHECKING:
    from converters.jsonschema.lower import Lowering


def object_expr(facts: ObjectFacts, rank: Mapping[str, int], lowering: Lowering, hint: str) -> Expr:
    """The JSON texts of the objects of `facts`, keys in the order of `rank`."""
    if not facts.some:
        return _pinned(facts, rank, lowering, hint)
    return alt(*(_pinned(option, rank, lowering, hint) for option in alternatives_of_some(facts, lowering.algebra)))


def _pinned(facts: ObjectFacts, rank: Mapping[str, int], lowering: Lowering, hint: str) -> Expr:
    algebra, layout = lowering.algebra, lowering.layout
    keys = declared_keys(facts)
    entries: list[Entry] = []
    for key in sorted(keys, key=lambda key: rank.get(key, len(rank))):
        required = key in facts.has
        term = term_of_key(facts, key, algebra)
        value = NEVER if term == NOTHING else lowering.value(term, key)
        if value == NEVER and required:
            return NEVER
        if value != NEVER:
            entries.append(Entry(key, value, required))
    classes = _open_classes(facts, lowering)
    tail = alt(*(_tail_member(c, keys, lowering) for c in classes))
    walk = MemberWalk(entries, tail, layout, lowering.book, algebra.space.budget, hint, facts.min, facts.max, facts.path)
    if facts.some:
        if len(facts.some) > 1:
            raise UnsupportedFeature("several undeclared keys that must be there", path=facts.path)
        walk.witness = _witness(facts.some[0], classes, keys, lowering)
        walk.witness_is_last = facts.some[0].value != ANYTHING
        if walk.witness == NEVER:
            return NEVER
    content = walk.content()
    if content == NEVER:
        return NEVER
    return seq(lit("{"), lowering.bracketed(content), lit("}"))


def _open_classes(facts: ObjectFacts, lowering: Lowering) -> list[KeyClass]:
    if lowering.options.closed_objects and not any(members.explicit for members in facts.members):
        return []
    return undeclared(facts, lowering.algebra)


def _tail_member(keys: KeyClass, declared: Mapping[str, None], lowering: Lowering) -> Expr:
    texts = lowering.keys.except_for(declared) if keys.keys is None else lowering.keys.of_language(keys.keys)
    return seq(texts, lowering.layout.colon, lowering.value(keys.value, "more"))


def _witness(some: SomeMember, classes: list[KeyClass], declared: Mapping[str, None], lowering: Lowering) -> Expr:
    """A tail member such as `some` asks for."""
    from converters.automata import ANY_TEXT, difference, of_strings

    algebra, budget = lowering.algebra, lowering.algebra.space.budget
    wanted = class_dfa(some, algebra)
    options: list[Expr] = []
    for c in classes:
        keys = c.keys if c.keys is not None else difference(ANY_TEXT, of_strings(declared, budget), budget)
        both = intersection(keys, wanted, budget)
        value = algebra.simplify(c.value | some.value)
        if not both.is_empty() and not algebra.is_empty(value):
            options.append(_tail_member(KeyClass(both, value), declared, lowering))
    return alt(*options)


_ = replace
