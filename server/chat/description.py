"""A constraint in words for the model (`inject_schema`): what is enforced anyway is easier to write well when it is known."""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import assert_never

from converters.constraint import (
    AnyJson,
    Choice,
    Constraint,
    Gbnf,
    JsonSchema,
    Lark,
    Regex,
    StructuralTag,
    ToolCalls,
)
from server.chat.types import ChatPrompt, Message
from server.json_text import dump_json

MAX_CHARS = 4000
_MAX_OPTIONS = 50


def with_description(prompt: ChatPrompt, constraint: Constraint) -> ChatPrompt:
    """The prompt with the constraint's description at the end of its system message, or in one of its own."""
    text = describe(constraint)
    first, *rest = prompt.messages
    if first.role == "system":
        return replace(prompt, messages=(replace(first, content=f"{first.content}\n\n{text}"), *rest))
    return replace(prompt, messages=(Message("system", text), first, *rest))


def describe(constraint: Constraint) -> str:
    """One instruction; long sources are cut."""
    match constraint:
        case Choice(options=options):
            shown = " | ".join(options[:_MAX_OPTIONS])
            more = "" if len(options) <= _MAX_OPTIONS else f" | … ({len(options)} in all)"
            return f"Answer with exactly one of these and nothing else: {_cut(shown + more)}"
        case Regex(pattern=pattern):
            return f"Answer only with text that matches this regular expression as a whole: {_cut(pattern)}"
        case JsonSchema(schema=schema):
            return f"Answer only with JSON that validates against this JSON Schema: {_cut(dump_json(schema))}"
        case AnyJson(object_only=object_only):
            return f"Answer only with one JSON {'object' if object_only else 'value'}."
        case Gbnf(text=text) | Lark(text=text):
            return f"Answer only with text of this grammar:\n{_cut(text)}"
        case StructuralTag(spec=spec):
            return f"Keep to this structure, which says what may stand between which tags: {_cut(dump_json(spec))}"
        case ToolCalls(tools=tools):
            return f"Answer only by calling one of these tools: {', '.join(tool.name for tool in tools)}"
        case _:
            assert_never(constraint)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + " …"
