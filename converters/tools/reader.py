"""Text that arrives in pieces, for parsers written as generators: a bare `yield` waits for more.

    def greeting(reader):
        yield from reader.expect("hello ")
        return (yield from reader.until(("!",), str.isalpha))

What a parser does depends only on the text, never on where it was cut. It raises `Mismatch` when the text can't be what it
reads, and `TextEnded` when the text stops before that is known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias, TypeVar

from converters.tools.scanner import JsonScanner

T = TypeVar("T")
Reading: TypeAlias = Generator[None, None, T]
"""A parser of something: yields for more text, returns what it read."""

_SPACE = " \t\n\r"


class Mismatch(Exception):
    """The text isn't what the parser reads."""


class TextEnded(Exception):
    """The text is over in the middle of what the parser reads."""


class Reader:
    """The text not yet forgotten, how far it was read, and the place to go back to if there is one."""

    __slots__ = ("is_closed", "mark", "pos", "text")

    def __init__(self) -> None:
        self.text = ""
        self.pos = 0
        self.mark: int | None = None
        self.is_closed = False

    def keep(self) -> None:
        """From here on remember what is read, until `commit` or `go_back`."""
        self.forget()
        self.mark = self.pos

    def commit(self) -> None:
        """There is no way back any more."""
        self.mark = None

    def go_back(self) -> None:
        """Back to where `keep` was called."""
        assert self.mark is not None
        self.pos, self.mark = self.mark, None

    def forget(self) -> None:
        """Let go of what was read, unless it is kept."""
        if self.mark is None:
            self.text = self.text[self.pos :]
            self.pos = 0

    @property
    def rest(self) -> str:
        """What is there and not yet read."""
        return self.text[self.pos :]

    def more(self) -> Reading[bool]:
        """Wait for more text; False when there is no more."""
        n = len(self.text)
        while len(self.text) == n and not self.is_closed:
            yield
        return len(self.text) > n

    def peek(self) -> Reading[str]:
        """The next character, not read yet. Raises TextEnded."""
        while self.pos == len(self.text):
            if not (yield from self.more()):
                raise TextEnded
        return self.text[self.pos]

    def space(self) -> Reading[str]:
        """Skip whitespace; returns the character after it."""
        while (char := (yield from self.peek())) in _SPACE:
            self.pos += 1
        return char

    def takes(self, word: str) -> Reading[bool]:
        """Read `word` if it comes next. At the end of the text False."""
        while not self.text.startswith(word, self.pos):
            if not word.startswith(self.rest) or not (yield from self.more()):
                return False
        self.pos += len(word)
        return True

    def one_of(self, *words: str) -> Reading[str]:
        """Read the first of `words` that comes next. Raises Mismatch, or TextEnded after a part of one."""
        for word in words:
            if (yield from self.takes(word)):
                return word
        raise TextEnded if self.is_closed and any(word.startswith(self.rest) for word in words) else Mismatch

    def expect(self, word: str) -> Reading[None]:
        """Read `word`. Raises Mismatch, or TextEnded after a part of it."""
        yield from self.one_of(word)

    def skips(self, word: str) -> Reading[bool]:
        """Read whitespace and `word` if they come next, else nothing. What the end of the text leaves of them is read too."""
        start = self.pos
        while (yield from self.takes_space()):
            pass
        if (yield from self.takes(word)):
            return True
        self.pos = len(self.text) if self.is_closed and self.rest and word.startswith(self.rest) else start
        return False

    def takes_begun(self, word: str) -> None:
        """Read what the end of the text leaves of `word`."""
        if word.startswith(self.rest):
            self.pos = len(self.text)

    def takes_space(self) -> Reading[bool]:
        """Read one character of whitespace if there is one."""
        if self.pos == len(self.text) and not (yield from self.more()):
            return False
        if self.text[self.pos] not in _SPACE:
            return False
        self.pos += 1
        return True

    def until(self, stops: Sequence[str], may_begin: Callable[[str], bool]) -> Reading[tuple[str, str]]:
        """The text before the first of `stops`, and that one, both read. `may_begin` is asked about a beginning of the text;
        where it says no, Mismatch is raised."""
        while True:
            found = [(at, stop) for stop in stops if (at := self.text.find(stop, self.pos)) >= 0]
            if found:
                at, stop = min(found)
                text = self.text[self.pos : at]
                if not may_begin(text):
                    raise Mismatch
                self.pos = at + len(stop)
                return text, stop
            rest = self.rest
            if not may_begin(rest[: len(rest) - n_held(rest, stops)]):
                raise Mismatch
            if not (yield from self.more()):
                raise TextEnded

    def json(self, emit: Callable[[str], None]) -> Reading[None]:
        """Read one JSON value, its text given to `emit` as it comes, without the space before it."""
        yield from self.space()
        scanner = JsonScanner()
        while True:
            end = scanner.feed(self.text, self.pos)
            if end > self.pos:
                emit(self.text[self.pos : end])
                self.pos = end
                self.forget()
            if scanner.has_failed:
                raise Mismatch
            if scanner.is_done:
                return
            if not (yield from self.more()):
                raise TextEnded

    def json_text(self) -> Reading[str]:
        """Read one JSON value; its text, whole."""
        pieces: list[str] = []
        yield from self.json(pieces.append)
        return "".join(pieces)

    def json_string(self) -> Reading[str]:
        """Read one JSON string; what it stands for."""
        if (yield from self.space()) != '"':
            raise Mismatch
        return str(json.loads((yield from self.json_text())))


def n_held(text: str, markers: Sequence[str]) -> int:
    """The length of the longest end of `text` that may be the beginning of one of `markers`."""
    longest = max(map(len, markers), default=1) - 1
    for n in range(min(longest, len(text)), 0, -1):
        if any(len(marker) > n and marker.startswith(text[-n:]) for marker in markers):
            return n
    return 0
