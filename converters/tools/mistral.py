"""Mistral: `[TOOL_CALLS]` and a JSON list of calls; the newer models write `[TOOL_CALLS]name[ARGS]{…}` for each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from typing_extensions import override

from converters.constraint import JsonValue
from converters.grammar.expr import Expr, alt, lit, rep, seq
from converters.tools.codec import ArgumentStyle, Call, CallGrammar, Codec, Opening
from converters.tools.json_call import HEAD, list_rest, read_calls, tool_lines, write_call
from converters.tools.reader import Mismatch, Reader, Reading
from converters.tools.writer import CallWriter

_BEGIN = "[TOOL_CALLS]"
_ARGS = "[ARGS]"
_ID = "[CALL_ID]"
_KEY = "arguments"


class Mistral(Codec):
    """One list of calls."""

    name = "mistral"
    style: ArgumentStyle = "json"
    openings = (Opening.anywhere(_BEGIN),)
    markers: tuple[str, ...] = (_BEGIN,)
    result_role: Literal["user", "tool"] = "user"

    @override
    def calls(self, given: CallGrammar) -> Expr:
        return seq(given.marker(_BEGIN), self.opened(_BEGIN, given))

    @override
    def opened(self, trigger: str, given: CallGrammar) -> Expr:
        return seq(lit("[" + HEAD), list_rest(given.tools, _KEY, given.is_parallel))

    @override
    def read(self, opening: str, reader: Reader, writer: CallWriter) -> Reading[None]:
        """Both forms: what a model of the other generation writes is a call too."""
        if (yield from reader.space()) in "[{":
            yield from read_calls(reader, writer)
        else:
            yield from _read_named(reader, writer)

    @override
    def write_calls(self, calls: Sequence[Call]) -> str:
        return f"{_BEGIN}[{', '.join(write_call(call, _KEY) for call in calls)}]"

    @override
    def write_result(self, name: str, result: str) -> str:
        return f"[TOOL_RESULTS]{result}[/TOOL_RESULTS]"

    @override
    def describe_tools(self, tools: Sequence[Mapping[str, JsonValue]]) -> str:
        return (
            f"Tools that can be called, one JSON description a line:\n"
            f"[AVAILABLE_TOOLS]\n{tool_lines(tools)}\n[/AVAILABLE_TOOLS]\n\n"
            f'To call tools, answer with {_BEGIN} and a JSON list: {_BEGIN}[{{"name": "...", "{_KEY}": {{...}}}}]'
        )


class MistralArgs(Mistral):
    """Each call has its own marker, its name stands bare."""

    name = "mistral_args"
    markers = (_BEGIN, _ARGS)

    @override
    def refuses(self, name: str) -> str | None:
        return None if "[" not in name and name == name.strip() else "it has a bracket, or space around it"

    @override
    def calls(self, given: CallGrammar) -> Expr:
        return rep(super().calls(given), 1, None if given.is_parallel else 1)

    @override
    def opened(self, trigger: str, given: CallGrammar) -> Expr:
        return alt(*(seq(lit(tool.name), given.marker(_ARGS), tool.arguments) for tool in given.tools))

    @override
    def write_calls(self, calls: Sequence[Call]) -> str:
        return "".join(f"{_BEGIN}{call.name}{_ARGS}{call.arguments}" for call in calls)

    @override
    def describe_tools(self, tools: Sequence[Mapping[str, JsonValue]]) -> str:
        return (
            f"Tools that can be called, one JSON description a line:\n"
            f"[AVAILABLE_TOOLS]\n{tool_lines(tools)}\n[/AVAILABLE_TOOLS]\n\n"
            f"To call one, answer with {_BEGIN}, its name, {_ARGS} and the arguments as a JSON object: "
            f"{_BEGIN}name{_ARGS}{{...}}"
        )


def _read_named(reader: Reader, writer: CallWriter) -> Reading[None]:
    name, stop = yield from reader.until((_ARGS, _ID), lambda text: writer.may_begin(text.rstrip()))
    if stop == _ID:
        yield from reader.until((_ARGS,), lambda text: "{" not in text)
    name = writer.check(name.rstrip())
    if (yield from reader.space()) != "{":
        raise Mismatch
    writer.start(name)
    yield from reader.json(writer.arguments)
    writer.end(is_whole=True)
