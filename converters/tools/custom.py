"""The input of a custom tool's call. On the wire of every format it is the one argument `input`, a JSON string."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from typing_extensions import assert_never

from converters.constraint import FreeText, Gbnf, JsonValue, Lark, Regex, ToolInput

KEY = "input"
_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_STEP = re.compile(r'[^"\\]+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^u]')
_SPLIT_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(\\(u[0-9a-fA-F]{0,3})?)?$")
_LONE = re.compile("[\ud800-\udfff]")


class InputDecoder:
    """Fed the JSON text of the arguments, it gives the input to `emit` as it comes, decoded.

    Arguments of another form are given out as they are, when they end.
    """

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._text = ""
        self._is_inside: bool | None = None  # None: not known yet; False: the string is over, or there is none

    def feed(self, text: str) -> None:
        """More of the arguments' JSON text."""
        self._text += text
        if self._is_inside is None and (match := _HEAD.match(self._text)):
            self._is_inside = True
            self._text = self._text[match.end() :]
        if self._is_inside:
            self._decode()

    def finish(self) -> None:
        """The arguments are over."""
        if self._is_inside is None and self._text:
            self._emit(self._text)

    def _decode(self) -> None:
        at = 0
        while (match := _STEP.match(self._text, at)) and not _SPLIT_PAIR.fullmatch(self._text, at):
            self._emit(_LONE.sub("\ufffd", json.loads(f'"{match.group()}"', strict=False)))
            at = match.end()
        self._text = self._text[at:]
        if self._text.startswith('"'):
            self._is_inside = False


def arguments_of_input(text: str) -> str:
    """The arguments' JSON text of an input."""
    return json.dumps({KEY: text}, ensure_ascii=False)


def function_of_custom(name: str, description: str, given: ToolInput) -> JsonValue:
    """A custom tool as a function in OpenAI's chat form, for templates and descriptions: one parameter, and its rule."""
    match given:
        case FreeText():
            rule = "Any text."
        case Regex(pattern):
            rule = f"A text that matches the regex {pattern}"
        case Lark(text) | Gbnf(text):
            rule = f"A text of this grammar:\n{text}"
        case _:
            assert_never(given)
    parameters: JsonValue = {"type": "object", "properties": {KEY: {"type": "string", "description": rule}}, "required": [KEY]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
