"""OpenAI's tools and tool_choice -> the tools that may be called and whether they must be.

Function tools, custom tools with their grammar (the chat form), `allowed_tools`, and the legacy functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

from converters.constraint import FreeText, JsonValue, Lark, Regex, Tool, ToolInput
from server.chat.types import JsonObject, ToolUse
from server.errors import BadRequest, UnsupportedParameter, wrong_type
from server.json_text import dump_json
from server.settings import RequestLimits

Fields: TypeAlias = Mapping[str, tuple[str, JsonValue]]
"""A request's fields by name: path and value."""


@dataclass(frozen=True, slots=True)
class _Given:
    """One tool of a request: where its schema stands, and how the template sees it."""

    tool: Tool
    path: str
    shown: JsonObject


def decode_tools(fields: Fields, limits: RequestLimits) -> ToolUse | None:
    """How a request uses tools; None without tools, or under tool_choice "none". Raises BadRequest with the path."""
    given = _given_tools(fields, limits)
    path, choice = fields.get("tool_choice") or fields.get("function_call") or ("tool_choice", "auto")
    if choice not in ("auto", "none") and not given:
        _check_shape(choice, path)
        raise BadRequest(f"{path} needs tools, and the request has none", param=path)
    if choice == "none" or not given:
        return None
    use = ToolUse(
        tuple(entry.tool for entry in given),
        tuple(entry.path for entry in given),
        tuple(entry.shown for entry in given),
        is_parallel=fields.get("parallel_tool_calls", ("", True))[1] is not False,
        choice=path,
    )
    return use if choice == "auto" else _chosen(use, choice, path, "parallel_tool_calls" in fields)


# ---- the tools


def _given_tools(fields: Fields, limits: RequestLimits) -> list[_Given]:
    name = "tools" if "tools" in fields else "functions"
    path, value = fields.get(name, (name, []))
    if not isinstance(value, list):
        raise wrong_type(path, "a list", value)
    size = len(dump_json(value).encode("utf-8"))
    if size > limits.tools_bytes:
        message = f"{path} is too long: {size} bytes, where tools_bytes allows {limits.tools_bytes} bytes"
        raise BadRequest(message, param=path, code="limit_exceeded")
    if name == "functions":
        return [_function(entry, f"{path}[{i}]") for i, entry in enumerate(value)]
    return [_tool(entry, f"{path}[{i}]", limits) for i, entry in enumerate(value)]


def _tool(value: JsonValue, path: str, limits: RequestLimits) -> _Given:
    tool = _object(value, path)
    kind = tool.get("type")
    if kind == "function":
        return _function(tool.get("function"), f"{path}.function")
    if kind == "custom":
        return _custom(tool, path, limits)
    raise UnsupportedParameter(
        f"{path}.type {dump_json(kind)} is not supported: only function and custom are", param=f"{path}.type"
    )


def _function(value: JsonValue, path: str) -> _Given:
    function = _object(value, path)
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise wrong_type(f"{path}.parameters", "a JSON Schema object", parameters)
    return _Given(Tool(_name(function, path), parameters), path, {"type": "function", "function": function})


_INPUT_PARAMETERS: JsonObject = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def _custom(tool: JsonObject, path: str, limits: RequestLimits) -> _Given:
    """A custom tool takes one text; the template sees a function of one string."""
    path = f"{path}.custom"
    custom = _object(tool.get("custom"), path)
    name = _name(custom, path)
    shown = {"name": name, "description": custom.get("description") or "", "parameters": _INPUT_PARAMETERS}
    read_input = _input(custom.get("format"), f"{path}.format", limits)
    return _Given(Tool(name, input=read_input), path, {"type": "function", "function": shown})


def _input(value: JsonValue, path: str, limits: RequestLimits) -> ToolInput:
    if value is None:
        return FreeText()
    form = _object(value, path)
    if form.get("type") == "text":
        return FreeText()
    if form.get("type") != "grammar":
        raise BadRequest(f"{path}.type must be text or grammar", param=f"{path}.type")
    grammar, inner = form.get("grammar", form), f"{path}.grammar" if "grammar" in form else path
    grammar = _object(grammar, inner)
    syntax, text = grammar.get("syntax"), grammar.get("definition")
    if not isinstance(syntax, str) or syntax not in _SYNTAXES:
        raise BadRequest(f"{inner}.syntax must be one of {', '.join(_SYNTAXES)}", param=f"{inner}.syntax")
    if not isinstance(text, str):
        raise wrong_type(f"{inner}.definition", "a string", text)
    build, limit = _SYNTAXES[syntax]
    size, most = len(text.encode("utf-8")), cast(int, getattr(limits, limit))
    if size > most:
        message = f"{inner}.definition is too long: {size} bytes, where {limit} allows {most} bytes"
        raise BadRequest(message, param=f"{inner}.definition", code="limit_exceeded")
    return build(text)


_SYNTAXES: dict[str, tuple[Callable[[str], ToolInput], str]] = {
    "lark": (Lark, "grammar_bytes"),
    "regex": (Regex, "regex_bytes"),
}


def _object(value: JsonValue, path: str) -> JsonObject:
    if not isinstance(value, Mapping):
        raise wrong_type(path, "an object", value)
    return value


def _name(value: JsonObject, path: str) -> str:
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
        return _allowed(use, _object(choice.get("allowed_tools", choice), path), path)
    kept = _only(use, {_chosen_name(choice, path): path})
    return replace(kept, is_forced=True, is_parallel=use.is_parallel and says_parallel)  # by default one call


def _allowed(use: ToolUse, allowed: JsonObject, path: str) -> ToolUse:
    mode, names = allowed.get("mode"), allowed.get("tools")
    if mode not in ("auto", "required"):
        raise BadRequest(f"{path}: the mode of allowed_tools must be auto or required", param=path)
    if not isinstance(names, list) or not names:
        raise wrong_type(f"{path}: the tools of allowed_tools", "a non-empty list", names)
    kept = _only(use, {_chosen_name(_object(entry, path), path): path for entry in names})
    return replace(kept, is_forced=mode == "required")


def _only(use: ToolUse, names: Mapping[str, str]) -> ToolUse:
    known = {tool.name for tool in use.tools}
    for name, path in names.items():
        if name not in known:
            raise BadRequest(f"{path} names {name!r}, which is not in tools", param=path, code="unknown_tool")
    kept = [i for i, tool in enumerate(use.tools) if tool.name in names]
    return replace(use, tools=tuple(use.tools[i] for i in kept), paths=tuple(use.paths[i] for i in kept))


def _chosen_name(choice: JsonObject, path: str) -> str:
    """{"type": "function", "function": {"name": …}}, the same with custom, or the name directly (legacy, flat)."""
    inner = choice.get("function") or choice.get("custom") or choice
    name = inner.get("name") if isinstance(inner, Mapping) else None
    if not isinstance(name, str):
        raise BadRequest(f"{path} must name a tool", param=path)
    return name
