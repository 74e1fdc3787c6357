"""Prompt look-up: the longest run of newest tokens that stood in the text before tells what may come next.

A sequence's text is its prompt and its reply (before them what the client predicts, if it does). The index grows with each
token, and no work here grows with the text but the one reading of the prompt. Whether a guess is worth a decode is
`speculation`'s affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

_SIZES = (8, 3)  # of the n-grams that are looked up, the longest first
LONGEST_MATCH = 32  # a match that is longer counts as this long


class PromptIndex:
    """Where each n-gram of a prompt stood last; made once a request, read by all its choices.

    `prediction`: what the client thinks the reply will be; it counts as text that stands before the prompt.
    """

    def __init__(self, prompt: Sequence[int], prediction: Sequence[int] = ()) -> None:
        self.n_predicted = len(prediction)
        self.tokens = (*prediction, *prompt)
        self.ends = [_ends(self.tokens, size) for size in _SIZES]


def _ends(tokens: tuple[int, ...], size: int) -> dict[int, int]:
    """The place after each n-gram's last occurrence, by its hash, the n-gram that ends the text left out."""
    n_runs = max(0, len(tokens) - size)
    runs = zip(*(tokens[start : n_runs + start] for start in range(size)), strict=True)
    return dict(zip(map(hash, runs), count(size)))


class Lookup:
    """One sequence's text, and the place in it that reads as its end does: `n_matched` tokens before it are the same."""

    def __init__(self, prompt: PromptIndex) -> None:
        self._prompt = prompt
        self._tokens = list(prompt.tokens)
        self._ends: list[dict[int, int]] = [{} for _ in _SIZES]
        self._place: int | None = None
        self.n_matched = 0
        if prompt.n_predicted:
            self._place, self.n_matched = 0, LONGEST_MATCH
        self._find_and_note()

    @property
    def tokens(self) -> list[int]:
        """The text, after what the client predicts."""
        return self._tokens

    @property
    def expected(self) -> int | None:
        """The token that stood there; None where nothing is known."""
        return None if self._place is None else self._tokens[self._place]

    def push(self, token: int) -> None:
        """The sequence has taken `token`."""
        is_expected = token == self.expected
        self._tokens.append(token)
        if is_expected and self._place is not None:
            self._place += 1
            self.n_matched = min(self.n_matched + 1, LONGEST_MATCH)
        else:
            self._place, self.n_matched = None, 0
        self._find_and_note()

    def continuation(self, n_tokens: int) -> list[int]:
        """The `n_tokens` tokens that stood there; where that place is near the end, as if the text went on repeating itself."""
        if self._place is None:
            return []
        found = self._tokens[self._place : self._place + n_tokens]
        n_found = len(found)
        return [found[i % n_found] for i in range(n_tokens)]

    def n_predicted(self, n_tokens: int) -> int:
        """How many of the `n_tokens` tokens of `continuation` are the client's prediction; those come first."""
        return 0 if self._place is None else max(0, min(n_tokens, self._prompt.n_predicted - self._place))

    def _find_and_note(self) -> None:
        """Look for a longer n-gram than what has matched so far; then note those that end the text, each with its place."""
        n_tokens = len(self._tokens)
        for size, own, prompts in zip(_SIZES, self._ends, self._prompt.ends, strict=True):
            if size > n_tokens:
                continue
            found = hash(tuple(self._tokens[n_tokens - size :]))
            if self.n_matched < size:
                self._look_at(own.get(found) or prompts.get(found))
            own[found] = n_tokens

    def _look_at(self, place: int | None) -> None:
        n_matched = 0 if place is None else self._n_equal(place)
        if n_matched > self.n_matched:
            self._place, self.n_matched = place, n_matched

    def _n_equal(self, place: int) -> int:
        """How many tokens before `place` are those that end the text: 0 where only the hashes were the same."""
        tokens, n_equal = self._tokens, 0
        while n_equal < min(place, LONGEST_MATCH) and tokens[place - 1 - n_equal] == tokens[-1 - n_equal]:
            n_equal += 1
        return n_equal
