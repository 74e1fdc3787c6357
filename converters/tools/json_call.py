"""A call as a JSON object, `{"name": …, "arguments": {…}}`: what most formats wrap in markers. Grammar, parser and text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from converters.constraint import JsonValue
from converters.grammar.expr import Expr, alt, lit, rep, seq
from converters.tools.codec import Call, ToolGrammar
from converters.tools.custom import arguments_of_input
from converters.tools.reader import Mismatch, Reader, Reading
from converters.tools.writer import CallWriter

HEAD = '{"name": "'
COMPACT_HEAD = '{"name":"'

_ARGUMENT_KEYS = ("arguments", "parameters")
_OTHER_KEYS = ("type", "id", "index")


# ---- grammar


def call_expr(tools: Sequence[ToolGrammar], key: str) -> Expr:
    """A call of one of `tools`, its arguments under `key`."""
    return seq(lit(HEAD), call_rest(tools, key))


def call_rest(tools: Sequence[ToolGrammar], key: str) -> Expr:
    """What follows the head of a call."""
    return alt(*(seq(lit(f'{_spelled(tool.name)}", "{key}": '), tool.arguments, lit("}")) for tool in tools))


def list_rest(tools: Sequence[ToolGrammar], key: str, parallel: bool) -> Expr:
    """What follows the head of a list's first call."""
    more = rep(seq(lit(", "), call_expr(tools, key))) if parallel else lit("")
    return seq(call_rest(tools, key), more, lit("]"))


def _spelled(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)[1:-1]


# ---- text


def write_call(call: Call, key: str) -> str:
    """The call, as the grammar has it."""
    return f'{HEAD}{_spelled(call.name)}", "{key}": {call.arguments}}}'


def tool_lines(tools: Sequence[Mapping[str, JsonValue]]) -> str:
    """The tools, one JSON text a line."""
    return "\n".join(json.dumps(tool, ensure_ascii=False, default=float) for tool in tools)


# ---- parser


def read_calls(reader: Reader, writer: CallWriter, *, is_bare: bool = False) -> Reading[None]:
    """A call or a list of calls. `is_bare`: nothing marks it as a call, so keys that no call has are a Mismatch."""
    if (yield from reader.space()) != "[":
        return (yield from read_call(reader, writer, is_bare=is_bare))
    reader.pos += 1
    while True:
        yield from read_call(reader, writer, is_bare=is_bare)
        yield from reader.space()
        if (yield from reader.takes("]")):
            return
        yield from reader.expect(",")


def read_call(reader: Reader, writer: CallWriter, *, is_bare: bool = False) -> Reading[None]:
    """One call, whatever the order of its members."""
    call = _Members(reader, writer, is_bare)
    yield from reader.space()
    yield from call.read_object()
    call.finish()


class _Members:
    """The members of a call's object, as they come. Arguments before the name wait for it."""

    def __init__(self, reader: Reader, writer: CallWriter, is_bare: bool) -> None:
        self.reader = reader
        self.writer = writer
        self.is_bare = is_bare
        self.name: str | None = None
        self.waiting: str | None = None
        self.is_wrapped = False

    def read_object(self) -> Reading[None]:
        reader = self.reader
        yield from reader.expect("{")
        if (yield from reader.space()) == "}":
            raise Mismatch
        while True:
            key = yield from reader.json_string()
            yield from reader.space()
            yield from reader.expect(":")
            yield from self.read_member(key, (yield from reader.space()))
            yield from reader.space()
            if (yield from reader.takes("}")):
                return
            yield from reader.expect(",")

    def read_member(self, key: str, first: str) -> Reading[None]:
        """The value of `key`, which begins with `first`."""
        if key == "name" or (key == "function" and first == '"'):
            if self.name is not None:
                raise Mismatch
            self.name = self.writer.check((yield from self.reader.json_string()))
        elif key == "function" and first == "{" and not self.is_wrapped:
            self.is_wrapped = True
            yield from self.read_object()
        elif key in _ARGUMENT_KEYS:
            yield from self.read_arguments(first)
        elif self.is_bare and key not in _OTHER_KEYS:
            raise Mismatch
        else:
            yield from self.reader.json_text()

    def read_arguments(self, first: str) -> Reading[None]:
        if self.waiting is not None or self.writer.is_open:
            raise Mismatch
        if first == "{" and self.name is not None:
            self.writer.start(self.name)
            yield from self.reader.json(self.writer.arguments)
        else:
            self.waiting = yield from self.reader.json_text()

    def finish(self) -> None:
        """The object is over."""
        if self.name is None:
            raise Mismatch
        if not self.writer.is_open:
            text = self.arguments_text(self.name)
            self.writer.start(self.name)
            self.writer.arguments(text)
        self.writer.end(is_whole=True)

    def arguments_text(self, name: str) -> str:
        """Arguments that came before the name, or as a string (JSON once more, or a custom tool's input), or not at all."""
        if self.waiting is None:
            return "{}"
        value = _value(self.waiting)
        if isinstance(value, str):
            if self.writer.tools[name].input is not None:
                return arguments_of_input(value)
            self.waiting = value.strip()
            value = _value(self.waiting)
        if value is None:
            return "{}"
        if not isinstance(value, dict):
            raise Mismatch
        return self.waiting


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Mismatch from error
