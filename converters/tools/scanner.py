"""Follows one JSON text character by character: where it ends, and whether it is still the beginning of one.

Nothing is decoded here, and nothing recurses: the open brackets are a stack.
"""

from __future__ import annotations

import re

_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_SPACE = re.compile(r"[ \t\n\r]*")
_WORD = re.compile(r"[-+.0-9A-Za-z]*")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_NUMBER_START = re.compile(r"-?((0|[1-9][0-9]*)(\.([0-9]+([eE]([-+]?[0-9]*)?)?)?|[eE]([-+]?[0-9]*)?)?)?")
_WORDS = ("true", "false", "null")
_ESCAPED = '"\\/bfnrt'
_HEX = "0123456789abcdefABCDEF"

_VALUE, _FIRST, _KEY, _FIRST_KEY, _COLON, _AFTER, _STRING, _ESCAPE, _SCALAR = range(9)


class JsonScanner:
    """Takes text with `feed` until `is_done` (a whole value was read) or `has_failed` (no JSON text goes on like this).

    A number or word at the top ends only where something else follows: `feed` then stops before that.
    """

    __slots__ = ("_hex", "_is_key", "_open", "_state", "_word", "has_failed", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self.has_failed = False
        self._state = _VALUE
        self._open: list[str] = []
        self._word = ""
        self._is_key = False
        self._hex = 0

    @property
    def may_be_done(self) -> bool:
        """True when the text so far is a whole value (a number might go on)."""
        return self.is_done or (self._state == _SCALAR and not self._open and _is_word(self._word))

    @property
    def is_in_string(self) -> bool:
        """True in the middle of a string."""
        return self._state in (_STRING, _ESCAPE) and not self.has_failed

    def feed(self, text: str, start: int = 0) -> int:
        """Read on from `start`; returns where it stopped: the end of the text, of the value, or the character that fails."""
        i, n = start, len(text)
        while i < n and not self.is_done and not self.has_failed:
            if self._state == _STRING:
                i = self._in_string(text, i)
            elif self._state == _ESCAPE:
                i = self._in_escape(text, i)
            elif self._state == _SCALAR:
                i = self._in_scalar(text, i)
            else:
                i = self._between(text, i)
        return i

    def _in_string(self, text: str, i: int) -> int:
        match = _PLAIN.match(text, i)
        assert match is not None
        i = match.end()
        if i == len(text):
            return i
        if text[i] == '"':
            self._state = _COLON if self._is_key else _AFTER
            self._end_if_whole()
        elif text[i] == "\\":
            self._state = _ESCAPE
        else:
            return self._fail(i)
        return i + 1

    def _in_escape(self, text: str, i: int) -> int:
        char = text[i]
        if self._hex:
            if char not in _HEX:
                return self._fail(i)
            self._hex -= 1
        elif char == "u":
            self._hex = 4
        elif char not in _ESCAPED:
            return self._fail(i)
        if not self._hex:
            self._state = _STRING
        return i + 1

    def _in_scalar(self, text: str, i: int) -> int:
        match = _WORD.match(text, i)
        assert match is not None
        word = self._word + match.group()
        if not _begins_word(word):
            return self._fail_in_word(text, i)
        self._word = word
        if match.end() < len(text):
            if not _is_word(self._word):
                return self._fail(match.end())
            self._state = _AFTER
            self._end_if_whole()
        return match.end()

    def _fail_in_word(self, text: str, i: int) -> int:
        """Fail at the first character that is wrong, so that it is the same one however the text is cut."""
        while _begins_word(self._word + text[i]):
            self._word += text[i]
            i += 1
        return self._fail(i)

    def _between(self, text: str, i: int) -> int:
        match = _SPACE.match(text, i)
        assert match is not None
        i = match.end()
        if i == len(text):
            return i
        char, state = text[i], self._state
        if state in (_VALUE, _FIRST):
            return self._close(i) if state == _FIRST and char == "]" else self._begin(char, i)
        if state in (_KEY, _FIRST_KEY):
            if state == _FIRST_KEY and char == "}":
                return self._close(i)
            return self._go(i, _STRING, is_key=True) if char == '"' else self._fail(i)
        if state == _COLON:
            return self._go(i, _VALUE) if char == ":" else self._fail(i)
        if char == ",":
            return self._go(i, _KEY if self._open[-1] == "}" else _VALUE)
        return self._close(i) if char == self._open[-1] else self._fail(i)

    def _begin(self, char: str, i: int) -> int:
        if char == "{":
            self._open.append("}")
            return self._go(i, _FIRST_KEY)
        if char == "[":
            self._open.append("]")
            return self._go(i, _FIRST)
        if char == '"':
            return self._go(i, _STRING)
        self._word = ""
        self._state = _SCALAR
        return i if char in "-0123456789tfn" else self._fail(i)

    def _go(self, i: int, state: int, *, is_key: bool = False) -> int:
        self._state, self._is_key = state, is_key
        return i + 1

    def _close(self, i: int) -> int:
        self._open.pop()
        self._state = _AFTER
        self._end_if_whole()
        return i + 1

    def _end_if_whole(self) -> None:
        self.is_done = self._state == _AFTER and not self._open

    def _fail(self, i: int) -> int:
        self.has_failed = True
        return i


def _is_word(word: str) -> bool:
    return word in _WORDS or _NUMBER.fullmatch(word) is not None


def _begins_word(word: str) -> bool:
    return any(known.startswith(word) for known in _WORDS) or _NUMBER_START.fullmatch(word) is not None
