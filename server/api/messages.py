"""OpenAI's messages -> the internal ones. Whatever isn't text is refused by its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from converters.constraint import JsonValue
from server.api.openai_shape import content_text, parse_arguments
from server.chat.types import JsonObject, Message, ToolCallPart
from server.errors import BadRequest, wrong_type
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
        "" if content is None else content_text(content, f"{path}.content"),
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
        arguments = parse_arguments(arguments, limits, f"{path}.arguments")
    elif arguments is not None and not isinstance(arguments, Mapping):
        raise wrong_type(f"{path}.arguments", "a JSON text", arguments)
    return ToolCallPart(call_id, name, arguments if arguments is not None else {})
