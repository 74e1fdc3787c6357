"""The reference matcher beside the native grammar sampler of one sequence: where it stands, and the way to the end from there.

The native sampler says which tokens may come; only the matcher knows what completes the text, and what the native one gets
wrong: tokens that grammars name, the end after half a character, and characters in overlong form.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from converters.grammar.expr import Token
from converters.grammar.match import Matcher, State
from server.engine.fast_forward import FastForward, Spacing
from server.engine.spelling import Speller

_N_TRIED = 16  # ways to end half a character


@dataclass(frozen=True, slots=True)
class Plan:
    """A text that completes another, and tokens that spell it."""

    text: bytes
    tokens: tuple[int, ...]


class Walk:
    """A walk from the start of a grammar. `ids` has the tokens that the grammar names by text.

    A matcher serves all walks of one thread, and no other thread. With `forward` the walk tells forced text, and keeps to the
    `spacing` that the reply has.
    """

    def __init__(self, matcher: Matcher, speller: Speller, ids: Mapping[str, int], forward: FastForward | None = None) -> None:
        self._matcher = matcher
        self._speller = speller
        self._ids = ids
        self._forward = forward
        self.spacing = Spacing()
        self._state: State = matcher.start
        self._half = b""  # of a character
        self._last = ""  # character of the text
        self._ahead: tuple[int, State | None, bytes] | None = None
        self._plan: Plan | None = None  # a completion of the present text, if one was spelled
        self._plan_ahead: Plan | None = None

    def permits(self, token: int) -> bool:
        """Whether `token` may come next."""
        if self._after(token) is None:
            return False
        return self.spacing.permits(self._separations(token))

    def may_end(self) -> bool:
        """Whether the text so far is a sentence."""
        return self._matcher.may_end(self._state)

    def take(self, token: int) -> bool:
        """Go on with `token`; False (and no step) when it can't follow."""
        after = self._after(token)
        if after is None or self._ahead is None:
            return False
        if self._forward is not None:
            self._note(token)
        self._state, self._half, self._ahead = after, self._ahead[2], None
        self._plan, self._plan_ahead = self._plan_ahead, None
        return True

    def _note(self, token: int) -> None:
        """Learn how the reply is spaced."""
        self.spacing.learn(self._separations(token))
        text = (self._half + self._speller.piece(token)).decode("utf-8", "ignore")
        self._last = text[-1:] or self._last

    def _separations(self, token: int) -> Iterator[bool]:
        """What `token` says where a space is possible and not necessary."""
        text = self._speller.piece(token).decode("utf-8", "ignore")
        if self._forward is None or not ("," in text or ":" in text or self._last in (",", ":")):
            return iter(())
        return self._forward.separations(self._state, self._last, text)

    def forced(self) -> tuple[int, ...]:
        """The tokens that must come next, as far as they are certain."""
        if self._forward is None:
            return ()
        return self._forward.tokens(self._state, self._last, self.spacing)

    def likely(self) -> tuple[int, ...]:
        """The tokens that the model would write the forced text with, where none of them is certain."""
        if self._forward is None:
            return ()
        return self._forward.ending(self._state, self._last, self.spacing)

    def relax(self) -> bool:
        """Keep to no spacing, and force nothing, from here on; False where it was so."""
        was_strict, self._forward, self.spacing = self._forward is not None, None, Spacing()
        return was_strict

    def fits_after(self, token: int, n_tokens: int) -> bool:
        """Whether, once `token` is taken, `n_tokens` are enough to complete the text."""
        after = self._after(token)
        self._plan_ahead = None
        return after is None or self._fits(after, n_tokens)

    def completion(self) -> tuple[int, ...] | None:
        """The tokens of the completion that is forced from here; None where the vocabulary can't spell it."""
        parts = self._completion(*self._end_of_char(self._state))
        tokens = self._spelled(parts)
        if self._plan is not None and [self._plan.text] == parts and (tokens is None or len(self._plan.tokens) < len(tokens)):
            return self._plan.tokens
        return tokens

    def _after(self, token: int) -> State | None:
        if self._ahead is None or self._ahead[0] != token:
            piece = self._speller.piece(token)
            half = _half_character(self._half + piece)
            after = None if half is None else self._matcher.advance_token(self._state, token, piece)
            self._ahead = token, after, half or b""
        return self._ahead[1]

    def _fits(self, state: State, n_tokens: int) -> bool:
        """The tokens are counted only where fewer are left than the completion has bytes."""
        head, state = self._end_of_char(state)  # the least length is that from before a half character
        n_symbols = self._matcher.least_length(state)
        if self._matcher.widest_char * n_symbols + len(head) <= n_tokens:
            return True
        if n_symbols > n_tokens * self._speller.longest_piece:
            return False
        parts = self._completion(head, state)
        if sum(len(part) if isinstance(part, bytes) else 1 for part in parts) <= n_tokens:
            return True
        plan = self._cut_plan(parts)
        if plan is None or len(plan.tokens) > n_tokens:
            tokens = self._spelled(parts)
            if tokens is None or len(tokens) > n_tokens:
                return False
            plan = Plan(parts[0], tokens) if len(parts) == 1 and isinstance(parts[0], bytes) else None
        self._plan_ahead = plan
        return True

    def _cut_plan(self, parts: list[bytes | int]) -> Plan | None:
        """The end of the present plan, where that is all that is missing: cutting is quicker than tokenizing."""
        plan, text = self._plan, parts[0] if len(parts) == 1 else None
        if plan is None or not isinstance(text, bytes) or not plan.text.endswith(text):
            return None
        n_skipped, n_bytes = 0, len(plan.text)
        while n_bytes > len(text):
            n_bytes -= len(self._speller.piece(plan.tokens[n_skipped]))
            n_skipped += 1
        head = self._speller.tokens(text[: len(text) - n_bytes])
        return None if head is None else Plan(text, head + plan.tokens[n_skipped:])

    def _completion(self, head: bytes, state: State) -> list[bytes | int]:
        """The bytes and named tokens of the shortest completion of `state`, after `head`."""
        parts: list[bytes | int] = [head] if head else []
        for piece in self._matcher.shortest_pieces(state):
            part = self._token(piece) if isinstance(piece, Token) else piece.encode()
            if isinstance(part, bytes) and parts and isinstance(parts[-1], bytes):
                parts[-1] += part
            else:
                parts.append(part)
        return parts

    def _end_of_char(self, state: State) -> tuple[bytes, State]:
        """The bytes that make half a character a whole one, the state after it; of some ways the one that ends soonest."""
        if state.partial is None:
            return b"", state
        ways = []
        for point in self._matcher.distinct_points(state)[:_N_TRIED]:
            rest = chr(point).encode()[-state.partial.n_missing :]
            if (after := self._matcher.advance_bytes(state, rest)) is not None:
                ways.append((self._matcher.least_length(after), rest, after))
        _, rest, after = min(ways, key=lambda way: way[0])
        return rest, after

    def _token(self, symbol: Token) -> int | bytes:
        """A token that the symbol takes."""
        named = self._ids.get(symbol.token, -1) if isinstance(symbol.token, str) else symbol.token
        if not symbol.negated:
            return named
        return next(text for text in (b" ", b"0") if self._speller.tokens(text) != (named,))

    def _spelled(self, parts: list[bytes | int]) -> tuple[int, ...] | None:
        tokens: list[int] = []
        for part in parts:
            spelled = (part,) if isinstance(part, int) else self._speller.tokens(part)
            if spelled is None:
                return None
            tokens.extend(spelled)
        return tuple(tokens)


def _half_character(data: bytes) -> bytes | None:
    """The unfinished character at the end of `data`; None if it is no UTF-8, of which llama.cpp permits overlong forms."""
    if data.isascii():
        return b""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(data)
    except UnicodeDecodeError:
        return None
    return decoder.getstate()[0]
