"""One look at every expression of a grammar, so that passes which have nothing to do in a rule needn't look themselves."""

from __future__ import annotations

from dataclasses import dataclass

from converters.grammar.expr import Alt, Chars, Expr, Grammar, Lit, Ref, Rep, Seq
from converters.grammar.passes.nesting import MAX_HEIGHT
from converters.grammar.passes.spell import is_spellable
from converters.limits import Budget


@dataclass(frozen=True, slots=True)
class Survey:
    """`refs`: the rules that each rule refers to. `is_plain`: nothing is too deep, and everything can be spelled. `repeating`:
    the rules in which more than a character or a literal is repeated."""

    refs: dict[str, list[str]]
    repeating: set[str]
    is_plain: bool

    @staticmethod
    def of(grammar: Grammar, budget: Budget) -> Survey:
        """A look at all of `grammar`."""
        refs: dict[str, list[str]] = {}
        repeating: set[str] = set()
        is_plain = True
        for name, expr in grammar.rules.items():
            budget.tick()
            refs[name] = []
            plain, repeats = _look(expr, refs[name])
            is_plain = is_plain and plain
            if repeats:
                repeating.add(name)
        return Survey(refs, repeating, is_plain)


def _look(expr: Expr, refs: list[str]) -> tuple[bool, bool]:
    """Level by level; the names of rules go into `refs`."""
    is_plain, repeats = True, False
    level: list[Expr] = [expr]
    for _ in range(MAX_HEIGHT):
        below: list[Expr] = []
        for node in level:
            if isinstance(node, Ref):
                refs.append(node.name)
            elif isinstance(node, Seq):
                below += node.items
            elif isinstance(node, (Lit, Chars)):
                is_plain = is_plain and is_spellable(node)
            elif isinstance(node, Alt):
                below += node.options
                is_plain = is_plain and bool(node.options)
            elif isinstance(node, Rep):
                below.append(node.item)
                repeats = repeats or not isinstance(node.item, (Lit, Chars))
        if not below:
            return is_plain, repeats
        level = below
    return False, True
