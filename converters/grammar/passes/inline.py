"""Rules that are nothing but another name."""

from __future__ import annotations

from converters.grammar.expr import Chars, Expr, Grammar, Lit, Ref, Seq
from converters.grammar.passes.look import look_of
from converters.grammar.passes.walk import replace_refs
from converters.limits import Budget

MAX_LITERAL = 8
MAX_RANGES = 2


def inline_small_rules(grammar: Grammar, budget: Budget) -> Grammar:
    """Put the expression of a rule in its place where that is as short as its name.

    Before → after: `root ::= x y; x ::= y; y ::= "a"` → `root ::= "aa"`
    """
    small = {name: expr for name, expr in grammar.rules.items() if name != grammar.root and _is_small(expr)}
    if not small:
        return grammar
    final = {name: _resolve(name, small) for name in small}

    kept = {name: expr for name, expr in grammar.rules.items() if name not in small or final[name] == Ref(name)}
    budget.check_deadline()
    changed = {name for name, expr in kept.items() if not look_of(expr).refs.isdisjoint(small)}
    rules = {name: replace_refs(expr, final) if name in changed else expr for name, expr in kept.items()}
    return Grammar(rules, grammar.root)


def _is_small(expr: Expr) -> bool:
    if type(expr) is Lit:
        return len(expr.text) <= MAX_LITERAL
    if type(expr) is Chars:
        return len(expr.chars.ranges) <= MAX_RANGES
    return type(expr) is Ref or (type(expr) is Seq and not expr.items)


def _resolve(name: str, small: dict[str, Expr]) -> Expr:
    """What `name` comes to; itself when it is a name for itself (left recursion, another pass's business)."""
    seen = {name}
    expr = small[name]
    while type(expr) is Ref and expr.name in small:
        if expr.name in seen:
            return Ref(name)
        seen.add(expr.name)
        expr = small[expr.name]
    return expr
