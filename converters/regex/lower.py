"""The ways out of a pattern: its automaton, its expression, its grammar."""

from __future__ import annotations

from converters.automata import Dfa, Spelling, cheapest_expr, to_expr
from converters.errors import Unsatisfiable
from converters.grammar.expr import NEVER, Expr, Grammar, RuleBook
from converters.limits import Budget
from converters.regex.automaton import tree_dfa, tree_nfa
from converters.regex.boundary import without_boundaries
from converters.regex.edges import Mode, has_assertions, whole_text
from converters.regex.parser import parse
from converters.regex.structure import Ambiguous, Structure, has_large_count
from converters.regex.tree import Node

_SHOWN = 60


def regex_dfa(pattern: str, mode: Mode, budget: Budget) -> Dfa:
    """The minimal automaton of the texts that `pattern` matches whole (`match`), or is found in (`search`).

    An empty language is an automaton like any other. Raises InvalidSource, UnsupportedFeature, LimitExceeded.
    """
    return tree_dfa(without_boundaries(whole_text(parse(pattern), mode)), budget, _name(pattern))


def _name(pattern: str) -> str:
    """The pattern in an error message."""
    shown = pattern if len(pattern) <= _SHOWN else pattern[: _SHOWN - 1] + "…"
    return f"the regex {shown}"


def lower_regex(
    pattern: str, mode: Mode, book: RuleBook, budget: Budget, spelling: Spelling | None = None, hint: str = "regex"
) -> Expr:
    """The texts of `regex_dfa` as an expression, spelled as JSON text if asked; rules are named like `hint`.

    Raises Unsatisfiable for no texts.
    """
    tree = without_boundaries(whole_text(parse(pattern), mode))
    expr = _counted(tree, Structure(book, budget, _name(pattern), hint, spelling))
    if expr is None:
        expr = _written(tree, book, budget, spelling, hint, _name(pattern))
    if expr == NEVER:
        raise Unsatisfiable(f"{_name(pattern)} matches no text")
    return expr


def _written(tree: Node, book: RuleBook, budget: Budget, spelling: Spelling | None, hint: str, what: str) -> Expr:
    """The expression of the tree's automaton."""
    dfa = tree_dfa(tree, budget, what)
    nfa = tree_nfa(tree, budget, what) if spelling is None and not dfa.is_empty() else None
    if nfa is None:
        return to_expr(dfa, book, hint, spelling, budget)
    return cheapest_expr(dfa, *nfa, book, hint, budget)


def _counted(tree: Node, structure: Structure) -> Expr | None:
    """The expression with its large counts kept; None where there are none, or an automaton must tell its parts apart."""
    if not has_large_count(tree) or has_assertions(tree):
        return None
    try:
        return structure.lower(tree)
    except Ambiguous:
        return None


def regex_grammar(pattern: str, budget: Budget) -> Grammar:
    """The grammar of a full match of `pattern`."""
    book = RuleBook()
    return book.build(lower_regex(pattern, "match", book, budget))
