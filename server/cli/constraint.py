"""The options that say what an output must look like, as a Constraint for the compiler and as fields of a request."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from server.cli.error import UsageError
from server.cli.options import add_option

if TYPE_CHECKING:
    from converters.compile import CompileOptions
    from converters.constraint import Constraint, JsonValue, Tool

_DRAFTS = ("draft4", "draft6", "draft7", "2019-09", "2020-12")
_MAX_DEPTH = 200


def add_constraint_options(parser: argparse.ArgumentParser, *, required: bool, takes_tools: bool = False) -> None:
    """Exactly one of the kinds (at most one unless `required`), and how it is compiled."""
    group = parser.add_argument_group("constraint", "F is a file, - for stdin, or the text itself")
    kinds = group.add_mutually_exclusive_group(required=required)
    kinds.add_argument("--schema", metavar="F", help="a JSON text that validates against this JSON Schema")
    kinds.add_argument("--regex", metavar="R", help="a full match of this regular expression")
    kinds.add_argument("--choice", metavar="A,B", help="one of these strings (a JSON array where one has a comma)")
    kinds.add_argument("--grammar", "--gbnf", metavar="F", help="a sentence of this GBNF grammar")
    kinds.add_argument("--lark", metavar="F", help="a sentence of this Lark grammar")
    kinds.add_argument("--json", action="store_true", help="any JSON value")
    kinds.add_argument("--json-object", action="store_true", help="any JSON object")
    kinds.add_argument("--structural-tag", metavar="F", help="free text with tagged parts, as this JSON object says")
    if takes_tools:
        kinds.add_argument("--tools", metavar="F", help="calls of these tools, a JSON array as in OpenAI's API")
        add_option(group, "--codec", default="hermes", metavar="NAME", help="the format of those calls")
        add_option(group, "--parallel-tool-calls", is_switch=True, default=True, help="one call or more, or exactly one")
    add_option(group, "--whitespace", choices=("default", "compact", "spaced", "flexible"), help="blanks between JSON tokens")
    add_option(group, "--whitespace-pattern", metavar="R", help="a regular expression for those blanks")
    add_option(group, "--draft", choices=_DRAFTS, help="the draft of a schema that names none")
    add_option(group, "--formats", choices=("assert", "annotation"), help="hold a schema's `format`s, or ignore them")
    add_option(group, "--lenient", is_switch=True, default=False, help="relax what can't be expressed, instead of refusing it")


def read_constraint(arguments: argparse.Namespace) -> Constraint | None:
    """What the options ask for. Raises UsageError for a file that can't be read."""
    from converters.constraint import AnyJson, Choice, Gbnf, JsonSchema, Lark, Regex, StructuralTag, ToolCalls

    if arguments.schema is not None:
        schema = JsonSchema(_read_json("--schema", arguments.schema), default_draft=arguments.draft)
        return schema if arguments.formats is None else replace(schema, formats=arguments.formats)
    if arguments.regex is not None:
        return Regex(arguments.regex)
    if arguments.choice is not None:
        return Choice(_read_choice(arguments.choice))
    if arguments.grammar is not None:
        return Gbnf(_read_text("--grammar", arguments.grammar, is_text="::=" in arguments.grammar))
    if arguments.lark is not None:
        return Lark(_read_text("--lark", arguments.lark, is_text=":" in arguments.lark and not Path(arguments.lark).exists()))
    if arguments.structural_tag is not None:
        return StructuralTag(_read_json("--structural-tag", arguments.structural_tag))
    if getattr(arguments, "tools", None) is not None:
        tools = _read_tools(_read_json("--tools", arguments.tools))
        return ToolCalls(tools, arguments.codec, parallel=arguments.parallel_tool_calls)
    if arguments.json or arguments.json_object:
        return AnyJson(object_only=bool(arguments.json_object))
    return None


def _read_tools(value: JsonValue) -> tuple[Tool, ...]:
    """OpenAI's list of tools, each with or without the wrapping `function`."""
    from converters.constraint import Tool

    entries = value if isinstance(value, list) else [value]
    tools = []
    for number, entry in enumerate(entries):
        function = entry.get("function", entry) if isinstance(entry, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str) or not name:
            raise UsageError(f"--tools: tools[{number}] has no name")
        tools.append(Tool(name, function.get("parameters")))
    return tuple(tools)


def read_options(arguments: argparse.Namespace) -> CompileOptions:
    """How to compile it."""
    from converters.compile import CompileOptions
    from server.cli.options import make_settings

    options = CompileOptions(lenient=arguments.lenient, limits=make_settings(arguments).compile_limits)
    if arguments.whitespace is not None:
        options = replace(options, whitespace=arguments.whitespace)
    return replace(options, whitespace_pattern=arguments.whitespace_pattern)


def request_fields(arguments: argparse.Namespace) -> dict[str, Any]:
    """The same as fields of a request: texts travel as they were read."""
    from converters.constraint import AnyJson, Choice, Gbnf, JsonSchema, Lark, Regex, StructuralTag

    fields: dict[str, Any] = {}
    match read_constraint(arguments):
        case None:
            return {}
        case JsonSchema():
            fields["guided_json"] = _read_text("--schema", arguments.schema, is_text=_is_json(arguments.schema))
        case Regex(pattern):
            fields["guided_regex"] = pattern
        case Choice(options):
            fields["guided_choice"] = list(options)
        case Gbnf(text):
            fields["grammar"] = text
        case Lark(text):
            fields |= {"constraint": text, "constraint_type": "lark"}
        case StructuralTag():
            text = _read_text("--structural-tag", arguments.structural_tag, is_text=_is_json(arguments.structural_tag))
            fields["structured_outputs"] = {"structural_tag": json.loads(text)}
        case AnyJson(object_only=True):
            fields["response_format"] = {"type": "json_object"}
        case AnyJson():
            fields["guided_json"] = "{}"
        case other:
            raise UsageError(f"{type(other).__name__} can't be sent")
    names = {
        "whitespace": "whitespace",
        "whitespace_pattern": "whitespace_pattern",
        "default_draft": "draft",
        "formats": "formats",
    }
    fields |= {field: getattr(arguments, option) for field, option in names.items() if getattr(arguments, option) is not None}
    return {**fields, "lenient": True} if arguments.lenient else fields


def _is_json(text: str) -> bool:
    return text.lstrip().startswith(("{", "[")) or text.strip() in ("true", "false")


def _read_json(flag: str, source: str) -> JsonValue:
    """The value of a JSON text, digits kept. Raises UsageError."""
    from server.errors import BadRequest
    from server.json_text import parse_json_text

    text = _read_text(flag, source, is_text=_is_json(source))
    try:
        return parse_json_text(text, max_depth=_MAX_DEPTH, param="the text")
    except BadRequest as error:
        raise UsageError(f"{flag}: {error}") from error


def _read_choice(text: str) -> tuple[str, ...]:
    if not text.startswith("["):
        return tuple(text.split(","))
    try:
        options = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--choice: not a JSON array: {error}") from error
    if not all(isinstance(option, str) for option in options):
        raise UsageError("--choice: a JSON array of strings is needed")
    return tuple(options)


def uses_stdin(arguments: argparse.Namespace) -> bool:
    """True when the constraint itself is read from stdin."""
    return "-" in [getattr(arguments, name, None) for name in ("schema", "grammar", "lark", "structural_tag", "tools")]


_STDIN: list[str] = []


def _read_text(flag: str, source: str, *, is_text: bool) -> str:
    """What a file option means: the text itself, stdin, or a file."""
    if is_text:
        return source
    if source == "-":
        return read_stdin(flag)
    try:
        return Path(source).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise UsageError(f"{flag} {source}: {reason}") from error


def read_stdin(flag: str) -> str:
    """All of stdin, read once however often it is asked for. Raises UsageError when it is not UTF-8."""
    if not _STDIN:
        try:
            _STDIN.append(sys.stdin.buffer.read().decode("utf-8"))
        except UnicodeDecodeError as error:
            raise UsageError(f"{flag}: stdin is not UTF-8") from error
    return _STDIN[0]
