"""What parsers of calls write to: turns names and pieces of arguments into parts."""

from __future__ import annotations

from collections.abc import Iterable

from converters.constraint import Tool
from converters.tools.custom import InputDecoder
from converters.tools.parts import ArgumentsDelta, CallEnded, CallStarted, Part
from converters.tools.reader import Mismatch, Reader


class CallWriter:
    """The calls of one reply. Once a call has started there is no way back behind it; what comes after is kept again."""

    def __init__(self, tools: Iterable[Tool], reader: Reader, parts: list[Part]) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.n_calls = 0
        self.is_open = False
        self._reader = reader
        self._parts = parts
        self._decoder: InputDecoder | None = None

    def may_begin(self, text: str) -> bool:
        """May `text` be the beginning of a tool's name?"""
        return any(name.startswith(text) for name in self.tools)

    def check(self, name: str) -> str:
        """`name`, if a tool has it. Raises Mismatch."""
        if name not in self.tools:
            raise Mismatch
        return name

    def start(self, name: str) -> Tool:
        """A call of `name` begins. Raises Mismatch for an unknown name, or inside another call."""
        self.check(name)
        if self.is_open:
            raise Mismatch
        self._reader.commit()
        self._parts.append(CallStarted(self.n_calls, name))
        self.is_open = True
        tool = self.tools[name]
        self._decoder = InputDecoder(self._emit) if tool.input is not None else None
        return tool

    def arguments(self, text: str) -> None:
        """More of the JSON text of the arguments."""
        if self._decoder is not None:
            self._decoder.feed(text)
        else:
            self._emit(text)

    def end(self, *, is_whole: bool) -> None:
        """The call is over."""
        if self._decoder is not None:
            self._decoder.finish()
        self._parts.append(CallEnded(self.n_calls, is_whole))
        self.n_calls += 1
        self.is_open = False
        self._reader.keep()

    def _emit(self, text: str) -> None:
        if text:
            self._parts.append(ArgumentsDelta(self.n_calls, text))
