"""Speculation: guesses what comes next, so that one decode checks several tokens. What a guess is worth is decided here.

Exactness is `core`'s affair: after each guessed token the sampler draws from the target's own logits as ever, the guess
stays as long as it is what was drawn, and the rest of it is dropped (as speculative sampling does, Leviathan et al., 2022,
arXiv:2211.17192, with a draft that is certain of itself).

How much is guessed follows from the sequence's own text and fixed costs alone, never from a clock or from others: a decode of
several tokens has other sums in the last bits than decodes of one, so the same request must always be cut the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from server.engine.lookup import LONGEST_MATCH, Lookup, PromptIndex

MOST_DRAFTED = 15  # tokens of one decode of a sequence, which others wait for
_LEARNING = 1 / 16  # weight of the newest token in a belief
_FIRST_BELIEFS = ((3, 0.6), (4, 0.7), (6, 0.75), (10, 0.8), (16, 0.9), (24, 0.94), (LONGEST_MATCH, 0.97))


@dataclass(frozen=True, slots=True)
class Costs:
    """What guesses cost, in tokens that are decoded without them. Fixed figures, since texts depend on them.

    leaving: a decode of its own, for a sequence that else shares one. token: one more token in that decode.
    """

    leaving: float
    token: float

    @classmethod
    def among(cls, n_slots: int, decode_cost: float) -> Costs:
        """Where `n_slots` may be busy, and a decode costs as much as `decode_cost` of its tokens before it has any.

        How many are busy must not count, so half of the others are taken to be.
        """
        n_sharing = (1 + n_slots) / 2
        plain = decode_cost / n_sharing + 1
        return cls(leaving=(decode_cost + 1) / plain - 1, token=1 / plain)


class Beliefs:
    """How likely a look-up is right, by how many tokens have matched; learned from every token, guessed or not."""

    def __init__(self) -> None:
        self._values = [value for _, value in _FIRST_BELIEFS]

    def of(self, n_matched: int) -> float:
        """The probability that the expected token comes."""
        return self._values[_class_of(n_matched)]

    def learn(self, n_matched: int, is_right: bool) -> None:
        """What came of one expectation."""
        place = _class_of(n_matched)
        self._values[place] += _LEARNING * (is_right - self._values[place])


_CLASSES = [next(place for place, (most, _) in enumerate(_FIRST_BELIEFS) if n <= most) for n in range(LONGEST_MATCH + 1)]


def _class_of(n_matched: int) -> int:
    return _CLASSES[min(n_matched, LONGEST_MATCH)]


class Drafter:
    """One sequence's guesses, by prompt look-up."""

    def __init__(self, index: PromptIndex, costs: Costs) -> None:
        self._lookup = Lookup(index)
        self._beliefs = Beliefs()
        self._costs = costs

    def take(self, token: int) -> None:
        """The sequence has taken `token`."""
        lookup = self._lookup
        if (expected := lookup.expected) is not None:
            self._beliefs.learn(lookup.n_matched, token == expected)
        lookup.push(token)

    def propose(self, n_most: int) -> tuple[int, ...]:
        """The guess, of at most `n_most` tokens."""
        return tuple(self._lookup.continuation(min(n_most, self._n_paying())))

    def _n_paying(self) -> int:
        """The length that is expected to save most; 0 where none saves anything."""
        if self._lookup.expected is None:
            return 0
        n_matched, likelihood, gain = self._lookup.n_matched, 1.0, -self._costs.leaving
        best, most = 0, 0.0
        for n_tokens in range(MOST_DRAFTED):
            likelihood *= self._beliefs.of(n_matched + n_tokens)
            gain += likelihood - self._costs.token
            if gain > most:
                best, most = n_tokens + 1, gain
        return best
