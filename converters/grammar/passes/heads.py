"""What rules begin with, written where the rules are called: llama.cpp pays for every rule level that a stack goes through.

It works out what follows every live stack at every character, whether the character fits that stack or not. So a rule that
begins with a character costs each of its callers a level that a longer text doesn't. For printing only: the text grows.
"""

from __future__ import annotations

from converters.grammar.expr import EMPTY, Chars, Expr, Grammar, Lit, Ref, Seq, lit, seq
from converters.grammar.passes.look import look_of
from converters.grammar.passes.prefix import factor
from converters.grammar.passes.walk import items_of, replace_refs
from converters.limits import Budget

MAX_HEAD = 4
"""Of a literal that is longer than this, only the first character is written at the calls."""
MAX_RANGES = 2
MAX_CHAIN = 20
"""So many rules may begin with one another to have one head."""


def hoist_heads(grammar: Grammar, budget: Budget) -> Grammar:
    """Write the character that a rule begins with at its calls; a rule of which nothing is left but a name vanishes.

    Before → after: `root ::= x | "a" x; x ::= "[" y; y ::= z "]"` → `root ::= "[" y | "a[" y; y ::= z "]"`
    """
    heads: dict[str, Expr] = {}
    for name in grammar.rules:
        if name != grammar.root:
            _find_head(name, grammar, heads, MAX_CHAIN)
    heads = {name: head for name, head in heads.items() if head != EMPTY}
    if not heads:
        return grammar
    bare = {name: _without_head(grammar.rules[name], head) for name, head in heads.items()}
    names = {name: rest for name, rest in bare.items() if type(rest) is Ref and rest.name not in heads}
    calls = {name: seq(head, names.get(name, Ref(name))) for name, head in heads.items()}

    rules: dict[str, Expr] = {}
    for name, expr in grammar.rules.items():
        budget.check_deadline()
        if name in names:
            continue
        if name not in heads and look_of(expr).refs.isdisjoint(heads):
            rules[name] = expr
            continue
        if name not in heads or type(_first(expr)) is not Ref:
            new = replace_refs(bare.get(name, expr), calls)
        else:
            first, *rest = items_of(expr)
            assert type(first) is Ref
            new = seq(names.get(first.name, first), *[replace_refs(item, calls) for item in rest])
        rules[name] = factor(new) if new is not expr and look_of(expr).branches else new
    return Grammar(rules, grammar.root)


def _find_head(name: str, grammar: Grammar, heads: dict[str, Expr], depth: int) -> Expr:
    """A character or short literal that the rule begins with, EMPTY when there is none: its own, or that of a rule it calls."""
    if name not in heads:
        expr = grammar.rules[name]
        first = _first(expr)
        head: Expr = EMPTY
        if name == grammar.root or type(expr) is not Seq or len(expr.items) < 2:
            pass
        elif type(first) is Lit:
            head = lit(first.text if len(first.text) <= MAX_HEAD else first.text[:1])
        elif type(first) is Chars and len(first.chars.ranges) <= MAX_RANGES:
            head = first
        elif type(first) is Ref and depth:
            head = _find_head(first.name, grammar, heads, depth - 1)
        heads[name] = head
    return heads[name]


def _without_head(expr: Expr, head: Expr) -> Expr:
    """What follows `head` in an expression that begins with it; an expression that begins with a call is left as it is."""
    first, *rest = items_of(expr)
    if type(first) is Ref:
        return expr
    if type(first) is Lit and type(head) is Lit:
        return seq(lit(first.text[len(head.text) :]), *rest)
    return seq(*rest)


def _first(expr: Expr) -> Expr:
    return expr.items[0] if type(expr) is Seq and expr.items else expr
