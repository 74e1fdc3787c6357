"""How many stacks a grammar makes: llama.cpp's time for one token grows with their number, for some grammars without end."""

from __future__ import annotations

from random import Random

from converters.errors import LimitExceeded
from converters.grammar.expr import Grammar
from converters.grammar.match.matcher import Matcher, State, TooManyStacks
from converters.grammar.match.tables import lower
from converters.limits import Budget

MAX_STACKS = 400
N_STEPS = 120
N_DRAWN = 40
N_SENTENCES = 8
N_CHOICES = 12


def check_stacks(printable: Grammar, budget: Budget) -> None:
    """Raise LimitExceeded when some text of about N_STEPS characters leads to more than MAX_STACKS of llama.cpp's stacks.

    `printable` is the grammar as it will be printed. Looks along random sentences, and where the number grows fastest: a
    heuristic, so that `root ::= "+" ("a" | root+)*` and its kind are refused before a model has to walk them.
    """
    matcher = Matcher(lower(printable, budget), max_stacks=MAX_STACKS)
    try:
        _walk_sentences(matcher, budget)
        _walk_greedily(matcher, budget)
    except TooManyStacks:
        reason = f"the grammar is too ambiguous: after a short text there are more than {MAX_STACKS} ways to have read it"
        raise LimitExceeded(reason, limit="grammar_ambiguity", value=MAX_STACKS) from None


def _walk_sentences(matcher: Matcher, budget: Budget) -> None:
    """Along the longest of many: recursion shows itself there."""
    rng = Random(0)
    if matcher.least_length(matcher.start) > N_STEPS:
        return
    drawn: list[str] = []
    for _ in range(N_DRAWN):
        budget.check_deadline()
        drawn.append(matcher.random_sentence(rng, N_STEPS))
    for sentence in sorted(drawn, key=len)[-N_SENTENCES:]:
        state: State | None = matcher.start
        for char in sentence:
            budget.check_deadline()
            state = matcher.advance(state, char)
            if state is None:  # a token by name stands in the sentence
                break


def _walk_greedily(matcher: Matcher, budget: Budget) -> None:
    """Always to the successor with the most stacks."""
    rng = Random(0)
    state = matcher.start
    for _ in range(N_STEPS):
        budget.check_deadline()
        after = [successor for successor in _successors(matcher, state, rng) if successor is not None]
        if not after:
            return
        state = max(after, key=lambda successor: len(successor.cells))


def _successors(matcher: Matcher, state: State, rng: Random) -> list[State | None]:
    points = matcher.distinct_points(state)
    sample = rng.sample(points, min(N_CHOICES, len(points)))
    by_char = [matcher.advance(state, chr(point)) for point in sample]
    return by_char + [matcher.advance_symbol(state, token.token) for token in matcher.next_tokens(state) if not token.negated]
