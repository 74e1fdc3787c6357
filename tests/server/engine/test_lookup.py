"""Prompt look-up: what it finds, against a search of the whole text."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from server.engine.lookup import LONGEST_MATCH, Lookup, PromptIndex
from server.engine.speculation import MOST_DRAFTED, Beliefs, Costs, Drafter

COSTS = Costs.among(4, 1.2)
TEXTS = st.lists(st.integers(0, 3), max_size=60)


def n_matching(text: list[int], place: int) -> int:
    """How many tokens before `place` are those that end the text."""
    n = 0
    while n < min(place, LONGEST_MATCH) and text[place - 1 - n] == text[-1 - n]:
        n += 1
    return n


@given(TEXTS, TEXTS)
def test_what_it_expects_stood_there_after_the_same_tokens(prompt: list[int], reply: list[int]) -> None:
    lookup = Lookup(PromptIndex(prompt))
    text = list(prompt)
    for token in [*reply, 0]:
        best = max((n_matching(text, place) for place in range(1, len(text))), default=0)
        assert (lookup.expected is not None) == (best >= 3)
        if lookup.expected is not None:
            places = [place for place in range(1, len(text)) if n_matching(text, place) == lookup.n_matched]
            assert lookup.expected in [text[place] for place in places]
            assert (8 if best >= 8 else 3) <= lookup.n_matched <= best
            assert lookup.continuation(1) == [lookup.expected]
        lookup.push(token)
        text.append(token)


def test_the_last_occurrence_counts_and_a_match_is_followed() -> None:
    prompt = [1, 2, 3, 4, 5, 9, 1, 2, 3, 6, 7, 8]
    lookup = Lookup(PromptIndex(prompt))
    assert lookup.continuation(1) == []
    for token in (1, 2, 3):
        lookup.push(token)
    assert (lookup.n_matched, lookup.continuation(4)) == (3, [6, 7, 8, 1])
    lookup.push(6)
    assert (lookup.n_matched, lookup.expected) == (4, 7)
    lookup.push(0)
    assert lookup.continuation(4) == []


def test_what_repeats_itself_is_expected_to_go_on() -> None:
    lookup = Lookup(PromptIndex([7, 1, 2, 3, 1, 2, 3]))
    assert lookup.continuation(7) == [1, 2, 3, 1, 2, 3, 1]


def test_what_the_client_predicts_is_expected_from_the_start() -> None:
    lookup = Lookup(PromptIndex([1, 1], prediction=[5, 6, 7]))
    assert lookup.continuation(3) == [5, 6, 7]
    lookup.push(5)
    assert lookup.expected == 6


def test_short_prompts() -> None:
    for n in range(10):
        Lookup(PromptIndex([1] * n)).push(1)


def test_a_token_costs_the_same_in_a_long_text() -> None:
    """CPU time of 500 tokens after 500 and after 50,000."""

    def cost_s(n_tokens: int) -> float:
        drafter = Drafter(PromptIndex([(i * i) % 977 for i in range(n_tokens)]), COSTS)
        begun = time.thread_time()
        for i in range(500):
            drafter.take((i * i) % 977)
            drafter.propose(8)
        return time.thread_time() - begun

    assert min(cost_s(50_000) for _ in range(3)) < 5 * min(cost_s(500) for _ in range(3)) + 0.002


# ---- how much is guessed


def drafter(prompt: list[int], costs: Costs = COSTS) -> Drafter:
    return Drafter(PromptIndex(prompt), costs)


def test_the_longer_the_match_the_longer_the_guess() -> None:
    guesses = drafter(list(range(100)))
    lengths = []
    for token in range(40):
        guesses.take(token)
        lengths.append(len(guesses.propose(50)))
    assert lengths[:3] == [0, 0, 0]
    assert lengths == sorted(lengths)
    assert lengths[-1] == MOST_DRAFTED


def test_a_guess_is_as_long_as_it_may_be() -> None:
    guesses = drafter(list(range(100)))
    for token in range(40):
        guesses.take(token)
    assert guesses.propose(4) == (40, 41, 42, 43)


def test_guesses_that_fail_end_and_come_back_with_what_is_right() -> None:
    guesses = drafter([*range(50), *range(50)])
    for start in range(8):
        for token in range(5):
            guesses.take(start * 6 + token)
        guesses.take(99)  # after five tokens it never goes on
    for token in range(5):
        guesses.take(token)
    assert guesses.propose(8) == ()
    for token in range(5, 50):
        guesses.take(token)
    guesses.take(0)
    assert len(guesses.propose(8)) == 8


def test_dear_guesses_are_shorter() -> None:
    lengths = []
    for token in (0.0, 0.2, 0.5, 0.8, 0.9, 1.0):
        guesses = drafter(list(range(100)), Costs(0.1, token))
        for seen in range(20):
            guesses.take(seen)
        lengths.append(len(guesses.propose(50)))
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == MOST_DRAFTED
    assert lengths[-1] == 0


def guessed_after(guesses: Drafter, token: int) -> Sequence[int]:
    guesses.take(token)
    return guesses.propose(50)


def test_a_short_guess_is_not_worth_leaving_the_others() -> None:
    lengths = []
    for leaving in (0.0, 0.5, 1.0, 2.0):
        guesses = drafter(list(range(100)), Costs(leaving, 0.6))
        lengths.append(next(n for n in range(99) if guessed_after(guesses, n)))
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


def test_what_costs_follow_from() -> None:
    assert Costs.among(1, 1.0) == Costs(0.0, 0.5)
    alone, busy, gpu = Costs.among(1, 1.2), Costs.among(8, 1.2), Costs.among(4, 20.0)
    assert alone.token < busy.token < 1
    assert alone.leaving == 0 < busy.leaving < gpu.leaving
    assert gpu.token < 0.2


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=200))
def test_beliefs_are_probabilities(facts: list[tuple[int, bool]]) -> None:
    beliefs = Beliefs()
    for n_matched, is_right in facts:
        beliefs.learn(n_matched, is_right)
        assert 0 <= beliefs.of(n_matched) <= 1
