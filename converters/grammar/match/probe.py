"""How many stacks a grammar makes: llama.cpp's time for one token grows with their number, for some grammars without end."""

from __future__ import annotations

from random import Random

from converters.errors import LimitExceeded
from converters.grammar.expr import Grammar
from converters.grammar.match.matcher import Matcher, State
from converters.grammar.match.tables import lower
from converters.grammar.passes.repetition import unroll_repetitions
from converters.limits import Budget

MAX_STACKS = 400
N_STEPS = 120
N_SENTENCES = 4
N_CHOICES = 6


def check_stacks(printable: Grammar, budget: Budget) -> None:
    """Raise LimitExceeded when some text of about N_STEPS characters leads to more than MAX_STACKS of llama.cpp's stacks.

    `printable` is the grammar as it will be printed. Looks along random sentences, and where the number grows fastest: a
    heuristic, so that `root ::= "+" ("a" | root+)*` and its kind are refused before a model has to walk them.
    """
    matcher = Matcher(lower(unroll_repetitions(printable)))
    rng = Random(0)
    for _ in range(N_SENTENCES if matcher.least_length(matcher.start) <= N_STEPS else 0):
        state: State | None = matcher.start
        for char in matcher.random_sentence(rng, N_STEPS):
            state = matcher.advance(state, char)
            if state is None:  # a token by name stands in the sentence
                break
            _check(state, budget)
    worst = matcher.start
    for _ in range(N_STEPS):
        after = [state for state in _successors(matcher, worst, rng) if state is not None]
        if not after:
            return
        worst = max(after, key=lambda state: len(state.cells))
        _check(worst, budget)


def _successors(matcher: Matcher, state: State, rng: Random) -> list[State | None]:
    ranges = matcher.next_chars(state).ranges
    sample = rng.sample(ranges, min(N_CHOICES, len(ranges)))
    by_char = [matcher.advance(state, chr(rng.choice(bounds))) for bounds in sample]
    return by_char + [matcher.advance_symbol(state, token.token) for token in matcher.next_tokens(state) if not token.negated]


def _check(state: State, budget: Budget) -> None:
    budget.tick()
    if len(state.cells) > MAX_STACKS:
        reason = f"the grammar is too ambiguous: after a short text there are more than {MAX_STACKS} ways to have read it"
        raise LimitExceeded(reason, limit="grammar_ambiguity", value=MAX_STACKS)
