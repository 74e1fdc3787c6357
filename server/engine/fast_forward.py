"""Forced text (spec section 8.3): where a grammar leaves one continuation, its tokens need no drawing.

The one space that JSON may have after `,` and `:` would end every such run. So the first place for one, which the model fills,
sets the style of the reply, for both: from then on the other spelling isn't permitted, by us, though the grammar has it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from converters.grammar.charset import CharSet
from converters.grammar.match import Matcher, State
from server.engine.spelling import Speller

_N_REMEMBERED = 4096
_MOST_TOKENS = 256  # of one run
_MOST_CHARS = 512  # that are tokenized at once: of a long word that takes long
_SEPARATORS = (",", ":")
_SPACE = CharSet.of(" ")


class Beginnings:
    """Which texts begin one of `pieces`."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._sorted = sorted(pieces)

    def begins(self, text: bytes) -> bool:
        """Whether a longer piece begins with `text`."""
        after = bisect_right(self._sorted, text)
        return after < len(self._sorted) and self._sorted[after].startswith(text)


@dataclass(slots=True)
class Spacing:
    """Whether a space follows `,` and `:` in a reply; None until the model has chosen."""

    is_spaced: bool | None = None

    def permits(self, choices: Iterable[bool]) -> bool:
        """Whether these choices agree, with one another and with what was chosen."""
        return len({self.is_spaced, *choices} - {None}) < 2

    def learn(self, choices: Iterable[bool]) -> None:
        """Take choices; the first one of a reply counts."""
        if self.is_spaced is None:
            self.is_spaced = next(iter(choices), None)


class FastForward:
    """What is forced in the states of one grammar; remembered for all walks of one thread. `ids`: of tokens named by text."""

    def __init__(self, matcher: Matcher, speller: Speller, ids: dict[str, int]) -> None:
        self._matcher = matcher
        self._speller = speller
        self._ids = ids
        self._tokens: dict[tuple[State, bool, bool | None], tuple[int, ...]] = {}
        self._endings: dict[tuple[State, bool, bool | None], tuple[int, ...]] = {}
        self._optional: dict[State, bool] = {}
        speller.settled(b" ", True)  # what it looks up takes a while to make: not in the step loop

    def tokens(self, state: State, last: str, spacing: Spacing) -> tuple[int, ...]:
        """The tokens that must come in `state`, after a text that ends with the character `last`.

        Their text is tokenized alone; the end of it that a longer token might begin with is left to be drawn.
        """
        key = state, last in _SEPARATORS, spacing.is_spaced
        known = self._tokens.get(key)
        if known is None:
            known = tuple(self._find(state, last, spacing)) if state.partial is None else ()
            if len(self._tokens) >= _N_REMEMBERED:
                self._tokens.clear()
            self._tokens[key] = known
        return known

    def ending(self, state: State, last: str, spacing: Spacing) -> tuple[int, ...]:
        """The tokens of the text that must come in `state`, where it is so short that all of it is left to be drawn."""
        key = state, last in _SEPARATORS, spacing.is_spaced
        known = self._endings.get(key)
        if known is None:
            text = "" if state.partial is not None else self._text(state, last, spacing)[0]
            known = (self._speller.tokens(text.encode()) or ()) if len(text) <= _MOST_CHARS else ()
            if len(self._endings) >= _N_REMEMBERED:
                self._endings.clear()
            self._endings[key] = known
        return known

    def separations(self, state: State, last: str, text: str) -> Iterator[bool]:
        """For each place in `text`, written in `state`, where a space is possible and not necessary: whether there is one."""
        at: State | None = state
        for char in text:
            if at is None:
                return
            if last in _SEPARATORS and self._is_optional_space(at):
                yield char == " "
            at, last = self._matcher.advance(at, char), char

    def _find(self, state: State, last: str, spacing: Spacing) -> list[int]:
        tokens: list[int] = []
        while len(tokens) < _MOST_TOKENS:
            text, after = self._text(state, last, spacing)
            is_cut = len(text) > _MOST_CHARS
            named = None if is_cut else self._named(after)
            goes_on = named is None and bool(self._matcher.next_chars(after) or self._matcher.next_tokens(after))
            settled = self._speller.settled(text[:_MOST_CHARS].encode(), goes_on or is_cut)
            tokens.extend(settled or ())
            if named is None or settled is None:
                break
            tokens.append(named[0])
            state, last = named[1], ""
        return tokens

    def _text(self, state: State, last: str, spacing: Spacing) -> tuple[str, State]:
        """The text that must follow, and the state after it; at least _MOST_CHARS of it, if there is so much."""
        text = ""
        while len(text) <= _MOST_CHARS:
            forced = self._matcher.forced(state) or self._separation(state, last, spacing)
            after = self._matcher.advance(state, forced) if forced else None
            if after is None:
                break
            text, state, last = text + forced, after, forced[-1]
        return text, state

    def _separation(self, state: State, last: str, spacing: Spacing) -> str:
        """The character that the reply's style leaves where a space is optional."""
        if last not in _SEPARATORS or spacing.is_spaced is None or not self._is_optional_space(state):
            return ""
        if spacing.is_spaced:
            return " "
        others = self._matcher.next_chars(state) - _SPACE
        return chr(others.first) if others == CharSet.span(others.first, others.first) else ""

    def _named(self, state: State) -> tuple[int, State] | None:
        """The token that the grammar names, where nothing else is possible, and the state after it."""
        symbols = self._matcher.next_tokens(state)
        if len(symbols) != 1 or symbols[0].negated or self._matcher.may_end(state) or self._matcher.next_chars(state):
            return None
        name = symbols[0].token
        token = self._ids.get(name) if isinstance(name, str) else name
        after = self._matcher.advance_symbol(state, name)
        return None if token is None or after is None else (token, after)

    def _is_optional_space(self, state: State) -> bool:
        """Whether exactly the same may follow here with and without a space."""
        known = self._optional.get(state)
        if known is None:
            if len(self._optional) >= _N_REMEMBERED:
                self._optional.clear()
            known = self._optional[state] = self._compare(state)
        return known

    def _compare(self, state: State) -> bool:
        matcher = self._matcher
        if state.partial is not None or matcher.may_end(state) or (after := matcher.advance(state, " ")) is None:
            return False
        chars = matcher.next_chars(state)
        return (
            matcher.next_chars(after) == chars - _SPACE != chars
            and bool(chars - _SPACE)
            and matcher.next_tokens(after) == matcher.next_tokens(state)
            and matcher.least_length(after) == matcher.least_length(state)
            and not matcher.may_end(after)
        )
