"""The position automaton of a pattern, printed where it is cheaper to walk: the same language, few stacks."""

from __future__ import annotations

from random import Random

import pytest

from converters.automata import Dfa, random_word
from converters.grammar.expr import RuleBook
from converters.grammar.match import Matcher
from converters.grammar.match.tables import lower
from converters.grammar.passes import prepare, printable
from converters.limits import Budget
from converters.regex import lower_regex, regex_dfa

GUESSED = [
    r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}",
    r"[a-z0-9.]+\.[a-z]{2,3}",
    r"[ab]*a[ab][ab]x",
    r"(?:[a-z]+-)*[a-z]{3}[0-9]*!",
]
OTHERS = [r"(?:a|aa)+", r"[ab]*a[ab]*", r"(?:ab|a|b)*c?", r"x?y?z?", r"(?:[a-c]{2})*[b-d]", r"", r"a|b|cd", r"[ab]*a[ab]{9}"]


def some_word(dfa: Dfa, rng: Random) -> str:
    word = random_word(dfa, rng)
    assert word is not None
    return word


def stacks_after(matcher: Matcher, text: str) -> int:
    state = matcher.advance(matcher.start, text)
    return 0 if state is None else len(state.cells)


@pytest.mark.parametrize("pattern", [*GUESSED, *OTHERS])
def test_the_language_is_the_pattern(pattern: str) -> None:
    book = RuleBook()
    grammar = printable(prepare(book.build(lower_regex(pattern, "match", book, Budget())), Budget()))
    matcher, dfa, rng = Matcher(lower(grammar), max_stacks=40), regex_dfa(pattern, "match", Budget()), Random(0)
    for _ in range(60):
        word = some_word(dfa, rng)
        at = rng.randrange(len(word) + 1)
        for text in (word, word[:at], word[:at] + rng.choice("ab.-@x1!c") + word[at:], word[:at] + word[at + 1 :], word * 2):
            assert matcher.accepts(text) == dfa.accepts(text), text


@pytest.mark.parametrize("pattern", GUESSED)
def test_guessing_takes_few_rules(pattern: str) -> None:
    """Fewer ways on than the deterministic automaton has."""
    book = RuleBook()
    grammar = printable(prepare(book.build(lower_regex(pattern, "match", book, Budget())), Budget()))
    matcher, dfa, rng = Matcher(lower(grammar), max_stacks=40), regex_dfa(pattern, "match", Budget()), Random(0)
    assert max(stacks_after(matcher, some_word(dfa, rng)) for _ in range(40)) <= 6
    assert len(grammar.rules) <= dfa.n_states
