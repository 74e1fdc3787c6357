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
    from converters.constraint import Constraint, JsonValue

_DRAFTS = ("draft4", "draft6", "draft7", "2019-09", "2020-12")
_MAX_DEPTH = 200


def add_constraint_options(parser: argparse.ArgumentParser, *, required: bool) -> None:
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
    add_option(group, "--whitespace", choices=("default", "compact", "spaced", "flexible"), help="blanks between JSON tokens")
    add_option(group, "--whitespace-pattern", metavar="R", help="a regular expression for those blanks")
    add_option(group, "--draft", choices=_DRAFTS, help="the draft of a schema that names none")
    add_option(group, "--formats", choices=("assert", "annotation"), help="hold a schema's `format`s, or ignore them")
    add_option(group, "--lenient", is_switch=True, default=False, help="relax what can't be expressed, instead of refusing it")


def read_constraint(arguments: argparse.Namespace) -> Constraint | None:
    """What the options ask for. Raises UsageError for a file that can't be read."""
    from converters.constraint import AnyJson, Choice, Gbnf, JsonSchema, Lark, Regex

    if arguments.schema is not None:
        schema = JsonSchema(_read_schema(arguments.schema), default_draft=arguments.draft)
        return schema if arguments.formats is None else replace(schema, formats=arguments.formats)
    if arguments.regex is not None:
        return Regex(arguments.regex)
    if arguments.choice is not None:
        return Choice(_read_choice(arguments.choice))
    if arguments.grammar is not None:
        return Gbnf(_read_text("--grammar", arguments.grammar, is_text="::=" in arguments.grammar))
    if arguments.lark is not None:
        return Lark(_read_text("--lark", arguments.lark, is_text=":" in arguments.lark and not Path(arguments.lark).exists()))
    if arguments.json or arguments.json_object:
        return AnyJson(object_only=bool(arguments.json_object))
    return None


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
    from converters.constraint import AnyJson, Choice, Gbnf, JsonSchema, Lark, Regex

    fields: dict[str, Any] = {}
    match read_constraint(arguments):
        case None:
            return {}
        case JsonSchema():
            fields["guided_json"] = _read_text("--schema", arguments.schema, is_text=_is_schema(arguments.schema))
        case Regex(pattern):
            fields["guided_regex"] = pattern
        case Choice(options):
            fields["guided_choice"] = list(options)
        case Gbnf(text):
            fields["grammar"] = text
        case Lark(text):
            fields |= {"constraint": text, "constraint_type": "lark"}
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


def _is_schema(text: str) -> bool:
    return text.lstrip().startswith("{") or text.strip() in ("true", "false")


def _read_schema(source: str) -> JsonValue:
    from server.errors import BadRequest
    from server.json_text import parse_json_text

    text = _read_text("--schema", source, is_text=_is_schema(source))
    try:
        return parse_json_text(text, max_depth=_MAX_DEPTH, param="the schema")
    except BadRequest as error:
        raise UsageError(f"--schema: {error}") from error


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
