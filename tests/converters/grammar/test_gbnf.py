"""The printer: a dozen texts as they are printed, and that llama.cpp reads every kind of symbol."""

from __future__ import annotations

import pytest

from converters.errors import UnsupportedFeature
from converters.grammar.charset import ANY, CharSet
from converters.grammar.expr import EMPTY, Expr, Grammar, Ref, Rep, Token, alt, chars, lit, opt, rep, seq
from converters.grammar.gbnf import print_grammar
from tests.oracle import Oracle

PRINTED: list[tuple[Expr, str]] = [
    (lit('a "b" \\ \n é \x07'), r'"a \"b\" \\ \n é \x07"'),
    (chars(CharSet.of("]^-[\\az")), r"[\-\[-\x5Eaz]"),
    (chars(CharSet.of("a")), '"a"'),
    (chars(CharSet.span(0x20, 0x10FFFF) | CharSet.of("\n\u2028")), r"[\n -\uD7FF\uE000-\U0010FFFF]"),
    (EMPTY, '""'),
    (seq(lit("a"), alt(lit("b"), seq(lit("c"), Ref("x")))), '"a" ("b" | "c" x)'),
    (alt(seq(lit("a"), Ref("x")), EMPTY), '"" | "a" x'),
    (rep(alt(lit("a"), Ref("x")), 1), '("a" | x)+'),
    (opt(alt(lit("a"), Ref("x"))), '"" | "a" | x'),
    (rep(lit("ab"), 1), '"ab"+'),
    (opt(Rep(lit("a"), 2, None)), '"" | "a"{2,}'),
    (Rep(Ref("x"), 2, 4), "x{2,4}"),
    (alt(seq(chars(CharSet.of("abc")), Ref("x")), Ref("x"), lit("12"), EMPTY), '"" | x | "12" | [a-c] x'),
    (seq(Token("<think>"), Token(7, negated=True)), "<think> !<[7]>"),
]


@pytest.mark.parametrize(("expr", "text"), PRINTED, ids=range(len(PRINTED)))
def test_prints(expr: Expr, text: str, oracle: Oracle) -> None:
    printed = print_grammar(Grammar({"root": expr, "x": lit("x")}))
    assert printed.splitlines()[0] == f"root ::= {text}"
    assert oracle.parse(printed).ok


def test_every_character_is_read_as_itself(oracle: Oracle) -> None:
    points = [*range(1, 0x180), 0x2028, 0xD7FF, 0xE000, 0xFEFF, 0xFFFF, 0x10000, 0x10FFFF]
    texts = [chr(point) for point in points]
    literals = print_grammar(Grammar({"root": lit("".join(texts))}))
    assert oracle.accepts(literals, ["".join(texts)]) == [True]
    for inside in (CharSet.of("".join(texts[::2])), CharSet.of("".join(texts[1::2])), CharSet.of("^]-")):
        printed = print_grammar(Grammar({"root": chars(inside)}))
        assert oracle.accepts(printed, texts) == [text in inside for text in texts]


def test_broken_utf8_never_gets_through_a_negated_class(oracle: Oracle) -> None:
    printed = print_grammar(Grammar({"root": rep(chars(~CharSet.of("a")))}))
    byte = {piece: token for token, piece in reversed(list(enumerate(oracle.token_pieces()))) if len(piece) == 1}
    texts = [b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf7\xbf\xbf\xbf", b"\xc0\x80", b"\xed\x9f\xbf", b"\xf4\x8f\xbf\xbf"]
    sequences = [[byte[bytes([value])] for value in text] for text in texts]
    assert oracle.walk_tokens(printed, sequences) == [False, False, False, False, True, True]


def test_any_rule_name_is_made_readable(oracle: Oracle) -> None:
    rules = {"start": seq(Ref("a_b"), Ref("a-b"), Ref("ä"), Ref("root"), Ref("_")), "a_b": lit("1"), "a-b": lit("2")}
    grammar = Grammar({**rules, "ä": lit("3"), "root": lit("4"), "_": lit("5")}, root="start")
    assert oracle.accepts(print_grammar(grammar), ["12345", "4"]) == [True, False]


def test_a_token_without_brackets_has_no_name() -> None:
    with pytest.raises(UnsupportedFeature, match="TOOL_CALLS"):
        print_grammar(Grammar({"root": Token("[TOOL_CALLS]")}))


def test_everything_prints_as_itself_and_more(oracle: Oracle) -> None:
    printed = print_grammar(Grammar({"root": chars(ANY)}))
    assert oracle.accepts(printed, ["a", "\n", "\U0010ffff", "", "ab"]) == [True, True, True, False, False]
