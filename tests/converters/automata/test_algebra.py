"""Automata obey the laws of set algebra, and agree with Python's `re` about their words."""

from __future__ import annotations

import random
import re
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from converters.automata import (
    ANY_CHAR,
    ANY_TEXT,
    EMPTY_TEXT,
    NOTHING,
    Dfa,
    bounded,
    complement,
    concatenated,
    count,
    difference,
    equivalent,
    includes,
    intersection,
    is_disjoint,
    minimise,
    of_charset,
    of_length,
    of_string,
    of_strings,
    random_word,
    repeated,
    reversed_language,
    shortest,
    trim,
    union,
    words,
)
from converters.errors import LimitExceeded
from converters.grammar.charset import ANY, CharSet
from converters.limits import Budget, Limits
from converters.regex import regex_dfa

ALPHABET = "abé"
TEXTS = ["".join(text) for n in range(5) for text in product(ALPHABET, repeat=n)]

_atoms = st.sampled_from(["a", "b", "é", "[ab]", "[^a]", "(?:)", "ab", "ba"])
patterns = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}"])).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=6,
)
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def dfa(pattern: str) -> Dfa:
    return regex_dfa(pattern, "match", Budget())


def language(automaton: Dfa) -> set[str]:
    """Its words among TEXTS."""
    return {text for text in TEXTS if automaton.accepts(text)}


@given(patterns)
@quick
def test_the_automaton_of_a_pattern_has_the_words_that_re_matches(pattern: str) -> None:
    assert language(dfa(pattern)) == {text for text in TEXTS if re.fullmatch(pattern, text)}


@given(patterns, patterns)
@quick
def test_de_morgan(p: str, q: str) -> None:
    a, b, budget = dfa(p), dfa(q), Budget()
    left = complement(union(a, b, budget), budget)
    right = intersection(complement(a, budget), complement(b, budget), budget)
    assert equivalent(left, right, budget)
    assert language(left) == set(TEXTS) - language(a) - language(b)


@given(patterns)
@quick
def test_the_complement_of_the_complement(p: str) -> None:
    a, budget = dfa(p), Budget()
    twice = complement(complement(a, budget), budget)
    assert equivalent(a, twice, budget)
    assert twice.n_states == a.n_states  # both are minimal
    assert union(a, complement(a, budget), budget).is_universal()


@given(patterns, patterns)
@quick
def test_relations_agree_with_the_words(p: str, q: str) -> None:
    a, b, budget = dfa(p), dfa(q), Budget()
    both = intersection(a, b, budget)
    assert language(both) == language(a) & language(b)
    assert language(difference(a, b, budget)) == language(a) - language(b)
    assert is_disjoint(a, b, budget) == both.is_empty()
    assert includes(a, both, budget)
    assert includes(b, a, budget) == difference(a, b, budget).is_empty()
    assert equivalent(a, b, budget) == (includes(a, b, budget) and includes(b, a, budget))


@given(patterns)
@quick
def test_minimising_keeps_the_language_and_nothing_smaller_has_it(p: str) -> None:
    a = dfa(p)
    doubled = Dfa(a.alphabet, a.rows + tuple({c: t + a.n_states for c, t in row.items()} for row in a.rows), a.accepting)
    split = Dfa(
        a.alphabet,
        tuple({c: t + a.n_states for c, t in row.items()} for row in doubled.rows[: a.n_states])
        + tuple({c: t - a.n_states for c, t in row.items()} for row in doubled.rows[a.n_states :]),
        a.accepting | {state + a.n_states for state in a.accepting},
    )  # two copies that lead to each other
    again = minimise(trim(split))
    assert language(again) == language(a)
    assert again.n_states == a.n_states


@given(patterns)
@quick
def test_reversing_twice(p: str) -> None:
    a, budget = dfa(p), Budget()
    backwards = reversed_language(a, budget)
    assert language(backwards) == {text[::-1] for text in language(a)}
    assert equivalent(reversed_language(backwards, budget), a, budget)


@given(patterns, patterns, st.integers(0, 2), st.integers(0, 2))
@quick
def test_concatenation_and_repetition(p: str, q: str, low: int, more: int) -> None:
    budget = Budget()
    assert equivalent(concatenated([dfa(p), dfa(q)], budget), dfa(f"(?:{p})(?:{q})"), budget)
    assert equivalent(repeated(dfa(p), low, low + more, budget), dfa(f"(?:{p}){{{low},{low + more}}}"), budget)
    assert equivalent(repeated(dfa(p), low, None, budget), dfa(f"(?:{p}){{{low},}}"), budget)


@given(patterns, st.integers(0, 3), st.integers(0, 3))
@quick
def test_bounds_and_quotients(p: str, low: int, more: int) -> None:
    a = dfa(p)
    within = bounded(a, low, low + more, Budget())
    assert language(within) == {text for text in language(a) if low <= len(text) <= low + more}
    assert {"a" + text for text in language(a.after("a")) if len(text) < 4} == {t for t in language(a) if t[:1] == "a"}


@given(patterns, st.integers())
@quick
def test_words_that_are_drawn_are_words(p: str, seed: int) -> None:
    a = dfa(p)
    word = random_word(a, random.Random(seed))
    least = shortest(a)
    assert word is not None
    assert least is not None
    assert re.fullmatch(p, word)
    assert re.fullmatch(p, least)
    assert not any(a.accepts(text) for text in TEXTS if len(text) < len(least))


@given(st.lists(st.text(ALPHABET, max_size=6), max_size=12))
@quick
def test_a_list_of_strings(options: list[str]) -> None:
    a = of_strings(options, Budget())
    assert a.is_finite()
    assert list(words(a)) == sorted(set(options), key=lambda text: (len(text), text))
    assert count(a) == len(set(options))
    assert minimise(trim(a)).n_states == a.n_states


def test_constants() -> None:
    assert NOTHING.is_empty()
    assert shortest(NOTHING) is None
    assert random_word(NOTHING, random.Random(1)) is None
    assert list(words(EMPTY_TEXT)) == [""]
    assert ANY_TEXT.is_universal()
    assert not ANY_TEXT.is_finite()
    assert count(ANY_TEXT) is None
    assert count(ANY_CHAR) == len(ANY)
    assert of_charset(CharSet()).is_empty()
    assert of_string("").accepts("")
    assert list(words(of_string("é\n"))) == ["é\n"]
    assert equivalent(of_length(2, 3), dfa("(?s).{2,3}"), Budget())
    assert equivalent(of_length(2, None), dfa("(?s).{2,}"), Budget())


def test_infinite_languages_are_told_from_finite_ones() -> None:
    assert dfa("(?:ab|c){1,9}").is_finite()
    assert not dfa("ab*c").is_finite()
    assert count(dfa("[ab]{3}|c")) == 9


def test_ten_thousand_strings_are_linear() -> None:
    rng = random.Random(1)
    options = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=10)) for _ in range(2_000)]
    a = of_strings(options, Budget(Limits(automaton_bytes=1 << 30)))
    assert count(a) == len(set(options))


def test_what_grows_is_stopped_by_name() -> None:
    small = Budget(Limits(automaton_bytes=4096))
    with pytest.raises(LimitExceeded, match="the pattern at /a") as caught:
        intersection(of_length(0, 300), of_length(0, 300), small, "the pattern at /a")
    assert caught.value.limit == "automaton_bytes"
    with pytest.raises(LimitExceeded):
        of_strings([str(n) for n in range(1000)] + ["x" * 600], small)
