"""From token bytes to text: whole characters only, stop strings found and held back, log-probabilities kept in step.

Knows nothing of models or grammars. The text that comes out is the same however the bytes are cut into pieces.
"""

from __future__ import annotations

import codecs
from collections import deque
from dataclasses import dataclass

from server.engine.messages import TokenLogprobs


@dataclass(frozen=True, slots=True)
class Released:
    """Text that is certain by now, how many tokens it settles, and their log-probabilities where they were given."""

    text: str = ""
    n_tokens: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell."""
        return not self.text and not self.logprobs


@dataclass(frozen=True, slots=True)
class _Pending:
    """A token that isn't released yet; its text ends at character `end` of the reply."""

    start: int
    end: int
    logprobs: TokenLogprobs | None


class TextAssembler:
    """The text of one reply, token by token.

    Of stop strings that could match, the one that is complete first ends the reply (of two that are complete at once, the
    longer); it is not part of the text. With `drop_leading_space` the one space that a SentencePiece model puts before its
    first word is left out. Bytes that are no UTF-8 become U+FFFD; half a character at the end of a reply is dropped.
    """

    def __init__(self, stops: tuple[str, ...] = (), drop_leading_space: bool = False) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._drop_space = drop_leading_space
        self._held = ""
        self._n_released = 0  # characters given out so far
        self._pending: deque[_Pending] = deque()
        self.stop_string: str | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string has appeared; nothing may be pushed after that."""
        return self.stop_string is not None

    def push(self, piece: bytes, logprobs: TokenLogprobs | None = None, *, stops: bool = True) -> Released:
        """Add a token's bytes; returns what has become certain by it. `stops`: whether stop strings count here."""
        start = self._n_released + len(self._held)
        text = self._decoder.decode(piece)
        if self._drop_space and text:
            self._drop_space = False
            text = text.removeprefix(" ")
        self._held += text
        self._pending.append(_Pending(start, start + len(text), logprobs))
        if not stops:
            return self._release(len(self._held), ended=False)
        if (found := self._find_stop()) is not None:
            begin, self.stop_string = found
            self._held = self._held[:begin]
            return self._release(begin, ended=True)
        return self._release(len(self._held) - self._n_held_back(), ended=False)

    def finish(self) -> Released:
        """The reply ends without a stop string: what was held back comes out."""
        return self._release(len(self._held), ended=True)

    def _find_stop(self) -> tuple[int, str] | None:
        """Where the first complete stop string begins in the held text, and which it is."""
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            begin = self._held.find(stop)
            if begin >= 0 and (best is None or (begin + len(stop), begin) < best[:2]):
                best = (begin + len(stop), begin, stop)
        return None if best is None else best[1:]

    def _n_held_back(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:size]):
                    longest = size
                    break
        return longest

    def _release(self, n_chars: int, ended: bool) -> Released:
        """Give out the first `n_chars` held characters and the tokens that lie before that point."""
        text, self._held = self._held[:n_chars], self._held[n_chars:]
        self._n_released += n_chars
        n_tokens, logprobs = 0, []
        while self._pending and self._is_settled(self._pending[0], ended):
            token = self._pending.popleft()
            n_tokens += 1
            if token.logprobs is not None:
                logprobs.append(token.logprobs)
        return Released(text, n_tokens, tuple(logprobs))

    def _is_settled(self, token: _Pending, ended: bool) -> bool:
        """At a stop string, tokens that begin before it count; before that, those whose text is out entirely."""
        if not ended:
            return token.end <= self._n_released
        return not self.is_stopped or token.start < self._n_released or token.end <= self._n_released
