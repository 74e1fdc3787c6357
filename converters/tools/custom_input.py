"""The grammar of a custom tool's input: any text, a regex or a grammar, spelled as the format's arguments."""

from __future__ import annotations

import json

from typing_extensions import assert_never

from converters.automata import ANY_TEXT, DUMPS_RAW, JSON, Dfa, spelled_char, to_expr
from converters.constraint import FreeText, Gbnf, Lark, Regex, ToolInput
from converters.errors import Unsatisfiable, UnsupportedFeature
from converters.grammar.expr import Alt, Chars, Expr, Grammar, Lit, Ref, Rep, RuleBook, Seq, Token, alt, lit, rep, seq
from converters.grammar.graft import Embed, graft
from converters.limits import Budget
from converters.options import CompileOptions
from converters.regex import regex_dfa
from converters.tools.custom import KEY
from converters.tools.qwen import parameter_expr
from converters.tools.xml_arguments import without_closing

Result = tuple[Expr, tuple[str, ...]]


def json_input(given: ToolInput, book: RuleBook, options: CompileOptions, budget: Budget, embed: Embed) -> Result:
    """`{"input": "…"}`."""
    notes: tuple[str, ...] = ()
    match given:
        case FreeText() | Regex():
            body: Expr = to_expr(_language(given, budget), book, KEY, JSON)
        case Lark() | Gbnf():
            grammar, notes = _compiled(given, options, embed)
            body = graft(_spelled(grammar), book, KEY)
        case _:
            assert_never(given)
    return seq(lit(f'{{"{KEY}": "'), body, lit('"}')), notes


def xml_input(given: ToolInput, book: RuleBook, options: CompileOptions, budget: Budget, embed: Embed) -> Result:
    """`<parameter=input>`, and the text as it is; a grammar's text as a JSON string, in which the closing tag may stand."""
    notes: tuple[str, ...] = ()
    match given:
        case FreeText() | Regex():
            body: Expr = to_expr(without_closing(_language(given, budget), budget), book, KEY)
        case Lark() | Gbnf():
            grammar, notes = _compiled(given, options, embed)
            body = seq(lit('"'), graft(_spelled(grammar), book, KEY), lit('"'))
        case _:
            assert_never(given)
    return parameter_expr(lit(KEY), body), notes


def _language(given: FreeText | Regex, budget: Budget) -> Dfa:
    if isinstance(given, FreeText):
        return ANY_TEXT
    dfa = regex_dfa(given.pattern, "match", budget)
    if dfa.is_empty():
        raise Unsatisfiable("the regex matches no text")
    return dfa


def _compiled(given: Lark | Gbnf, options: CompileOptions, embed: Embed) -> tuple[Grammar, tuple[str, ...]]:
    book = RuleBook()
    expr, notes = embed(given, options, book, "start")
    return book.build(expr), notes


def _spelled(grammar: Grammar) -> Grammar:
    """The same texts inside a JSON string, each character in its one spelling, so that choices stay as clear as they were."""
    book = RuleBook()
    names = {name: book.reserve(name) for name in grammar.rules}
    for name, expr in grammar.rules.items():
        book.define(names[name], _respelled(expr, names, book))
    return book.build(names[grammar.root])


def _respelled(expr: Expr, names: dict[str, Ref], book: RuleBook) -> Expr:
    match expr:
        case Lit(text):
            return lit(json.dumps(text, ensure_ascii=False)[1:-1])
        case Chars(charset):
            return spelled_char(charset, book, "char", DUMPS_RAW)
        case Token(token):
            raise UnsupportedFeature(f"the token {token} inside a call's arguments")
        case Ref(name):
            return names[name]
        case Seq(items):
            return seq(*(_respelled(item, names, book) for item in items))
        case Alt(options):
            return alt(*(_respelled(option, names, book) for option in options))
        case Rep(item, low, high):
            return rep(_respelled(item, names, book), low, high)
        case _:
            assert_never(expr)
