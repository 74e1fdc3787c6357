"""Deep expressions cut into rules: the other passes, and llama.cpp's parser, call themselves for every level."""

from __future__ import annotations

from converters.grammar.expr import Alt, Expr, Grammar, Ref, Rep, Seq, alt, rep, seq
from converters.grammar.passes.look import MAX_HEIGHT
from converters.grammar.passes.walk import FreshNames, below
from converters.limits import Budget

CUT_HEIGHT = 20


def cut_deep_expressions(grammar: Grammar, budget: Budget) -> Grammar:
    """Give parts of very deep expressions rules of their own. Works in the depth of nothing but the heap.

    Before → after: `root ::= ("a" ("a" … )?)?` → `root ::= ("a" … deep)?; deep ::= ("a" …)?`
    """
    budget.check_deadline()
    if all(_is_shallow(expr) for expr in grammar.rules.values()):
        return grammar
    names = FreshNames(grammar.rules)
    made: dict[str, Expr] = {}
    rules = {name: expr if _is_shallow(expr) else _cut(expr, names, made) for name, expr in grammar.rules.items()}
    return Grammar({**rules, **made}, grammar.root)


def _is_shallow(expr: Expr) -> bool:
    level: list[Expr] = [expr]
    for _ in range(MAX_HEIGHT):
        level = [child for node in level if isinstance(node, (Seq, Alt, Rep)) for child in below(node)]
        if not level:
            return True
    return False


def _cut(expr: Expr, names: FreshNames, made: dict[str, Expr]) -> Expr:
    """Rebuild from the leaves up; what has grown CUT_HEIGHT levels becomes a rule."""
    order: list[Expr] = []
    todo = [expr]
    while todo:
        node = todo.pop()
        order.append(node)
        todo.extend(below(node))
    done: dict[int, tuple[Expr, int]] = {}
    for node in reversed(order):
        parts = [done[id(child)] for child in below(node)]
        height = 1 + max([height for _, height in parts], default=0)
        new = _rebuild(node, [part for part, _ in parts])
        if height > CUT_HEIGHT:
            ref = Ref(names.make("deep"))
            made[ref.name] = new
            new, height = ref, 0
        done[id(node)] = new, height
    return done[id(expr)][0]


def _rebuild(node: Expr, parts: list[Expr]) -> Expr:
    if isinstance(node, Seq):
        return seq(*parts)
    if isinstance(node, Alt):
        return alt(*parts)
    return rep(parts[0], node.min, node.max) if isinstance(node, Rep) else node
