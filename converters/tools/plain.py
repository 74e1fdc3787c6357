"""Plain JSON: the whole answer is `{"name": …, "arguments": …}`, or a list of those. For models without their own format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from typing_extensions import override

from converters.constraint import JsonValue
from converters.grammar.expr import Expr, alt, lit, seq
from converters.tools.codec import ArgumentStyle, Call, CallGrammar, Codec, Opening
from converters.tools.json_call import (
    COMPACT_HEAD,
    HEAD,
    call_expr,
    call_rest,
    list_rest,
    read_calls,
    tool_lines,
    write_call,
)
from converters.tools.reader import Reader, Reading
from converters.tools.writer import CallWriter

_KEY = "arguments"


class Plain(Codec):
    """See the module."""

    name = "json"
    style: ArgumentStyle = "json"
    openings = (
        Opening("{", (HEAD, COMPACT_HEAD), is_at_start=True),
        Opening("[", ("[" + HEAD, "[" + COMPACT_HEAD), is_at_start=True),
    )
    markers: tuple[str, ...] = ()
    result_role: Literal["user", "tool"] = "user"

    @override
    def calls(self, given: CallGrammar) -> Expr:
        call = call_expr(given.tools, _KEY)
        return alt(call, seq(lit("[" + HEAD), list_rest(given.tools, _KEY, given.is_parallel))) if given.is_parallel else call

    @override
    def opened(self, trigger: str, given: CallGrammar) -> Expr:
        return list_rest(given.tools, _KEY, given.is_parallel) if trigger.startswith("[") else call_rest(given.tools, _KEY)

    @override
    def read(self, opening: str, reader: Reader, writer: CallWriter) -> Reading[None]:
        reader.pos -= len(opening)
        yield from read_calls(reader, writer, is_bare=True)

    @override
    def write_calls(self, calls: Sequence[Call]) -> str:
        texts = [write_call(call, _KEY) for call in calls]
        return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"

    @override
    def write_result(self, name: str, result: str) -> str:
        return f"Result of {name}:\n{result}"

    @override
    def describe_tools(self, tools: Sequence[Mapping[str, JsonValue]]) -> str:
        return (
            f"These functions can be called, one JSON description a line:\n{tool_lines(tools)}\n\n"
            f'To call one, answer only with a JSON object: {{"name": "...", "{_KEY}": {{...}}}}\n'
            "To call several, answer with a list of such objects."
        )
