"""OpenAI's messages -> the internal ones. Whatever isn't text is refused by its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from converters.constraint import JsonValue
from server.api.openai_shape import content_text, parse_arguments
from server.chat.types import JsonObject, Message, ToolCallPart
from server.errors import BadRequest, wrong_type
from server.settings import RequestLimits
from server.values import missing, read_list, read_object, read_optional_text, read_text, read_word

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
        raise missing(path)
    if not isinstance(value, list):
        raise wrong_type(path, "a list of messages", value)
    if not value:
        raise BadRequest(f"{path} must not be empty", param=path)
    return tuple(_message(read_object(entry, f"{path}[{i}]"), limits, f"{path}[{i}]") for i, entry in enumerate(value))


def _message(value: JsonObject, limits: RequestLimits, path: str) -> Message:
    role = ROLES[read_word(value, "role", path, tuple(ROLES))]
    calls = _tool_calls(value, limits, path)
    content = value.get("content")
    if content is None:
        content = value.get("refusal")
    if content is None and role in ("system", "user"):
        raise missing(f"{path}.content")
    return Message(
        role,
        "" if content is None else content_text(content, f"{path}.content"),
        read_optional_text(value, "name", path),
        calls,
        read_optional_text(value, "tool_call_id", path),
        read_optional_text(value, "reasoning_content", path) or read_optional_text(value, "reasoning", path),
    )


def _tool_calls(value: JsonObject, limits: RequestLimits, path: str) -> tuple[ToolCallPart, ...]:
    calls = value.get("tool_calls")
    legacy = value.get("function_call")
    if calls is None:
        return (_function(None, legacy, limits, f"{path}.function_call"),) if legacy is not None else ()
    return tuple(_tool_call(read_object(call, at), limits, at) for call, at in read_list(calls, f"{path}.tool_calls"))


def _tool_call(value: JsonObject, limits: RequestLimits, path: str) -> ToolCallPart:
    return _function(read_optional_text(value, "id", path), value.get("function"), limits, f"{path}.function")


def _function(call_id: str | None, value: JsonValue, limits: RequestLimits, path: str) -> ToolCallPart:
    function = read_object(value, path)
    name, arguments = read_text(function, "name", path), function.get("arguments")
    if isinstance(arguments, str):
        arguments = parse_arguments(arguments, limits, f"{path}.arguments")
    elif arguments is not None and not isinstance(arguments, Mapping):
        raise wrong_type(f"{path}.arguments", "a JSON text", arguments)
    return ToolCallPart(call_id, name, arguments if arguments is not None else {})
