"""Whitespace of the JSON text: what may stand at each gap (spec section 5, last paragraph)."""

from __future__ import annotations

from dataclasses import dataclass

from converters.automata import Dfa, to_expr
from converters.errors import ConversionError, InvalidSource
from converters.grammar.charset import CharSet
from converters.grammar.expr import EMPTY, Expr, RuleBook, alt, chars, lit, opt, rep, seq
from converters.limits import Budget
from converters.options import CompileOptions

BLANKS = CharSet.of(" \t\n\r")
_MAX_BLANKS = 20


@dataclass(frozen=True, slots=True)
class Layout:
    """The texts between values. `inside` stands after an opening and before a closing bracket, `blank` in an empty pair."""

    comma: Expr
    colon: Expr
    inside: Expr
    blank: Expr


def layout_of(options: CompileOptions, book: RuleBook, budget: Budget) -> Layout:
    """The layout that the options ask for. Raises ConversionError, `option` set, for a pattern that isn't whitespace."""
    if options.whitespace_pattern is not None:
        try:
            gap = _gap_of_pattern(options.whitespace_pattern, book, budget)
        except ConversionError as error:
            error.option = "whitespace_pattern"
            raise
        return Layout(seq(gap, lit(","), gap), seq(gap, lit(":"), gap), gap, gap)
    match options.whitespace:
        case "default":
            return Layout(seq(lit(","), opt(lit(" "))), seq(lit(":"), opt(lit(" "))), EMPTY, EMPTY)
        case "compact":
            return Layout(lit(","), lit(":"), EMPTY, EMPTY)
        case "spaced":
            return Layout(lit(", "), lit(": "), EMPTY, EMPTY)
        case "flexible":
            line = seq(lit("\n"), rep(chars(CharSet.of(" \t")), 0, _MAX_BLANKS))
            gap = book.add("gap", opt(alt(lit(" "), line)))
            return Layout(seq(gap, lit(","), gap), seq(gap, lit(":"), gap), gap, gap)


def _gap_of_pattern(pattern: str, book: RuleBook, budget: Budget) -> Expr:
    from converters.regex import regex_dfa

    dfa: Dfa = regex_dfa(pattern, "match", budget)
    if dfa.is_empty() or any((charset - BLANKS) for state in range(dfa.n_states) for charset, _ in dfa.edges(state)):
        raise InvalidSource("the pattern of whitespace must match only spaces, tabs and line ends")
    return book.add("gap", to_expr(dfa, book, "gap", None, budget))
