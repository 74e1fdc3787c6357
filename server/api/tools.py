"""Tools and the choice among them -> the tools that may be called and whether they must be.

`decode_tools` reads OpenAI's chat form (which Ollama's clients send too): function tools, custom tools with their grammar,
`allowed_tools`, the legacy functions. The pieces are every dialect's; `tool` and `choose` take the flat form of Responses too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from converters.constraint import FreeText, JsonValue, Lark, Regex, Tool, ToolInput
from server.api.fields import FieldMap
from server.chat.tools import function_of_custom
from server.chat.types import JsonObject, ToolPlace, ToolUse
from server.constraints import check_json_size, check_size, merge_extra_body, read_options, whitespace_param
from server.errors import BadRequest, UnsupportedParameter, wrong_type
from server.json_text import dump_json
from server.settings import RequestLimits
from server.values import read_object, read_text


@dataclass(frozen=True, slots=True)
class GivenTool:
    """One tool of a request: `path` is the place of its schema's owner, `shown` how the template sees it (OpenAI's form).

    `schema_name` and `input_name`: what its schema and a custom tool's grammar are called below `path`.
    """

    tool: Tool
    path: str
    shown: JsonObject
    schema_name: str = "parameters"
    input_name: str = "format.grammar.definition"


def decode_tool_use(body: JsonObject, limits: RequestLimits) -> ToolUse | None:
    """How the request uses tools, its options for compiling among it. Raises BadRequest naming the field."""
    use = decode_tools(merge_extra_body(body), limits)
    return None if use is None else with_options(use, body, limits)


def with_options(use: ToolUse, body: JsonObject, limits: RequestLimits) -> ToolUse:
    """The same, compiled as the request `body` wants its constraints compiled. Raises BadRequest."""
    return replace(use, options=read_options(body, limits), whitespace_param=whitespace_param(body, limits))


def decode_tools(fields: FieldMap, limits: RequestLimits) -> ToolUse | None:
    """How a request uses tools; None without tools, or under tool_choice "none". Raises BadRequest with the path."""
    name, read = ("tools", wrapped_tool) if "tools" in fields else ("functions", _legacy_function)
    return choose([read(value, path, limits) for value, path in listed_tools(fields, name, limits)], fields)


def choose(given: Sequence[GivenTool], fields: FieldMap) -> ToolUse | None:
    """How these tools are used by `tool_choice` and `parallel_tool_calls`; None as above. Raises BadRequest with the path."""
    path, choice = fields.get("tool_choice") or fields.get("function_call") or ("tool_choice", "auto")
    if choice not in ("auto", "none") and not given:
        _check_shape(choice, path)
        raise BadRequest(f"{path} needs tools, and the request has none", param=path)
    if choice == "none" or not given:
        return None
    use = use_of(given, path, is_parallel=_is_parallel(fields))
    return use if choice == "auto" else _chosen(use, choice, path, "parallel_tool_calls" in fields)


def _is_parallel(fields: FieldMap) -> bool:
    path, value = fields.get("parallel_tool_calls", ("parallel_tool_calls", True))
    if not isinstance(value, bool):
        raise wrong_type(path, "a boolean", value)
    return value


def use_of(given: Sequence[GivenTool], choice: str, *, is_parallel: bool = True) -> ToolUse:
    """These tools, free to be called or not. `choice` is the path of the field that says how to use them."""
    return ToolUse(
        tuple(entry.tool for entry in given),
        tuple(ToolPlace(entry.path, entry.schema_name, entry.input_name) for entry in given),
        tuple(entry.shown for entry in given),
        is_parallel=is_parallel,
        choice=choice,
    )


def only(use: ToolUse, names: Mapping[str, str]) -> ToolUse:
    """Only the tools of these names may be called, all are shown. `names`: to the path of the field that names it.

    Raises BadRequest for a name that no tool has.
    """
    known = {tool.name for tool in use.tools}
    for name, path in names.items():
        if name not in known:
            raise BadRequest(f"{path} names {name!r}, which is not in tools", param=path, code="unknown_tool")
    kept = [i for i, tool in enumerate(use.tools) if tool.name in names]
    return replace(use, tools=tuple(use.tools[i] for i in kept), places=tuple(use.places[i] for i in kept))


# ---- the tools


def listed_tools(fields: FieldMap, name: str, limits: RequestLimits) -> list[tuple[JsonObject, str]]:
    """The tools of the field `name` with their paths, none where it is absent. Raises BadRequest."""
    path, value = fields.get(name, (name, []))
    if not isinstance(value, list):
        raise wrong_type(path, "a list", value)
    check_json_size(value, path, limits.tools_bytes, "tools_bytes")
    return [(read_object(entry, f"{path}[{i}]"), f"{path}[{i}]") for i, entry in enumerate(value)]


def wrapped_tool(value: JsonObject, path: str, limits: RequestLimits) -> GivenTool:
    """A tool of a chat: {"type": "function", "function": {…}}, or the same with custom. Raises BadRequest with the path."""
    kind = value.get("type")
    if kind == "function":
        return _function(value.get("function"), f"{path}.function")
    if kind == "custom":
        return custom_tool(read_object(value.get("custom"), f"{path}.custom"), f"{path}.custom", limits)
    raise _unsupported(kind, path, "only function and custom are")


def tool(value: JsonObject, path: str, limits: RequestLimits) -> GivenTool:
    """A tool with name and parameters beside its type (the flat form), or wrapped as in a chat. Raises BadRequest."""
    kind = value.get("type")
    if isinstance(kind, str) and kind in value:
        return wrapped_tool(value, path, limits)
    if kind == "function":
        return _function({name: value[name] for name in _FUNCTION_FIELDS if value.get(name) is not None}, path)
    if kind == "custom":
        return custom_tool(value, path, limits)
    raise _unsupported(kind, path, "this server runs no tools itself; functions and custom tools are")


_FUNCTION_FIELDS = ("name", "description", "parameters", "strict")


def _unsupported(kind: JsonValue, path: str, supported: str) -> UnsupportedParameter:
    return UnsupportedParameter(f"{path}.type {dump_json(kind)} is not supported: {supported}", param=f"{path}.type")


def _legacy_function(value: JsonObject, path: str, _limits: RequestLimits) -> GivenTool:
    return _function(value, path)


def _function(value: JsonValue, path: str) -> GivenTool:
    function = read_object(value, path)
    parameters = function.get("parameters")
    check_parameters(parameters, f"{path}.parameters")
    return GivenTool(Tool(tool_name(function, path), parameters), path, {"type": "function", "function": function})


def check_parameters(value: JsonValue, path: str) -> None:
    """Raises BadRequest unless `value` is what a tool's schema may be: an object, or absent."""
    if value is not None and not isinstance(value, Mapping):
        raise wrong_type(path, "a JSON Schema object", value)


def custom_tool(value: JsonObject, path: str, limits: RequestLimits) -> GivenTool:
    """A custom tool, {"name", "description", "format"}: it takes one text; the template sees a function of one string.

    The grammar stands in `format.grammar` (the chat form) or in `format` itself (the flat form of Responses).
    """
    name = tool_name(value, path)
    given = _input(value.get("format"), f"{path}.format", limits)
    description = read_text(value, "description", path, "")
    shown = cast(JsonObject, function_of_custom(name, description, given))
    form = value.get("format")
    is_flat = isinstance(form, Mapping) and "grammar" not in form
    input_name = "format.definition" if is_flat else "format.grammar.definition"
    return GivenTool(Tool(name, input=given), path, shown, input_name=input_name)


def _input(value: JsonValue, path: str, limits: RequestLimits) -> ToolInput:
    if value is None:
        return FreeText()
    form = read_object(value, path)
    if form.get("type") == "text":
        return FreeText()
    if form.get("type") != "grammar":
        raise BadRequest(f"{path}.type must be text or grammar", param=f"{path}.type")
    grammar, inner = form.get("grammar", form), f"{path}.grammar" if "grammar" in form else path
    grammar = read_object(grammar, inner)
    syntax = grammar.get("syntax")
    if not isinstance(syntax, str) or syntax not in _SYNTAXES:
        raise BadRequest(f"{inner}.syntax must be one of {', '.join(_SYNTAXES)}", param=f"{inner}.syntax")
    text = read_text(grammar, "definition", inner)
    build, limit = _SYNTAXES[syntax]
    check_size(text, f"{inner}.definition", cast(int, getattr(limits, limit)), limit)
    return build(text)


_SYNTAXES: dict[str, tuple[Callable[[str], ToolInput], str]] = {
    "lark": (Lark, "grammar_bytes"),
    "regex": (Regex, "regex_bytes"),
}


def tool_name(value: JsonObject, path: str) -> str:
    """The name of the tool or function `value`. Raises BadRequest."""
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise wrong_type(f"{path}.name", "a non-empty string", name)
    return name


# ---- the choice


def _check_shape(choice: JsonValue, path: str) -> None:
    if isinstance(choice, str):
        if choice != "required":
            raise BadRequest(f"{path} must be none, auto, required or an object, not {choice!r}", param=path)
    elif not isinstance(choice, Mapping):
        raise wrong_type(path, "a string or an object", choice)


def _chosen(use: ToolUse, choice: JsonValue, path: str, says_parallel: bool) -> ToolUse:
    """required, one tool by name, or some of them by `allowed_tools`."""
    _check_shape(choice, path)
    if not isinstance(choice, Mapping):
        return replace(use, is_forced=True)
    if choice.get("type") == "allowed_tools":
        return _allowed(use, read_object(choice.get("allowed_tools", choice), path), path)
    kept = only(use, {_chosen_name(choice, path): path})
    return replace(kept, is_forced=True, is_parallel=use.is_parallel and says_parallel)  # by default one call


def _allowed(use: ToolUse, allowed: JsonObject, path: str) -> ToolUse:
    mode, names = allowed.get("mode"), allowed.get("tools")
    if mode not in ("auto", "required"):
        raise BadRequest(f"{path}: the mode of allowed_tools must be auto or required", param=path)
    if not isinstance(names, list) or not names:
        raise wrong_type(f"{path}: the tools of allowed_tools", "a non-empty list", names)
    kept = only(use, {_chosen_name(read_object(entry, path), path): path for entry in names})
    return replace(kept, is_forced=mode == "required")


def _chosen_name(choice: JsonObject, path: str) -> str:
    """{"type": "function", "function": {"name": …}}, the same with custom, or the name directly (legacy, flat)."""
    if "type" in choice and choice["type"] not in ("function", "custom"):
        raise _unsupported(choice["type"], path, "function, custom and allowed_tools are")
    inner = choice.get("function") or choice.get("custom") or choice
    name = inner.get("name") if isinstance(inner, Mapping) else None
    if not isinstance(name, str):
        raise BadRequest(f"{path} must name a tool", param=path)
    return name
