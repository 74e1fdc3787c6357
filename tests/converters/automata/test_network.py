"""Grammars as networks of automata: the language stays, the readings go."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from converters.automata.network import determinized
from converters.errors import LimitExceeded, Unsatisfiable, UnsupportedFeature
from converters.grammar.expr import Grammar
from converters.grammar.gbnf_parser import parse_gbnf
from converters.grammar.match import Matcher, build_tables
from converters.grammar.match.probe import GOOD, reach_of
from converters.grammar.passes import prepare, printable
from converters.limits import Budget
from tests.converters.grammar.language import TEXTS, grammars, sentences
from tests.draws import draws


def rewritten(text: str, splits_calls: bool = False) -> Grammar:
    grammar = determinized(prepare(parse_gbnf(text), Budget()), splits_calls, Budget())
    assert grammar is not None
    return prepare(grammar, Budget())


@draws(4, 15)
def test_the_language_stays(n_draws: int) -> None:
    @settings(max_examples=n_draws, deadline=None, suppress_health_check=list(HealthCheck))
    @given(grammars())
    def check(grammar: Grammar) -> None:
        try:
            ready = prepare(grammar, Budget())
        except (Unsatisfiable, UnsupportedFeature, LimitExceeded):
            return
        for splits_calls in (False, True):
            network = determinized(ready, splits_calls, Budget())
            assert network is not None
            assert sentences(network) == sentences(grammar)
            matcher = Matcher.from_tables(build_tables(prepare(network, Budget())))
            assert [matcher.accepts(text) for text in TEXTS] == [text in sentences(grammar) for text in TEXTS]

    check()


@pytest.mark.parametrize(
    "text",
    [
        "root ::= x* x*\nx ::= [ab]",
        'root ::= ("a" | "ab" | "ba" | "bb")*',
        'root ::= ("-" | "--" | "---"){0,20} "x"',
        "root ::= ([bc] [bc]*){2000,2500}",
        "root ::= ignored ([bc] ignored){2000,2500}\nignored ::= [bc]*",
        'root ::= "/" y | ""\ny ::= "e" x{0,40} ("/" z | y)\nx ::= [bc] "b"*\nz ::= more "z"\nmore ::= ("/" | "") more | "c"',
        'root ::= "a" root | "a" "b" root | x\nx ::= "(" x ")" | "a"* "b"* | "ab"',
    ],
)
def test_what_is_regular_has_one_reading(text: str) -> None:
    reach = reach_of(printable(rewritten(text)), Budget())
    assert reach.stacks <= 8
    assert reach.ways <= 100


@pytest.mark.parametrize("text", ['root ::= "(" root* ")" | "a"*', 'root ::= "(" (root ","?)* ")" | [ab]+ | [bc]+'])
def test_sentences_without_a_call_are_written_at_the_calls(text: str) -> None:
    assert reach_of(printable(rewritten(text, splits_calls=True)), Budget()) <= GOOD


def test_tokens_and_large_counts_stay() -> None:
    grammar = rewritten('root ::= y "c"\ny ::= (<think> | <[5]>) x{3,3000} | y "b"\nx ::= "a" "b"*')
    matcher = Matcher.from_tables(build_tables(grammar))
    assert {token.token for token in matcher.tokens} == {"<think>", 5}
    after = matcher.advance_symbol(matcher.start, 5)
    assert after is not None
    assert matcher.advance(after, "ab" * 3000 + "bbc") is not None
    assert matcher.advance(after, "ab" * 3001) is None
    assert matcher.advance(after, "abac") is None
