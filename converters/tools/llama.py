"""Llama 3: a call is a bare JSON object with `parameters`, as the whole answer or after `<|python_tag|>`; several by `; `."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from typing_extensions import override

from converters.constraint import JsonValue
from converters.grammar.expr import Expr, lit, opt, rep, seq
from converters.tools.codec import ArgumentStyle, Call, CallGrammar, Codec, Opening
from converters.tools.json_call import COMPACT_HEAD, HEAD, call_expr, call_rest, read_calls, tool_lines, write_call
from converters.tools.reader import Reader, Reading
from converters.tools.writer import CallWriter

_TAG = "<|python_tag|>"
_KEY = "parameters"
_SEPARATOR = "; "


class Llama3(Codec):
    """See the module."""

    name = "llama3"
    style: ArgumentStyle = "json"
    openings = (Opening.anywhere(_TAG), Opening("{", (HEAD, COMPACT_HEAD), is_at_start=True))
    markers = (_TAG,)
    result_role: Literal["user", "tool"] = "user"

    @override
    def calls(self, given: CallGrammar) -> Expr:
        return seq(opt(given.marker(_TAG)), _list(call_expr(given.tools, _KEY), given))

    @override
    def opened(self, trigger: str, given: CallGrammar) -> Expr:
        first = call_expr(given.tools, _KEY) if trigger == _TAG else call_rest(given.tools, _KEY)
        return _list(first, given)

    @override
    def read(self, opening: str, reader: Reader, writer: CallWriter) -> Reading[None]:
        is_bare = opening != _TAG
        if is_bare:
            reader.pos -= len(opening)
        yield from read_calls(reader, writer, is_bare=is_bare)
        while (yield from _another(reader)):
            yield from read_calls(reader, writer)

    @override
    def write_calls(self, calls: Sequence[Call]) -> str:
        return _SEPARATOR.join(write_call(call, _KEY) for call in calls)

    @override
    def write_result(self, name: str, result: str) -> str:
        return f"Result of {name}:\n{result}"

    @override
    def describe_tools(self, tools: Sequence[Mapping[str, JsonValue]]) -> str:
        return (
            f"These functions can be called, one JSON description a line:\n{tool_lines(tools)}\n\n"
            f'To call one, answer only with a JSON object: {{"name": "...", "{_KEY}": {{...}}}}'
        )


def _list(first: Expr, given: CallGrammar) -> Expr:
    return seq(first, rep(seq(lit(_SEPARATOR), call_expr(given.tools, _KEY)))) if given.is_parallel else first


def _another(reader: Reader) -> Reading[bool]:
    """Read a separator, if a call may follow it; else nothing."""
    start = reader.pos
    if (yield from reader.skips(";")):
        yield from _all_space(reader)
        if (yield from reader.takes("{")):
            reader.pos -= 1
            return True
        if reader.is_closed and not reader.rest:
            return False
    reader.pos = start
    return False


def _all_space(reader: Reader) -> Reading[None]:
    while (yield from reader.takes_space()):
        pass
