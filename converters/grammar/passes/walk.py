"""How passes walk expressions: every node once, without recursion where the input decides the depth.

No pass lives here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import is_

from converters.grammar.expr import Alt, Chars, Expr, Grammar, Lit, Ref, Rep, Seq, alt, rep, seq
from converters.limits import Budget


def nodes(expr: Expr) -> list[Expr]:
    """`expr` and every expression below it, each before what is below it; children in order."""
    found: list[Expr] = []
    todo = [expr]
    while todo:
        node = todo.pop()
        found.append(node)
        if type(node) is Seq:
            todo.extend(node.items[::-1])
        elif type(node) is Alt:
            todo.extend(node.options[::-1])
        elif type(node) is Rep:
            todo.append(node.item)
    return found


def refs(expr: Expr) -> list[str]:
    """The names of the rules that `expr` refers to, in order, with repeats."""
    return [node.name for node in nodes(expr) if type(node) is Ref]


def below(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly below `expr`."""
    if type(expr) is Seq:
        return expr.items
    if type(expr) is Alt:
        return expr.options
    return (expr.item,) if type(expr) is Rep else ()


def items_of(expr: Expr) -> tuple[Expr, ...]:
    """What stands one after another in `expr`: itself alone where it is no sequence."""
    return expr.items if type(expr) is Seq else (expr,)


def rewrite(expr: Expr, leaf: Callable[[Expr], Expr], settle: bool = False) -> Expr:
    """`expr` with every Lit, Chars, Token and Ref put through `leaf`, normalized again; unchanged parts stay as they are.

    `settle`: parts that are not in normal form count as changed (NEVER inside a sequence).
    """
    if type(expr) is Seq:
        items = rewrite_each(expr.items, leaf, settle)
        return expr if items is expr.items else seq(*items)
    if type(expr) is Alt:
        options = rewrite_each(expr.options, leaf, settle)
        return expr if options is expr.options else alt(*options)
    if type(expr) is Rep:
        item = rewrite(expr.item, leaf, settle)
        is_same = item is expr.item and not (settle and type(item) is Alt and not item.options)
        return expr if is_same else rep(item, expr.min, expr.max)
    return leaf(expr)


def rewrite_each(exprs: tuple[Expr, ...], leaf: Callable[[Expr], Expr], settle: bool = False) -> tuple[Expr, ...]:
    """`rewrite` of each; the same tuple when nothing changed."""
    changed = False
    out: list[Expr] = []
    for expr in exprs:
        new = rewrite(expr, leaf, settle)
        changed = changed or new is not expr or (settle and type(new) is Alt and not new.options)
        out.append(new)
    return tuple(out) if changed else exprs


def replace_refs(expr: Expr, by_name: Mapping[str, Expr]) -> Expr:
    """`expr` with every rule of `by_name` replaced, normalized again; unchanged parts stay as they are."""
    if type(expr) is Ref:
        return by_name.get(expr.name, expr)
    if type(expr) is Seq:
        items = [item if type(item) is Lit or type(item) is Chars else replace_refs(item, by_name) for item in expr.items]
        return expr if all(map(is_, items, expr.items)) else seq(*items)
    if type(expr) is Alt:
        options = [replace_refs(option, by_name) for option in expr.options]
        return expr if all(map(is_, options, expr.options)) else alt(*options)
    if type(expr) is Rep:
        item = replace_refs(expr.item, by_name)
        return expr if item is expr.item else rep(item, expr.min, expr.max)
    return expr


def replace_rules(grammar: Grammar, rules: Iterable[tuple[str, Expr]]) -> Grammar:
    """`grammar` with the given rules put in place of (or after) its own."""
    merged = {**grammar.rules, **dict(rules)}
    return Grammar(merged, grammar.root)


def each_rule(grammar: Grammar, change: Callable[[Expr], Expr], budget: Budget) -> Grammar:
    """`grammar` with `change` made to every rule; the same object when nothing changed. Raises LimitExceeded."""
    changed: dict[str, Expr] = {}
    for name, expr in grammar.rules.items():
        budget.check_deadline()
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
