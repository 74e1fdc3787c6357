"""Speculation: guesses what comes next, so that one decode checks several tokens. What a guess is worth is decided here.

Exactness is `core`'s affair: after each guessed token the sampler draws from the target's own logits as ever, the guess
stays as long as it is what was drawn, and the rest of it is dropped (as speculative sampling does, Leviathan et al., 2022,
arXiv:2211.17192, with a draft that is certain of itself).

How much is guessed follows from the sequence's own text and fixed costs alone, never from a clock or from others: a decode of
several tokens has other sums in the last bits than decodes of one, so the same request must always be cut the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from operator import mul

from server.engine.lookup import LONGEST_MATCH, Lookup, PromptIndex

MOST_DRAFTED = 15  # tokens of one decode of a sequence, which others wait for
_LEARNING = 1 / 16  # weight of the newest token in a belief
_FIRST_BELIEFS = ((3, 0.6), (4, 0.7), (6, 0.75), (10, 0.8), (16, 0.9), (24, 0.94), (LONGEST_MATCH, 0.97))
_FIRST_SURE = ((0.3, 0.2), (0.5, 0.4), (0.7, 0.55), (0.85, 0.7), (0.95, 0.85), (1.0, 0.95))  # the draft model's own word
_MOST_CREDIT = 2.0  # tokens that asking it may cost before it is left alone for some time
_LEAST_PAUSE, _MOST_PAUSE = 16, 512  # tokens


@dataclass(frozen=True, slots=True)
class Costs:
    """What guesses cost, in tokens that are decoded without them. Fixed figures, since texts depend on them.

    leaving: a decode of its own, for a sequence that else shares one. token: one more token in that decode. model: a token of
    the draft model.
    """

    leaving: float
    token: float
    model: float = 0.0

    @classmethod
    def among(cls, n_slots: int, decode_cost: float, model_share: float = 0.0) -> Costs:
        """Where `n_slots` may be busy, and a decode costs as much as `decode_cost` of its tokens before it has any.

        How many are busy must not count, so half of the others are taken to be. model_share: the draft model's size as a share
        of the target's.
        """
        n_sharing = (1 + n_slots) / 2
        plain = decode_cost / n_sharing + 1
        return cls((decode_cost + 1) / plain - 1, 1 / plain, model_share * (decode_cost + 1) / plain)

    def best_length(self, likelihoods: Iterable[float]) -> int:
        """How much to guess where so likely one token comes, two, three …: what is expected to save most; 0 if nothing does."""
        best, most, gain = 0, 0.0, -self.leaving
        for n_tokens, likelihood in enumerate(likelihoods, start=1):
            gain += likelihood - self.token
            if gain > most:
                best, most = n_tokens, gain
        return best

    @property
    def can_model_pay(self) -> bool:
        """Whether a draft model that is always right would save anything."""
        return MOST_DRAFTED * (1 - self.token - self.model) > self.leaving


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


class ModelGuesses:
    """One sequence's dealings with the draft model: what that has read of its own guesses, and whether asking it has paid."""

    def __init__(self, costs: Costs) -> None:
        self._n_text: int | None = None  # when it was asked last
        self._guess: tuple[int, ...] = ()
        self._costs = costs
        self._values = [value for _, value in _FIRST_SURE]
        self._expected: deque[tuple[int, int, bool]] = deque()  # token, its class, whether it was drafted
        self._balance = 0.0
        self._n_paused = 0
        self._next_pause = _LEAST_PAUSE

    def may_ask(self, n_text: int) -> bool:
        """Whether the draft model is to be asked what comes after `n_text` tokens: once, and not for some time after it
        hasn't paid."""
        return self._n_paused == 0 and n_text != self._n_text

    def is_worth_asking(self, likelihood: float) -> bool:
        """Whether one more token may pay, after those that come so likely."""
        return likelihood > self._costs.token + self._costs.model

    def belief(self, probability: float) -> float:
        """How likely a guess comes of which the draft model is so sure."""
        return self._values[_sureness(probability)]

    def n_right(self, text: Sequence[int]) -> int:
        """How many tokens of what the draft model has read at most are what the text is."""
        if self._n_text is None:
            return len(text)
        pairs = zip(self._guess, text[self._n_text : self._n_text + len(self._guess)], strict=False)
        return self._n_text + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def expect(self, n_text: int, guess: Sequence[int], probabilities: Sequence[float], n_drafted: int) -> None:
        """What the draft model has guessed after `n_text` tokens, and how much of that is put to the test by a decode."""
        self._n_text, self._guess = n_text, tuple(guess[:-1])  # the last one it hasn't read
        self._expected = deque(
            (token, _sureness(probability), place < n_drafted)
            for place, (token, probability) in enumerate(zip(guess, probabilities, strict=True))
        )
        self._balance -= len(guess) * self._costs.model + n_drafted * self._costs.token + self._costs.leaving * (n_drafted > 0)

    def take(self, token: int) -> None:
        """The sequence has taken `token`."""
        if self._n_paused:
            self._n_paused -= 1
        elif self._expected:
            self._judge(token, *self._expected.popleft())

    def _judge(self, token: int, expected: int, sureness: int, was_drafted: bool) -> None:
        is_right = token == expected
        self._values[sureness] += _LEARNING * (is_right - self._values[sureness])
        self._balance = min(self._balance + (is_right and was_drafted), _MOST_CREDIT)
        if not is_right:
            self._expected.clear()
        if self._expected:
            return
        if self._balance < -_MOST_CREDIT:
            self._n_paused, self._balance = self._next_pause, 0.0
            self._next_pause = min(2 * self._next_pause, _MOST_PAUSE)
        elif self._balance == _MOST_CREDIT:
            self._next_pause = _LEAST_PAUSE


def _sureness(probability: float) -> int:
    return next((place for place, (most, _) in enumerate(_FIRST_SURE) if probability <= most), len(_FIRST_SURE) - 1)


class Drafter:
    """One sequence's guesses, by prompt look-up; `model` is for those of the draft model, where it has one."""

    def __init__(self, index: PromptIndex, costs: Costs, *, has_model: bool = False) -> None:
        self.model = ModelGuesses(costs) if has_model else None
        self._lookup = Lookup(index)
        self._beliefs = Beliefs()
        self._costs = costs

    @property
    def text(self) -> Sequence[int]:
        """Prompt and reply, as far as it is taken."""
        return self._lookup.tokens

    @property
    def may_ask_model(self) -> bool:
        """Whether the draft model is to be asked now."""
        return self.model is not None and self.model.may_ask(len(self._lookup.tokens))

    def take(self, token: int) -> None:
        """The sequence has taken `token`."""
        lookup = self._lookup
        if (expected := lookup.expected) is not None:
            self._beliefs.learn(lookup.n_matched, token == expected)
        lookup.push(token)
        if self.model is not None:
            self.model.take(token)

    def propose(self, n_most: int) -> tuple[int, ...]:
        """The guess by look-up, of at most `n_most` tokens."""
        if self._lookup.expected is None:
            return ()
        n_matched = self._lookup.n_matched
        likelihoods = accumulate((self._beliefs.of(n_matched + place) for place in range(MOST_DRAFTED)), mul)
        return tuple(self._lookup.continuation(min(n_most, self._costs.best_length(likelihoods))))

    def n_predicted(self, n_tokens: int) -> int:
        """How many of the `n_tokens` tokens that `propose` gives now are the client's prediction; those come first."""
        return self._lookup.n_predicted(n_tokens)
