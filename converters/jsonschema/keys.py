"""The keys of an object: which terms rule the value of a key, and into which classes the undeclared keys fall."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from converters.automata import ANY_TEXT, Dfa, difference, intersection, of_strings, union
from converters.errors import UnsupportedFeature
from converters.jsonschema.fact import MAX_TOLD
from converters.jsonschema.shape import ANYTHING, NOTHING, Members, ObjectFacts, SomeMember, Term
from converters.record import record

if TYPE_CHECKING:
    from converters.jsonschema.algebra import Algebra

_MAX_CLASSES = 64


@record
class KeyClass:
    """Undeclared keys that are treated alike: `keys` is None for all keys that aren't declared."""

    keys: Dfa | None
    value: Term


def declared_keys(facts: ObjectFacts) -> dict[str, None]:
    """The keys that some `properties` or `required` names, in their order."""
    keys = dict.fromkeys(key for members in facts.members for key, _ in members.declared)
    return keys | dict.fromkeys(facts.has)


def term_of_key(facts: ObjectFacts, key: str, algebra: Algebra) -> Term:
    """What the value of `key` must be; NOTHING for a key that can't be there."""
    literals: Term = frozenset()
    for members in facts.members:
        literals |= term_in(members, key, algebra)
    if any(not algebra.evaluator.satisfies(key, names) for names in facts.names):
        return NOTHING
    return algebra.simplify(literals)


def term_in(members: Members, key: str, algebra: Algebra) -> Term:
    """What one node's properties ask of the value of `key`."""
    terms = [term for name, term in members.declared if name == key]
    terms += [term for pattern, term in members.patterns if key_matches(pattern, key, algebra)]
    return frozenset().union(*terms) if terms else members.additional


def key_matches(pattern: str, key: str, algebra: Algebra) -> bool:
    """True when some part of `key` matches `pattern`, of a `patternProperties`."""
    return algebra.strings.test_dfa(algebra.space.key_pattern(pattern)).accepts(key)


def required_terms(facts: ObjectFacts, algebra: Algebra) -> Iterator[Term]:
    """The terms of the required keys."""
    for key in facts.has:
        yield term_of_key(facts, key, algebra)


def finite_keys(facts: ObjectFacts) -> set[str] | None:
    """All keys that can be there, when they are finitely many by additionalProperties: false."""
    for members in facts.members:
        if members.additional == NOTHING and not members.patterns:
            return {key for key, term in members.declared if term != NOTHING}
    return None


def is_closed(facts: ObjectFacts, algebra: Algebra) -> bool:
    """True when no undeclared key can be there."""
    return all(c.value == NOTHING for c in undeclared(facts, algebra))


def undeclared(facts: ObjectFacts, algebra: Algebra) -> list[KeyClass]:
    """The classes of the keys that aren't declared, those without values left out. Their languages are disjoint."""
    patterns = list(dict.fromkeys(pattern for members in facts.members for pattern, _ in members.patterns))
    names = [_names_dfa(term, algebra) for term in facts.names]
    if finite_keys(facts) is not None:
        return []
    if not patterns and not names:
        value = algebra.simplify(frozenset().union(*(members.additional for members in facts.members)))
        return [] if algebra.is_empty(value) else [KeyClass(None, value)]
    return _by_pattern(facts, patterns, names, algebra)


def _by_pattern(facts: ObjectFacts, patterns: list[str], names: list[Dfa], algebra: Algebra) -> list[KeyClass]:
    budget = algebra.space.budget
    rest = ANY_TEXT
    for dfa in names:
        rest = intersection(rest, dfa, budget)
    if keys := declared_keys(facts):
        rest = difference(rest, of_strings(keys, budget), budget)
    classes: list[tuple[Dfa, frozenset[str]]] = [(rest, frozenset())]
    for pattern in patterns:
        dfa = algebra.strings.test_dfa(algebra.space.key_pattern(pattern))
        split = [(intersection(c, dfa, budget), matched | {pattern}) for c, matched in classes]
        split += [(difference(c, dfa, budget), matched) for c, matched in classes]
        classes = [(c, matched) for c, matched in split if not c.is_empty()]
        if len(classes) > _MAX_CLASSES:
            raise UnsupportedFeature("patternProperties that overlap in too many ways", path=facts.path)
    by_value: dict[Term, Dfa] = {}
    for keys_dfa, matched in classes:
        value = algebra.simplify(frozenset().union(*(_term_of_class(members, matched) for members in facts.members)))
        if not algebra.is_empty(value):
            by_value[value] = union(by_value[value], keys_dfa, budget) if value in by_value else keys_dfa
    return [KeyClass(dfa, value) for value, dfa in by_value.items()]


def _term_of_class(members: Members, matched: frozenset[str]) -> Term:
    terms = [term for pattern, term in members.patterns if pattern in matched]
    return frozenset().union(*terms) if terms else members.additional


def _names_dfa(term: Term, algebra: Algebra) -> Dfa:
    """The strings among a term's values."""
    from converters.automata import NOTHING as NO_TEXT
    from converters.jsonschema.shape import Shape

    budget = algebra.space.budget
    dfa = NO_TEXT
    for case in algebra.cases(algebra.simplify(term)):
        if isinstance(case, Shape):
            if "string" in case.types:
                dfa = union(dfa, algebra.strings.language(case.strings), budget)
        else:
            words = [value for value in case.values if isinstance(value, str)]
            dfa = union(dfa, of_strings(words, budget), budget)
    return dfa


def is_met(facts: ObjectFacts, some: SomeMember, algebra: Algebra) -> bool:
    """True when a required key is proved to be the member that `some` asks for."""
    for key in facts.has:
        if in_class(some, key, algebra):
            own = term_of_key(facts, key, algebra)
            others = (algebra.simplify(own | {(node, not positive)}) for node, positive in some.value)
            if all(algebra.is_empty(other) for other in others):
                return True
    return False


def alternatives_of_some(facts: ObjectFacts, algebra: Algebra, *, proving: bool = False) -> Iterator[ObjectFacts]:
    """The facts with each "some member" pinned to a declared key that may be it, and is not when an earlier one is.

    An undeclared key may be it too: then it stays (`proving`: not when there is no such key).
    """
    choices = [list(_choices(facts, some, algebra)) for some in facts.some if not is_met(facts, some, algebra)]
    bare = replace(facts, some=())
    for picks in product(*choices):
        out = bare
        for pick in picks:
            pinned = Members(facts.path, pick.values, explicit=False)
            out = replace(out, members=(*out.members, pinned)) if pick.values else out
            if pick.key is not None:
                out = replace(out, has=tuple(dict.fromkeys((*out.has, pick.key))))
            elif not proving:
                out = replace(out, some=(*out.some, pick.some))
        yield out


@record
class _Pick:
    """`key` is the member that `some` asks for (None: an undeclared one is); what that says of the declared keys' `values`."""

    some: SomeMember
    key: str | None
    values: tuple[tuple[str, Term], ...]


def _choices(facts: ObjectFacts, some: SomeMember, algebra: Algebra) -> Iterator[_Pick]:
    """All of them, and as far as that can be said no two at once: alternatives with the same keys are read side by side."""
    wrong: tuple[tuple[str, Term], ...] = ()
    for key in declared_keys(facts):
        if in_class(some, key, algebra) and term_of_key(facts, key, algebra) != NOTHING:
            yield _Pick(some, key, (*wrong, (key, some.value)))
            if len(some.value) < 2 and len(wrong) < MAX_TOLD:
                failure = NOTHING if some.value == ANYTHING else frozenset((node, not holds) for node, holds in some.value)
                wrong = (*wrong, (key, failure))
    if not is_closed(replace(facts, some=()), algebra):
        yield _Pick(some, None, wrong)


def in_class(some: SomeMember, key: str, algebra: Algebra) -> bool:
    """True when `key` can be the member that `some` asks for."""
    if key in some.outside_keys or any(key_matches(pattern, key, algebra) for pattern in some.outside_patterns):
        return False
    if some.pattern is not None and not key_matches(some.pattern, key, algebra):
        return False
    return algebra.evaluator.satisfies(key, some.names)


def class_dfa(some: SomeMember, algebra: Algebra) -> Dfa:
    """The keys that can be the member that `some` asks for."""
    budget = algebra.space.budget
    dfa = _names_dfa(some.names, algebra) if some.names != ANYTHING else ANY_TEXT
    if some.pattern is not None:
        dfa = intersection(dfa, algebra.strings.test_dfa(algebra.space.key_pattern(some.pattern)), budget)
    for pattern in some.outside_patterns:
        dfa = difference(dfa, algebra.strings.test_dfa(algebra.space.key_pattern(pattern)), budget)
    return difference(dfa, of_strings(some.outside_keys, budget), budget) if some.outside_keys else dfa
