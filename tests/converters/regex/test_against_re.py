"""Patterns at random agree with Python's `re`, in the automaton and in the grammar. The long run is in tests/conformance."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from converters.automata import JSON, Spelling
from converters.errors import Unsatisfiable
from converters.grammar.expr import RuleBook
from converters.grammar.match import Matcher, build_tables
from converters.grammar.passes import prepare
from converters.limits import Budget
from converters.regex import lower_regex, regex_dfa
from converters.regex.edges import Mode
from tests.converters.regex.generate import patterns
from tests.converters.regex.judge import matches, near
from tests.converters.regex.reference import reference


@given(patterns, st.sampled_from(["match", "search"]))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_the_automaton_agrees(pattern: str, mode: Mode) -> None:
    try:
        judge = reference(pattern)
    except re.error:
        assume(False)
    dfa = regex_dfa(pattern, mode, Budget())
    for text in near(dfa, random.Random(pattern)):
        assert dfa.accepts(text) == matches(judge, mode, text), repr(text)


def grammar_matcher(pattern: str, mode: Mode, spelling: Spelling | None = None) -> Matcher:
    book = RuleBook()
    grammar = book.build(lower_regex(pattern, mode, book, Budget(), spelling))
    return Matcher.from_tables(build_tables(prepare(grammar, Budget())))


@given(patterns)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_grammar_agrees_with_the_automaton(pattern: str) -> None:
    dfa = regex_dfa(pattern, "search", Budget())
    try:
        matcher = grammar_matcher(pattern, "search")
    except Unsatisfiable:
        assert dfa.is_empty()
        return
    for text in near(dfa, random.Random(pattern)):
        assert matcher.accepts(text) == dfa.accepts(text), repr(text)


URL = (
    r"https?:\/\/(www\.)?[-a-zA-Z0-9@:%._\+~#=]{1,256}\.[a-zA-Z0-9()]{1,6}\b([-a-zA-Z0-9()@:%_\+.~#?&//=]*)"  # all over the web
)
COUNTED = [
    (URL, ["http://a.b", "https://www.ex-am.ple.co/a?b=c&d"], ["http://a", "http://a.", "http://" + "a" * 257 + ".com"]),
    ("[a-z]{2,250}[a-z0-9]*", ["ab", "abc9", "a" * 300], ["a", "9a", "ab-"]),
    ("(?:[a-z]{0,120}[0-9]){0,3}[a-z0-9]*-?", ["", "-", "a1-", "zz", "a" * 500], ["A", "--", "a-a"]),
    ("[a-z]{1,65536}", ["a", "z" * 3000], ["", "A", "a" * 10 + "-"]),
    (".{0,3000}", ["", "x" * 3000], ["x" * 3001, "\n"]),
    (
        "[a-z]{2,3000}\\.[0-9]{1,300}",
        ["ab.1", "a" * 3000 + "." + "1" * 300],
        ["a.1", "ab.", "ab." + "1" * 301, "a" * 3001 + ".1"],
    ),
    ("(?:[a-z]{1,250},){1,400}", ["a,", "ab,c,"], ["", "a", ",", "a" * 251 + ","]),
    ("(?:a?b){0,900}", ["", "b", "ab" * 900], ["a", "ab" * 901]),
    ("(?:(?:x|yz){0,300};|-){2,}", [";;", "-;", "xyz;-", "yz" * 300 + ";-"], [";", "x", "x" * 301 + ";-"]),
    ("(?:[a-c]{300}|[d-f]{2,400})!?", ["a" * 300, "dd!", "f" * 400 + "!"], ["a" * 299, "d", "ad", "f" * 401]),
    ("x[a-z]{1,70000}@(?:\\w{2,300}\\.)+com", ["xa@ab.com", "xyz@com.com"], ["x@ab.com", "xa@com", "xa@a.com"]),
    ("(?:[a-z]|[0-9]{1,5},){500}q?", ["a" * 500, "1,b" * 250 + "q"], ["a" * 499, "a" * 501 + "q"]),
]


@pytest.mark.parametrize("spelling", [None, pytest.param(JSON, marks=pytest.mark.conformance)], ids=["plain", "json"])
@pytest.mark.parametrize(("pattern", "accepted", "rejected"), COUNTED)
def test_large_counts_are_exact(pattern: str, accepted: list[str], rejected: list[str], spelling: Spelling | None) -> None:
    matcher = grammar_matcher(pattern, "match", spelling)
    assert [text[:20] for text in accepted if not matcher.accepts(text)] == []
    assert [text[:20] for text in rejected if matcher.accepts(text)] == []
