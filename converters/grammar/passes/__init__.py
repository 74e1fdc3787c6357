"""Rewriting grammars: small passes that keep the language, and the two orders in which they run."""

from __future__ import annotations

from converters.grammar.expr import Grammar
from converters.grammar.passes.names import legal_names
from converters.grammar.passes.repetition import split_repetitions
from converters.grammar.passes.spell import drop_unspellable
from converters.grammar.passes.walk import check_nesting
from converters.limits import Budget


def prepare(grammar: Grammar, budget: Budget) -> Grammar:
    """`grammar` as it can be walked. Raises Unsatisfiable, UnsupportedFeature or LimitExceeded."""
    check_nesting(grammar.rules)
    budget.check_deadline()
    return drop_unspellable(grammar)


def printable(grammar: Grammar) -> Grammar:
    """`grammar` with the characters, counts and names that llama.cpp's text can have."""
    return legal_names(split_repetitions(drop_unspellable(grammar)))
