"""The Lark front end's one entry: source text in, grammar out."""

from __future__ import annotations

from converters.errors import LimitExceeded
from converters.grammar.expr import Grammar
from converters.lark.definitions import collect
from converters.lark.lower import lower
from converters.lark.syntax import MAX_NESTING, parse
from converters.limits import Budget
from converters.options import CompileOptions


def lark_grammar(text: str, options: CompileOptions, budget: Budget) -> tuple[Grammar, tuple[str, ...]]:
    """The grammar of a Lark source's rule `start`, and notes for the caller.

    Raises InvalidSource (not Lark, or a name without a definition), UnsupportedFeature (what no grammar can hold, by name),
    LimitExceeded; each with its place in `text` where there is one.
    """
    try:
        definitions = collect(parse(text, budget), budget)
        grammar = lower(definitions, options, budget)
    except RecursionError:  # what a caller's own depth left too little room for
        raise LimitExceeded(f"brackets nest deeper than {MAX_NESTING} levels", limit="nesting", value=MAX_NESTING) from None
    return grammar, tuple(definitions.notes)
