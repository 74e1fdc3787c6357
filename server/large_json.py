"""The same JSON as `json_text` reads, read step by step: for bodies of megabytes, beside an event loop.

The standard decoder reads in C without ever letting another thread run: a million keys hold everything up for a second. Here a
thread's turn ends between any two values, and depth and number of values are bounded before there is anything to hold.
No knowledge of any field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]  # the stubs leave it out
from typing import Any, Final

_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"true|false|null")
_CONSTANT = re.compile(r"NaN|-?Infinity")
_WORDS: Final = {"true": True, "false": False, "null": None}
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_INTEGERS = re.compile(r"(?:-?(?:0|[1-9][0-9]{0,17})[ \t\n\r]*,[ \t\n\r]*){1,2000}")
"""Token ids come by the hundred thousand; a run of them is read at once."""


class TooLarge(ValueError):
    """More depth, or more values, than is allowed: `limit` is the setting's name."""

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


def read_large_json(text: str, max_depth: int, max_values: int, parse_float: Callable[[str], Any] = Decimal) -> Any:
    """The value of a JSON text. Raises TooLarge, and ValueError for what is no JSON text or repeats a key."""
    return _Reading(text, max_depth, max_values, parse_float).run()


class _Reading:
    """Where in the text the reading is, and the containers that are open there."""

    def __init__(self, text: str, max_depth: int, max_values: int, parse_float: Callable[[str], Any]) -> None:
        self._text = text
        self._at = 0
        self._max_depth = max_depth
        self._n_left = max_values
        self._parse_float = parse_float
        self._open: list[dict[str, Any] | list[Any]] = []
        self._keys: list[str] = []  # of the open objects: where the next value goes

    def run(self) -> Any:
        self._skip(_BLANK)
        value = self._next()
        while self._open:
            value = self._put(value)
        if self._at != len(self._text):
            raise JSONDecodeError("Extra data", self._text, self._at)
        return value

    def _put(self, value: Any) -> Any:
        """Put a value into the container around it; the next value there, or the container when that is complete."""
        around = self._open[-1]
        if isinstance(around, list):
            around.append(value)
        else:
            around[self._keys.pop()] = value
        char = self._char()
        if char == ",":
            self._step()
            if isinstance(around, list):
                self._take_integers(around)
            else:
                self._read_key(around)
            return self._next()
        if char != ("]" if isinstance(around, list) else "}"):
            raise JSONDecodeError("Expecting ',' delimiter", self._text, self._at)
        self._step()
        return self._open.pop()

    def _next(self) -> Any:
        """The value at this place; of a container its first value, and the container is open then."""
        while True:
            self._count(1)
            char = self._char()
            if char == '"':
                value, self._at = scanstring(self._text, self._at + 1, True)
                self._skip(_BLANK)
                return value
            if char == "[":
                opened: dict[str, Any] | list[Any] = self._enter([])
                if self._char() == "]":
                    self._step()
                    return self._open.pop()
                self._take_integers(opened)
            elif char == "{":
                opened = self._enter({})
                if self._char() == "}":
                    self._step()
                    return self._open.pop()
                self._read_key(opened)
            else:
                return self._scalar()

    def _enter(self, container: dict[str, Any] | list[Any]) -> dict[str, Any] | list[Any]:
        if len(self._open) == self._max_depth:
            raise TooLarge("json_depth")
        self._open.append(container)
        self._step()
        return container

    def _read_key(self, around: dict[str, Any] | list[Any]) -> None:
        if self._char() != '"':
            raise JSONDecodeError("Expecting property name enclosed in double quotes", self._text, self._at)
        key, end = scanstring(self._text, self._at + 1, True)
        if key in around:
            raise ValueError(f"key {key!r} is repeated")
        colon = _COLON.match(self._text, end)
        if colon is None:
            raise JSONDecodeError("Expecting ':' delimiter", self._text, end)
        self._keys.append(key)
        self._at = colon.end()

    def _take_integers(self, around: dict[str, Any] | list[Any]) -> None:
        """A run of integers with a comma after each: at once."""
        while isinstance(around, list) and (run := _INTEGERS.match(self._text, self._at)) is not None:
            integers = json.loads("[" + run[0].rstrip(", \t\n\r") + "]")
            self._count(len(integers))
            around += integers
            self._at = run.end()

    def _scalar(self) -> Any:
        word = _WORD.match(self._text, self._at)
        if word is not None:
            self._at = word.end()
            self._skip(_BLANK)
            return _WORDS[word[0]]
        number = _NUMBER.match(self._text, self._at)
        if number is None:
            constant = _CONSTANT.match(self._text, self._at)
            if constant is not None:
                raise ValueError(f"{constant[0]} is not a JSON number")
            raise JSONDecodeError("Expecting value", self._text, self._at)
        self._at = number.end()
        self._skip(_BLANK)
        whole, fraction, exponent = number.groups("")
        return self._parse_float(number[0]) if fraction or exponent else int(whole)

    def _char(self) -> str:
        return self._text[self._at : self._at + 1]

    def _step(self) -> None:
        """Past a character and the blanks after it."""
        self._at += 1
        self._skip(_BLANK)

    def _skip(self, blank: re.Pattern[str]) -> None:
        found = blank.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _count(self, n: int) -> None:
        self._n_left -= n
        if self._n_left < 0:
            raise TooLarge("json_values")
