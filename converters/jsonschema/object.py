"""Objects: the facts of a case become entries and a tail, which `member` writes down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from converters.grammar.expr import NEVER, Expr, alt
from converters.jsonschema.keys import KeyClass, alternatives_of_some, declared_keys, term_of_key, undeclared
from converters.jsonschema.member import MemberWalk
from converters.jsonschema.shape import ANYTHING, NOTHING, Members, ObjectFacts
from converters.jsonschema.tail import MAX_FREE_REQUIRED, Entry, Tail

if TYPE_CHECKING:
    from converters.jsonschema.lower import Lowering


def object_expr(facts: ObjectFacts, rank: Mapping[str, int], lowering: Lowering, hint: str) -> Expr:
    """The JSON texts of the objects of `facts`, keys in the order of `rank`."""
    if not facts.some:
        return _pinned(facts, rank, lowering, hint)
    return alt(*(_pinned(option, rank, lowering, hint) for option in alternatives_of_some(facts, lowering.algebra)))


def _pinned(facts: ObjectFacts, rank: Mapping[str, int], lowering: Lowering, hint: str) -> Expr:
    algebra, layout = lowering.algebra, lowering.layout
    algebra.space.budget.check_deadline()
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
    classes = open_classes(facts, lowering)
    low, high = _counts(facts, entries, bool(classes))
    free = _free_required(facts, entries)
    ordered = [entry for entry in entries if entry not in free]
    tail = Tail(classes, free, facts.some, keys, low, high, facts.path, lowering, hint)
    budget = algebra.space.budget
    content = MemberWalk(ordered, tail, layout, lowering.book, budget, hint, low, high, facts.path).content()
    return NEVER if content == NEVER else lowering.bracketed("{}", content)


def _counts(facts: ObjectFacts, entries: list[Entry], is_open: bool) -> tuple[int, int | None]:
    """The bounds on the number of members, as far as they say more than the keys do."""
    low = 0 if facts.min <= len(facts.has) else facts.min
    high = None if facts.max is not None and not is_open and facts.max >= len(entries) else facts.max
    return low, high


def _free_required(facts: ObjectFacts, entries: list[Entry]) -> list[Entry]:
    """Required keys that no `properties` declares: they may stand anywhere among the undeclared ones, if they are few."""
    declared = {key for members in facts.members for key, _ in members.declared}
    free = [entry for entry in entries if entry.required and entry.key not in declared]
    return free if len(free) <= MAX_FREE_REQUIRED else []


def open_classes(facts: ObjectFacts, lowering: Lowering) -> list[KeyClass]:
    """The classes of the keys that aren't declared. Of a closed object they are those that some `patternProperties` names."""
    if lowering.options.closed_objects and not any(members.explicit for members in facts.members):
        patterns = dict.fromkeys(pattern for members in facts.members for pattern, _ in members.patterns)
        if not patterns:
            return []
        named = Members(facts.path, (), tuple((pattern, ANYTHING) for pattern in patterns), NOTHING)
        facts = replace(facts, members=(*facts.members, named))
    return undeclared(facts, lowering.algebra)
