"""How passes walk expressions: every node once, without recursion where the input decides the depth.

No pass lives here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from converters.errors import LimitExceeded
from converters.grammar.expr import Alt, Expr, Grammar, Ref, Rep, Seq, alt, rep, seq

MAX_NESTING = 200
"""Levels of groups that an expression may have (spec section 3: checked before llama.cpp's recursive parser sees a text)."""


def nodes(expr: Expr) -> Iterator[Expr]:
    """`expr` and every expression below it, each before what is below it; children in order."""
    todo = [expr]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, Seq):
            todo.extend(reversed(node.items))
        elif isinstance(node, Alt):
            todo.extend(reversed(node.options))
        elif isinstance(node, Rep):
            todo.append(node.item)


def refs(expr: Expr) -> list[str]:
    """The names of the rules that `expr` refers to, in order, with repeats."""
    return [node.name for node in nodes(expr) if isinstance(node, Ref)]


def check_nesting(rules: Mapping[str, Expr]) -> None:
    """Raise LimitExceeded when a rule nests deeper than MAX_NESTING: the recursive passes rely on it."""
    for name, expr in rules.items():
        level: list[Expr] = [expr]
        depth = 0
        while level:
            level = [child for node in level for child in below(node)]
            depth += 1
            if depth > MAX_NESTING + 2:
                reason = f"rule {name!r} nests deeper than {MAX_NESTING} levels"
                raise LimitExceeded(reason, limit="grammar_nesting", value=MAX_NESTING)


def below(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly below `expr`."""
    if isinstance(expr, Seq):
        return expr.items
    if isinstance(expr, Alt):
        return expr.options
    return (expr.item,) if isinstance(expr, Rep) else ()


def rewrite(expr: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
    """`expr` with every Lit, Chars, Token and Ref put through `leaf`, normalized again; unchanged parts stay as they are."""
    if isinstance(expr, Seq):
        items = rewrite_each(expr.items, leaf)
        return expr if items is expr.items else seq(*items)
    if isinstance(expr, Alt):
        options = rewrite_each(expr.options, leaf)
        return expr if options is expr.options else alt(*options)
    if isinstance(expr, Rep):
        item = rewrite(expr.item, leaf)
        return expr if item is expr.item else rep(item, expr.min, expr.max)
    return leaf(expr)


def rewrite_each(exprs: tuple[Expr, ...], leaf: Callable[[Expr], Expr]) -> tuple[Expr, ...]:
    """`rewrite` of each; the same tuple when nothing changed."""
    changed = False
    out: list[Expr] = []
    for expr in exprs:
        new = rewrite(expr, leaf)
        changed = changed or new is not expr
        out.append(new)
    return tuple(out) if changed else exprs


def replace_rules(grammar: Grammar, rules: Iterable[tuple[str, Expr]]) -> Grammar:
    """`grammar` with the given rules put in place of (or after) its own."""
    merged = {**grammar.rules, **dict(rules)}
    return Grammar(merged, grammar.root)


def each_rule(grammar: Grammar, change: Callable[[Expr], Expr]) -> Grammar:
    """`grammar` with `change` made to every rule; the same object when nothing changed."""
    changed: dict[str, Expr] = {}
    for name, expr in grammar.rules.items():
        new = change(expr)
        if new is not expr:
            changed[name] = new
    return replace_rules(grammar, changed.items()) if changed else grammar


class FreshNames:
    """Rule names that a grammar does not use yet."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def make(self, base: str) -> str:
        """`base`, or `base` with the smallest number that makes it new."""
        name, n = base, self._next.get(base, 1)
        while name in self._taken:
            n += 1
            name = f"{base}-{n}"
        self._next[base] = n
        self._taken.add(name)
        return name
