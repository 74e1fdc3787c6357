"""Qwen3-Coder: a call is XML, each parameter an element; strings stand in it as they are, other values as JSON.

    <tool_call>
    <function=name>
    <parameter=key>
    value
    </parameter>
    </function>
    </tool_call>

Which values are strings is told by the tool's schema (`text_keys`); grammar and parser ask the same function.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal

from typing_extensions import override

from converters.constraint import JsonValue, Tool
from converters.grammar.expr import Expr, alt, lit, rep, seq
from converters.tools.codec import ArgumentStyle, Call, CallGrammar, Codec, Opening, ToolGrammar
from converters.tools.custom import KEY as INPUT
from converters.tools.json_call import read_calls, tool_lines
from converters.tools.parameters import text_keys
from converters.tools.reader import Reader, Reading, TextEnded, n_held
from converters.tools.scanner import JsonScanner
from converters.tools.writer import CallWriter

_BEGIN = "<tool_call>"
_END = "</tool_call>"
_FUNCTION = "<function="
_FUNCTION_END = "</function>"
_PARAMETER = "<parameter="
CLOSING = "</parameter>"
_WORDS = {"True": "true", "False": "false", "None": "null"}


class Qwen3Coder(Codec):
    """See the module."""

    name = "qwen3_coder"
    style: ArgumentStyle = "xml"
    openings = (Opening.anywhere(_BEGIN), Opening.anywhere(_FUNCTION))
    markers = (_BEGIN, _END)
    result_role: Literal["user", "tool"] = "user"

    @override
    def refuses(self, name: str) -> str | None:
        return "it has a '>' or a line end" if set(name) & set(">\n") else None

    @override
    def calls(self, given: CallGrammar) -> Expr:
        call = seq(given.marker(_BEGIN), self.opened(_BEGIN, given))
        return seq(call, rep(seq(lit("\n"), call))) if given.is_parallel else call

    @override
    def opened(self, trigger: str, given: CallGrammar) -> Expr:
        if trigger == _FUNCTION:
            return seq(_functions(given.tools), lit(_FUNCTION_END))
        return seq(lit("\n" + _FUNCTION), _functions(given.tools), lit(_FUNCTION_END + "\n"), given.marker(_END))

    @override
    def read(self, opening: str, reader: Reader, writer: CallWriter) -> Reading[None]:
        if opening == _BEGIN:
            if (yield from reader.space()) in "[{":
                yield from read_calls(reader, writer)
                yield from reader.skips(_END)
                return
            yield from reader.expect(_FUNCTION)
        yield from _read_function(reader, writer)
        yield from reader.skips(_END)

    @override
    def write_calls(self, calls: Sequence[Call], tools: Sequence[Tool] = ()) -> str:
        """`tools` tell which values are strings in the schema; without them, all JSON strings are taken for such."""
        keys = {tool.name: text_keys(tool) for tool in tools}
        return "\n".join(f"{_BEGIN}\n{_write_call(call, keys.get(call.name))}\n{_END}" for call in calls)

    @override
    def write_result(self, name: str, result: str) -> str:
        return f"<tool_response>\n{result}\n</tool_response>"

    @override
    def describe_tools(self, tools: Sequence[Mapping[str, JsonValue]]) -> str:
        return (
            "# Tools\n\nThese functions can be called, one JSON description a line:\n"
            f"<tools>\n{tool_lines(tools)}\n</tools>\n\n"
            "To call one, answer in this form, with one parameter element for each argument:\n"
            f"{_BEGIN}\n{_FUNCTION}name>\n{_PARAMETER}key>\nvalue\n{CLOSING}\n{_FUNCTION_END}\n{_END}\n"
            "The result comes back between <tool_response> and </tool_response>."
        )


# ---- grammar


def _functions(tools: Sequence[ToolGrammar]) -> Expr:
    return alt(*(seq(lit(f"{tool.name}>\n"), tool.arguments) for tool in tools))


def parameter_expr(key: Expr, value: Expr) -> Expr:
    """One parameter."""
    return seq(lit(_PARAMETER), key, lit(">\n"), value, lit(f"\n{CLOSING}\n"))


# ---- text


def _write_call(call: Call, keys: frozenset[str] | None) -> str:
    arguments = _read_object(call.arguments)
    parts = [
        f"{_PARAMETER}{key}>\n{_write_value(value, keys is None or key in keys)}\n{CLOSING}\n"
        for key, value in arguments.items()
    ]
    return f"{_FUNCTION}{call.name}>\n{''.join(parts)}{_FUNCTION_END}"


def _read_object(text: str) -> Mapping[str, object]:
    """Arguments of a history, which a client may have sent in any form."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {INPUT: text}


def _write_value(value: object, is_text: bool) -> str:
    return value if isinstance(value, str) and is_text else json.dumps(value, ensure_ascii=False, default=float)


# ---- parser


def _read_function(reader: Reader, writer: CallWriter) -> Reading[None]:
    name, _ = yield from reader.until((">",), lambda text: writer.may_begin(text.rstrip()))
    tool = writer.start(name if name in writer.tools else name.rstrip())
    texts = text_keys(tool)
    separator = "{"
    while True:
        yield from reader.space()
        if (yield from reader.one_of(_FUNCTION_END, _PARAMETER)) == _FUNCTION_END:
            break
        key, _ = yield from reader.until((">",), lambda text: "\n" not in text)
        yield from reader.takes("\n")
        writer.arguments(f"{separator}{json.dumps(key, ensure_ascii=False)}: ")
        yield from (_read_text(reader, writer) if key in texts else _read_value(reader, writer))
        separator = ", "
    writer.arguments("{}" if separator == "{" else "}")
    writer.end(is_whole=True)


def _read_text(reader: Reader, writer: CallWriter) -> Reading[None]:
    """A string parameter, as a JSON string; all but what may be its end goes out as it comes."""
    writer.arguments('"')
    stops = (f"\n{CLOSING}", CLOSING)
    while True:
        found = [(at, stop) for stop in stops if (at := reader.text.find(stop, reader.pos)) >= 0]
        end = min(found)[0] if found else len(reader.text) - n_held(reader.rest, stops)
        writer.arguments(json.dumps(reader.text[reader.pos : end], ensure_ascii=False)[1:-1])
        reader.pos = end
        if found:
            reader.pos += len(min(found)[1])
            writer.arguments('"')
            return
        reader.forget()
        if not (yield from reader.more()):
            raise TextEnded


def _read_value(reader: Reader, writer: CallWriter) -> Reading[None]:
    """A parameter of another type: JSON up to the first closing tag that doesn't stand inside one of its strings; else text."""
    scanner, scanned = JsonScanner(), reader.pos
    while True:
        at = reader.text.find(CLOSING, scanned)
        if at < 0:
            if not (yield from reader.more()):
                raise TextEnded
            continue
        scanner.feed(reader.text[scanned:at])
        if not scanner.is_in_string:
            break
        scanned = at
        scanner.feed(CLOSING)
        scanned += len(CLOSING)
    text = reader.text[reader.pos : at].removesuffix("\n")
    reader.pos = at + len(CLOSING)
    writer.arguments(_json_of(text))


def _json_of(text: str) -> str:
    """The JSON text that is meant: itself if it is JSON, a word of Python's, else a string."""
    bare = text.strip()
    scanner = JsonScanner()
    if scanner.feed(bare) == len(bare) and scanner.may_be_done:
        return bare
    return _WORDS.get(bare) or json.dumps(text, ensure_ascii=False)
