"""What can never end is taken out, so that a model can't walk into it."""

from __future__ import annotations

from converters.errors import Unsatisfiable
from converters.grammar.expr import NEVER, Expr, Grammar, Ref
from converters.grammar.passes.fixpoint import ending_rules, reached_from
from converters.grammar.passes.walk import each_rule, rewrite
from converters.limits import Budget


def drop_endless(grammar: Grammar, budget: Budget) -> Grammar:
    """Take out alternatives that can't end, and the rules that have no other. Raises Unsatisfiable when nothing is left.

    Before → after: `root ::= "a" | "b" dead; dead ::= "c" dead` → `root ::= "a"`
    """
    ending = ending_rules(grammar, budget)
    if grammar.root not in ending:
        raise Unsatisfiable("the grammar matches nothing at all: no sentence of it can ever end")
    if len(ending) == len(grammar.rules):
        return grammar

    def prune(leaf: Expr) -> Expr:
        return NEVER if isinstance(leaf, Ref) and leaf.name not in ending else leaf

    kept = Grammar({name: expr for name, expr in grammar.rules.items() if name in ending}, grammar.root)
    return each_rule(kept, lambda expr: rewrite(expr, prune), budget)


def drop_unreachable(grammar: Grammar, budget: Budget) -> Grammar:
    """Take out rules that the entry rule never comes to.

    Before → after: `root ::= "a"; other ::= "b"` → `root ::= "a"`
    """
    reached = reached_from([grammar.root], grammar.rules, budget)
    if len(reached) == len(grammar.rules):
        return grammar
    return Grammar({name: expr for name, expr in grammar.rules.items() if name in reached}, grammar.root)
