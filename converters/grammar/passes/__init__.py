"""Rewriting grammars: small passes that keep the language, and the two orders in which they run."""

from __future__ import annotations

from converters.grammar.expr import Grammar
from converters.grammar.passes.alike import join_alike_rules
from converters.grammar.passes.corners import LeftCorners
from converters.grammar.passes.ending import drop_endless, drop_unreachable
from converters.grammar.passes.fixpoint import nullable_rules
from converters.grammar.passes.heads import hoist_heads
from converters.grammar.passes.inline import inline_small_rules
from converters.grammar.passes.left_recursion import remove_left_recursion
from converters.grammar.passes.look import look_of
from converters.grammar.passes.names import legal_names
from converters.grammar.passes.nesting import cut_deep_expressions
from converters.grammar.passes.nonempty import strip_nullable_items
from converters.grammar.passes.prefix import factor_prefixes
from converters.grammar.passes.recursion import share_recursive_calls
from converters.grammar.passes.repetition import split_repetitions
from converters.grammar.passes.runs import write_runs
from converters.grammar.passes.spell import drop_unspellable
from converters.limits import Budget

TIDY_AGAIN = (drop_endless, drop_unreachable, strip_nullable_items, factor_prefixes, inline_small_rules)
"""After left recursion was rewritten."""


def prepare(grammar: Grammar, budget: Budget) -> Grammar:
    """`grammar` in the form that can be walked: same language, every sentence's beginning leads to an end, no left recursion,
    nothing empty is repeated. Raises Unsatisfiable, UnsupportedFeature or LimitExceeded."""
    if not all(look_of(expr).is_plain for expr in grammar.rules.values()):
        grammar = drop_unspellable(cut_deep_expressions(grammar, budget), budget)
    budget.check_deadline()
    inlined = inline_small_rules(drop_unreachable(drop_endless(grammar, budget), budget), budget)
    nullable = nullable_rules(inlined, budget)
    stripped = strip_nullable_items(inlined, budget, nullable)
    grammar = factor_prefixes(stripped, budget)
    budget.check_deadline()
    corners = LeftCorners.of(grammar, budget, nullable if stripped is inlined else None)
    if corners.recursive_parts:
        for run in (remove_left_recursion, *TIDY_AGAIN):
            grammar = run(grammar, budget)
            budget.check_deadline()
        corners = LeftCorners.of(grammar, budget)
    corners.check()
    return share_recursive_calls(join_alike_rules(grammar, budget), budget)


def printable(grammar: Grammar, budget: Budget | None = None) -> Grammar:
    """A prepared grammar with the counts and names that llama.cpp's text can have, and few levels of rules to walk."""
    budget = budget or Budget()
    return legal_names(write_runs(split_repetitions(hoist_heads(grammar, budget), budget), budget))
