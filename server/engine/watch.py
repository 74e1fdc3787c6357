"""Words that are looked for in a text that comes token by token: the end of a block of thinking, the opening of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """A text to look for. `is_at_start`: only as the first of the text, after whitespace."""

    text: bytes
    is_at_start: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """Word number `word` is complete; the token goes on for `n_past` bytes behind it."""

    word: int
    n_past: int


class Watch:
    """Remembers as much of the text as can begin a word. The word that is complete first counts; of two at once, the longer."""

    def __init__(self, words: Sequence[Word], is_at_start: bool = True) -> None:
        self._words = tuple(words)
        self._n_kept = max((len(word.text) for word in words), default=1) - 1
        self._tail = b""
        self._head: bytes | None = b"" if is_at_start and any(word.is_at_start for word in words) else None

    def find(self, piece: bytes) -> Found | None:
        """The word that `piece` would complete."""
        found = []
        for i, word in enumerate(self._words):
            n_past = self._past_at_start(word.text, piece) if word.is_at_start else self._past(word.text, piece)
            if n_past is not None:
                found.append((-n_past, -len(word.text), i))
        if not found:
            return None
        n_past, _, i = min(found)
        return Found(i, -n_past)

    def push(self, piece: bytes) -> None:
        """The text goes on with `piece`."""
        text = self._tail + piece
        self._tail = text[max(0, len(text) - self._n_kept) :]
        if self._head is not None:
            self._head = (self._head + piece).lstrip()
            if not any(word.is_at_start and word.text.startswith(self._head) for word in self._words):
                self._head = None

    def n_begun(self, word: bytes) -> int:
        """How many bytes of `word` the text ends with."""
        return next((n for n in range(min(len(word) - 1, len(self._tail)), 0, -1) if self._tail.endswith(word[:n])), 0)

    def _past(self, word: bytes, piece: bytes) -> int | None:
        text = self._tail + piece
        at = text.find(word)
        return None if at < 0 else len(text) - at - len(word)

    def _past_at_start(self, word: bytes, piece: bytes) -> int | None:
        if self._head is None:
            return None
        text = (self._head + piece).lstrip()
        return len(text) - len(word) if text.startswith(word) else None
