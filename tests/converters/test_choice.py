"""A choice is exactly its options, and a long list costs no more a token than a short one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converters.choice import choice_grammar
from converters.errors import InvalidSource
from converters.grammar.expr import Grammar
from converters.grammar.gbnf import print_grammar
from converters.grammar.match import Matcher, State, build_tables
from converters.grammar.match.program import Program
from converters.grammar.passes import prepare
from converters.limits import Budget
from tests.oracle import Oracle


def grammar(options: list[str]) -> Grammar:
    return choice_grammar(options, Budget())


def matcher(options: list[str]) -> Matcher:
    return Matcher.from_tables(build_tables(prepare(grammar(options), Budget())))


@given(st.lists(st.text('ab\n"\\é😀', max_size=5), min_size=1, max_size=15))
@settings(max_examples=80, deadline=None)
def test_exactly_the_options(options: list[str]) -> None:
    rules = matcher(options)
    near = {text[:-1] for text in options} | {text + "a" for text in options} | {text[1:] for text in options} | {""}
    for text in near | set(options):
        assert rules.accepts(text) == (text in options)


def test_options_that_look_like_grammar(oracle: Oracle) -> None:
    options = ['say "hi"', "C:\\temp", "a|b", "[x]", "naïve", "a\tb", "C", "C++", "C#", "", "]", "^", "a-z", "👍🏽"]
    others = ["a", "C:/temp", "x", "C+", "c", "b", " "]
    assert oracle.accepts(print_grammar(grammar(options)), options + others) == [True] * len(options) + [False] * len(others)


def test_no_options_is_an_error() -> None:
    with pytest.raises(InvalidSource):
        grammar([])
    with pytest.raises(InvalidSource, match="option 1"):
        grammar(["a", "\ud800"])


def test_equal_options_count_once_and_prefixes_end() -> None:
    assert print_grammar(grammar(["a", "b", "a"])) == print_grammar(grammar(["b", "a"]))
    rules = matcher(["a", "ab", "abc"])
    assert [rules.accepts(text) for text in ("a", "ab", "abc", "", "abcd")] == [True, True, True, False, False]


@pytest.mark.parametrize(
    "alphabet", ["abcdefghijklmnopqrstuvwxyz", pytest.param("01", marks=pytest.mark.conformance), "abcdef é日"]
)
def test_ten_thousand_options(alphabet: str) -> None:
    rng = random.Random(4)
    options = ["".join(rng.choices(alphabet, k=30)) for _ in range(10_000)]
    text = print_grammar(grammar(options))
    assert len(text) < 2 * 1024 * 1024


def test_a_list_of_prefixes_of_one_another_is_not_deep() -> None:
    rules = matcher(["x" * n for n in range(1, 600)])
    assert rules.accepts("x" * 599)
    assert not rules.accepts("x" * 600)


def stacks_exceed_next_chars(options: list[str], walked: list[str]) -> list[str]:
    """The beginnings of `walked` after which there are more stacks than different next characters (and the end)."""
    program = Program.from_bytes(build_tables(prepare(grammar(options), Budget())))
    rules = Matcher(program, max_stacks=10_000)
    found: list[str] = []
    for text in walked:
        state: State | None = rules.start
        for n, char in enumerate(text):
            assert state is not None
            if len(state.cells) > len(rules.next_chars(state)) + rules.may_end(state):
                found.append(text[:n])
            state = rules.advance(state, char)
    return found


def test_never_more_stacks_than_next_characters() -> None:
    rng = random.Random(5)
    for alphabet, length in (("abcdefghij", 12), ("01", 14), ("ab", 5)):
        options = ["".join(rng.choices(alphabet, k=rng.randint(1, length))) for _ in range(1000)]
        assert stacks_exceed_next_chars(options, options[:200]) == []
