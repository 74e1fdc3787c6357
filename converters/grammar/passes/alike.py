"""Recursive rules that differ in nothing but the order of their alternatives, and in names, become one.

A union written in two orders (`A | B` here, `B | A` there) makes two sets of rules for the same values. Each level of a nested
text could then be read by either: `recursion` joins such readings only where both call the same rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from converters.grammar.expr import Alt, Expr, Grammar, Ref, Rep, Seq
from converters.grammar.passes.ending import drop_unreachable
from converters.grammar.passes.fixpoint import reached_from, recursive_parts
from converters.grammar.passes.walk import replace_refs
from converters.limits import Budget

MAX_RULES = 2000
"""Of a grammar; a larger one stays as it is."""
MAX_ROUNDS = 50
"""In which rules are told apart; where that isn't enough, the grammar stays as it is."""


def join_alike_rules(grammar: Grammar, budget: Budget) -> Grammar:
    """Call one rule where several can't be told apart by what they call in turn.

    Before → after: `root ::= x | "1"; x ::= "[" y | "a"; y ::= "a" | "[" x` → `root ::= x | "1"; x ::= "[" x | "a"`
    """
    doubtful = _doubtful(grammar, budget)
    reached = reached_from(doubtful, grammar.rules, budget)
    found = _classes({name: expr for name, expr in grammar.rules.items() if name in reached}, budget)
    if not found:
        return grammar
    first = {found[grammar.root]: grammar.root} if grammar.root in found else {}
    for name in grammar.rules:
        if name in found:
            first.setdefault(found[name], name)
    moved = {name: Ref(first[number]) for name, number in found.items() if first[number] != name}
    if moved.keys().isdisjoint(doubtful):
        return grammar
    rules = {name: replace_refs(expr, moved) for name, expr in grammar.rules.items() if name not in moved}
    return drop_unreachable(Grammar(rules, grammar.root), budget)


def _doubtful(grammar: Grammar, budget: Budget) -> list[str]:
    """The recursive rules that can't be told apart without a look at what isn't recursive, which is most."""
    recursive = recursive_parts(grammar.rules)
    if len(recursive) < 2 or len(grammar.rules) > MAX_RULES:
        return []
    found = _classes({name: grammar.rules[name] for name in recursive}, budget) or {}
    n_with = Counter(found.values())
    return [name for name, number in found.items() if n_with[number] > 1]


def _classes(rules: Mapping[str, Expr], budget: Budget) -> dict[str, int] | None:
    """The number of each rule's class, the same for those that are alike: all are, until they are told apart.

    Rules that aren't among these are all alike. None where that takes too many rounds.
    """
    found, n_found = dict.fromkeys(rules, 0), 1
    for _ in range(MAX_ROUNDS):
        budget.check_deadline()
        numbers: dict[object, int] = {}
        known = found
        # A shape alone tells no less than the round before: classes only ever fall apart.
        found = {name: numbers.setdefault(_shape(expr, known), len(numbers)) for name, expr in rules.items()}
        if len(numbers) == n_found:
            return found
        n_found = len(numbers)
    return None


def _shape(expr: Expr, known: Mapping[str, int]) -> object:
    """What is the same for expressions that are alike, where rules of the same class are."""
    if type(expr) is Ref:
        return known.get(expr.name, -1)
    if type(expr) is Seq:
        return tuple([_shape(item, known) for item in expr.items])
    if type(expr) is Alt:
        return frozenset([_shape(option, known) for option in expr.options])
    return (_shape(expr.item, known), expr.min, expr.max, "times") if type(expr) is Rep else expr
