"""Tool calls in a lenient compile: keywords of the tools' schemas that can't be expressed are left out, and listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from converters.constraint import JsonSchema, JsonValue, ToolCalls
from converters.errors import LimitExceeded, UnsupportedFeature
from converters.grammar.expr import Grammar
from converters.grammar.graft import Embed
from converters.jsonschema.relax import without_culprit
from converters.limits import Budget
from converters.options import CompileOptions, Relaxation
from converters.tools.lower import tool_calls_grammar

MAX_RELAXATIONS = 64

Result = tuple[Grammar, tuple[Relaxation, ...], tuple[str, ...]]


def relaxed_tool_calls_grammar(constraint: ToolCalls, options: CompileOptions, budget: Budget, embed: Embed) -> Result:
    """The grammar of the calls, what was relaxed, and notes. Only `options.lenient` relaxes; raises ConversionErrors.

    A relaxation's pointer begins with the tool's place (`/1/parameters/…`), that of the content beside the calls doesn't.
    """
    relaxed: list[Relaxation] = []
    while True:
        try:
            grammar, notes = tool_calls_grammar(constraint, options, budget, embed)
            return grammar, tuple(relaxed), notes
        except (UnsupportedFeature, LimitExceeded) as error:  # noqa: PERF203 - each round leaves out another keyword
            wider = _without_culprit(constraint, error.path or "") if options.lenient else None
            if wider is None or len(relaxed) == MAX_RELAXATIONS:
                raise
            constraint, path = wider
            relaxed.append(Relaxation(path, error.reason))


def _without_culprit(constraint: ToolCalls, path: str) -> tuple[ToolCalls, str] | None:
    """The same calls without the keyword at `path`, and the keyword's pointer; None where no schema's keyword is at fault."""
    number, _, rest = path.removeprefix("/").partition("/")
    if not number.isdigit():
        return _without_culprit_in_content(constraint, path)
    field, _, inside = rest.partition("/")
    index = int(number)
    tool = constraint.tools[index]
    if field != "parameters" or not isinstance(tool.parameters, Mapping):
        return None
    wider = without_culprit(tool.parameters, f"/{inside}")
    if wider is None:
        return None
    tools = list(constraint.tools)
    tools[index] = replace(tool, parameters=cast(JsonValue, wider[0]))
    return replace(constraint, tools=tuple(tools)), f"/{number}/parameters{wider[1]}"


def _without_culprit_in_content(constraint: ToolCalls, path: str) -> tuple[ToolCalls, str] | None:
    content = constraint.content
    wider = without_culprit(content.schema, path) if isinstance(content, JsonSchema) else None
    if wider is None or not isinstance(content, JsonSchema):
        return None
    return replace(constraint, content=replace(content, schema=cast(JsonValue, wider[0]))), wider[1]
