"""OpenAI's messages and tools -> the internal ones. Whatever isn't text is refused by its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from converters.constraint import JsonValue
from server.chat.types import JsonObject, Message, ToolCallPart
from server.errors import BadRequest, UnsupportedParameter, wrong_type
from server.json_text import InvalidJson, dump_json, parse_json_text
from server.settings import RequestLimits

Role = Literal["system", "user", "assistant", "tool"]
ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


def decode_messages(value: JsonValue, limits: RequestLimits, path: str = "messages") -> tuple[Message, ...]:
    """A request's `messages`. Raises BadRequest with the path of what is wrong."""
    if value is None:
        raise BadRequest(f"{path} is missing", param=path)
    if not isinstance(value, list):
        raise wrong_type(path, "a list of messages", value)
    if not value:
        raise BadRequest(f"{path} must not be empty", param=path)
    return tuple(_message(entry, limits, f"{path}[{i}]") for i, entry in enumerate(value))


def _message(value: JsonValue, limits: RequestLimits, path: str) -> Message:
    if not isinstance(value, Mapping):
        raise wrong_type(path, "an object", value)
    role = _role(value, path)
    calls = _tool_calls(value, limits, path)
    content = value.get("content")
    if content is None:
        content = value.get("refusal")
    if content is None and role in ("system", "user"):
        raise BadRequest(f"{path}.content is missing", param=f"{path}.content")
    return Message(
        role,
        _content(content, f"{path}.content"),
        _optional_text(value, "name", path),
        calls,
        _optional_text(value, "tool_call_id", path),
        _optional_text(value, "reasoning_content", path) or _optional_text(value, "reasoning", path),
    )


def _role(value: JsonObject, path: str) -> Role:
    role = value.get("role")
    if role is None:
        raise BadRequest(f"{path}.role is missing", param=f"{path}.role")
    if not isinstance(role, str):
        raise wrong_type(f"{path}.role", "a string", role)
    if role not in ROLES:
        raise BadRequest(f"{path}.role must be one of {', '.join(ROLES)}, not {role!r}", param=f"{path}.role")
    return ROLES[role]


def _content(value: JsonValue, path: str) -> str:
    """Text, or the joined text of its parts."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong_type(path, "a string or a list of parts", value)
    return "\n".join(_part(part, f"{path}[{i}]") for i, part in enumerate(value))


def _part(value: JsonValue, path: str) -> str:
    if not isinstance(value, Mapping):
        raise wrong_type(path, "an object", value)
    kind = value.get("type")
    if kind not in ("text", "input_text", "output_text", "refusal"):
        raise UnsupportedParameter(f"{path}.type {dump_json(kind)} is not supported: only text parts are", param=f"{path}.type")
    name = "refusal" if kind == "refusal" else "text"
    text = value.get(name)
    if not isinstance(text, str):
        raise wrong_type(f"{path}.{name}", "a string", text)
    return text


def _optional_text(value: JsonObject, name: str, path: str) -> str | None:
    text = value.get(name)
    if text is not None and not isinstance(text, str):
        raise wrong_type(f"{path}.{name}", "a string", text)
    return text


def _tool_calls(value: JsonObject, limits: RequestLimits, path: str) -> tuple[ToolCallPart, ...]:
    calls = value.get("tool_calls")
    legacy = value.get("function_call")
    if calls is None:
        return (_function(None, legacy, limits, f"{path}.function_call"),) if legacy is not None else ()
    if not isinstance(calls, list):
        raise wrong_type(f"{path}.tool_calls", "a list", calls)
    return tuple(_tool_call(call, limits, f"{path}.tool_calls[{i}]") for i, call in enumerate(calls))


def _tool_call(value: JsonValue, limits: RequestLimits, path: str) -> ToolCallPart:
    if not isinstance(value, Mapping):
        raise wrong_type(path, "an object", value)
    return _function(_optional_text(value, "id", path), value.get("function"), limits, f"{path}.function")


def _function(call_id: str | None, value: JsonValue, limits: RequestLimits, path: str) -> ToolCallPart:
    if not isinstance(value, Mapping):
        raise wrong_type(path, "an object", value)
    name = value.get("name")
    if not isinstance(name, str):
        raise wrong_type(f"{path}.name", "a string", name)
    arguments = value.get("arguments")
    if isinstance(arguments, str):
        arguments = _parsed(arguments, limits, f"{path}.arguments")
    elif arguments is not None and not isinstance(arguments, Mapping):
        raise wrong_type(f"{path}.arguments", "a JSON text", arguments)
    return ToolCallPart(call_id, name, arguments if arguments is not None else {})


def _parsed(text: str, limits: RequestLimits, path: str) -> JsonValue:
    """Templates want the arguments as a value; a model's broken text stays text."""
    try:
        return parse_json_text(text, max_depth=limits.json_depth, param=path)
    except InvalidJson:
        return text


# ---- tools


def decode_tools(fields: Mapping[str, tuple[str, JsonValue]], limits: RequestLimits) -> tuple[JsonObject, ...]:
    """The tools that the template shows, in OpenAI's form; () under tool_choice "none".

    Forcing a call is not offered yet and refused by name: a constraint is never lost in silence.
    """
    tools = _tool_list(fields, limits)
    path, choice = fields.get("tool_choice") or fields.get("function_call") or ("tool_choice", "auto")
    if choice == "none":
        return ()
    if choice == "auto":
        return tools
    _check_choice(choice, path, tools)
    raise UnsupportedParameter(f"{path} {dump_json(choice)} is not supported: only auto and none are", param=path)


def _tool_list(fields: Mapping[str, tuple[str, JsonValue]], limits: RequestLimits) -> tuple[JsonObject, ...]:
    if "tools" in fields:
        path, value = fields["tools"]
        tools = _list(value, path)
        for i, tool in enumerate(tools):
            _check_tool(tool, f"{path}[{i}]")
    elif "functions" in fields:
        path, value = fields["functions"]
        functions = _list(value, path)
        for i, function in enumerate(functions):
            _check_function(function, f"{path}[{i}]")
        tools = [{"type": "function", "function": function} for function in functions]
    else:
        return ()
    size = len(dump_json(tools).encode("utf-8"))
    if size > limits.tools_bytes:
        message = f"{path} is too long: {size} bytes, where tools_bytes allows {limits.tools_bytes} bytes"
        raise BadRequest(message, param=path, code="limit_exceeded")
    return tuple(cast(list[JsonObject], tools))


def _list(value: JsonValue, path: str) -> list[JsonValue]:
    if not isinstance(value, list):
        raise wrong_type(path, "a list", value)
    return value


def _check_tool(value: JsonValue, path: str) -> None:
    if not isinstance(value, Mapping):
        raise wrong_type(path, "an object", value)
    if value.get("type") != "function":
        raise UnsupportedParameter(
            f"{path}.type {dump_json(value.get('type'))} is not supported: only function is", param=f"{path}.type"
        )
    _check_function(value.get("function"), f"{path}.function")


def _check_function(value: JsonValue, path: str) -> None:
    if not isinstance(value, Mapping):
        raise wrong_type(path, "an object", value)
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise wrong_type(f"{path}.name", "a non-empty string", name)
    parameters = value.get("parameters")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise wrong_type(f"{path}.parameters", "a JSON Schema object", parameters)


def _check_choice(choice: JsonValue, path: str, tools: tuple[JsonObject, ...]) -> None:
    """Errors that come before "not supported": a shape that means nothing, a name that isn't there, no tools at all."""
    if isinstance(choice, str):
        if choice != "required":
            raise BadRequest(f"{path} must be none, auto, required or an object, not {choice!r}", param=path)
    elif not isinstance(choice, Mapping):
        raise wrong_type(path, "a string or an object", choice)
    if not tools:
        raise BadRequest(f"{path} needs tools, and the request has none", param=path)
    name = _chosen_name(choice)
    known = {cast(JsonObject, tool["function"])["name"] for tool in tools}
    if name is not None and name not in known:
        raise BadRequest(f"{path} names {name!r}, which is not in tools", param=path)


def _chosen_name(choice: JsonValue) -> JsonValue:
    if not isinstance(choice, Mapping):
        return None
    function = choice.get("function")
    return function.get("name") if isinstance(function, Mapping) else choice.get("name")
