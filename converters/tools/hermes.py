"""ChatML / Hermes: each call is `<tool_call>`, a line with a JSON object, `</tool_call>`. Qwen 2.5 and 3, Hermes, SmolLM, …"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from typing_extensions import override

from converters.constraint import JsonValue
from converters.grammar.expr import Expr, lit, rep, seq
from converters.tools.codec import ArgumentStyle, Call, CallGrammar, Codec, Opening
from converters.tools.json_call import call_expr, read_calls, tool_lines, write_call
from converters.tools.reader import Reader, Reading
from converters.tools.writer import CallWriter

_BEGIN = "<tool_call>"
_END = "</tool_call>"
_KEY = "arguments"


class Hermes(Codec):
    """See the module."""

    name = "hermes"
    style: ArgumentStyle = "json"
    openings = (Opening.anywhere(_BEGIN),)
    markers = (_BEGIN, _END)
    result_role: Literal["user", "tool"] = "user"

    @override
    def calls(self, given: CallGrammar) -> Expr:
        call = seq(given.marker(_BEGIN), self.opened(_BEGIN, given))
        return seq(call, rep(seq(lit("\n"), call))) if given.is_parallel else call

    @override
    def opened(self, trigger: str, given: CallGrammar) -> Expr:
        return seq(lit("\n"), call_expr(given.tools, _KEY), lit("\n"), given.marker(_END))

    @override
    def read(self, opening: str, reader: Reader, writer: CallWriter) -> Reading[None]:
        yield from read_calls(reader, writer)
        yield from reader.skips(_END)

    @override
    def write_calls(self, calls: Sequence[Call]) -> str:
        return "\n".join(f"{_BEGIN}\n{write_call(call, _KEY)}\n{_END}" for call in calls)

    @override
    def write_result(self, name: str, result: str) -> str:
        return f"<tool_response>\n{result}\n</tool_response>"

    @override
    def describe_tools(self, tools: Sequence[Mapping[str, JsonValue]]) -> str:
        return (
            "# Tools\n\nThese functions can be called, one JSON description a line:\n"
            f"<tools>\n{tool_lines(tools)}\n</tools>\n\n"
            f"To call one, write its name and arguments as a JSON object between {_BEGIN} and {_END}:\n"
            f'{_BEGIN}\n{{"name": "...", "{_KEY}": {{...}}}}\n{_END}\n'
            "The result comes back between <tool_response> and </tool_response>."
        )
