"""Anthropic's system prompt and messages, made of content blocks -> the internal messages.

A turn may be several messages here: the results of calls, then what the user says. Whatever isn't text is refused by its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from converters.constraint import JsonValue
from server.api.fields import FieldMap
from server.chat.prompt import join_turns
from server.chat.types import JsonObject, Message, ToolCallPart
from server.errors import BadRequest, UnsupportedParameter, wrong_type
from server.json_text import dump_json
from server.values import missing, read_flag, read_object, read_text, read_word

BILLING_LINE = "x-anthropic-billing-header:"
"""Claude Code begins its system prompt with a line of this, and a hash in it that differs in every request: left there, no
prompt would begin like the one before it, and each would be read anew."""


def decode_conversation(fields: FieldMap) -> tuple[tuple[Message, ...], bool]:
    """A request's `system` and `messages` -> the messages, and whether the last one, the assistant's, is to be continued.

    Turns of one role that follow each other are one, as Anthropic has it. Raises BadRequest with the path of what is wrong.
    """
    turns = join_turns(_messages(fields.get("messages", ("", None))[1]))
    if turns and turns[-1].tool_calls:
        raise BadRequest("messages must go on after a tool_use, with its tool_result", param="messages")
    if turns and turns[-1].role == "assistant" and not turns[-1].content.strip():
        turns = turns[:-1]
    if not turns:
        raise BadRequest("messages must not be empty", param="messages")
    is_continued = turns[-1].role == "assistant"
    text = _system_text(fields["system"][1], "system") if "system" in fields else ""
    return ((Message("system", text), *turns) if text else turns), is_continued


def _system_text(value: JsonValue, path: str) -> str:
    """Text or text blocks, without the line that changes with every request."""
    texts = [_text(*block) for block in _blocks(value, path)]
    kept = [text.partition("\n")[2].lstrip("\n") if text.startswith(BILLING_LINE) else text for text in texts]
    return "\n\n".join(text for text in kept if text)


def _messages(value: JsonValue) -> list[Message]:
    if value is None:
        raise missing("messages")
    if not isinstance(value, list):
        raise wrong_type("messages", "a list of messages", value)
    called: set[str] = set()
    places = [(read_object(entry, f"messages[{i}]"), f"messages[{i}]") for i, entry in enumerate(value)]
    return [message for place in places for message in _message(*place, called)]


def _message(value: JsonObject, path: str, called: set[str]) -> list[Message]:
    role = read_word(value, "role", path, ("user", "assistant", "system"))
    content, path = value.get("content"), f"{path}.content"
    if content is None:
        raise missing(path)
    if role == "assistant":
        return [_assistant(content, path, called)]
    if role == "user":
        return _user(content, path, called)
    text = _system_text(content, path)
    return [Message("system", text)] if text else []


def _user(value: JsonValue, path: str, called: set[str]) -> list[Message]:
    """Results first, wherever they stand, since they answer the calls of the turn before; then the text."""
    results, texts = [], []
    for kind, block, inner in _blocks(value, path):
        if kind == "tool_result":
            results.append(_result(block, inner, called))
        else:
            texts.append(_text(kind, block, inner))
    text = _joined(texts)
    if not results and not text:
        raise BadRequest(f"{path} must not be empty", param=path)
    return [*results, Message("user", text)] if text else results


def _assistant(value: JsonValue, path: str, called: set[str]) -> Message:
    texts, thoughts, calls = [], [], []
    for kind, block, inner in _blocks(value, path):
        match kind:
            case "thinking":
                thoughts.append(read_text(block, "thinking", inner))
            case "redacted_thinking":  # another server's: nobody here can read it
                read_text(block, "data", inner)
            case "tool_use":
                arguments = read_object(block.get("input") or {}, f"{inner}.input")
                calls.append(ToolCallPart(read_text(block, "id", inner), read_text(block, "name", inner), arguments))
                called.add(read_text(block, "id", inner))
            case _:
                texts.append(_text(kind, block, inner))
    return Message("assistant", _joined(texts), tool_calls=tuple(calls), reasoning=_joined(thoughts) or None)


def _result(block: JsonObject, path: str, called: set[str]) -> Message:
    """A result that is an error says so to the model."""
    call_id, content = read_text(block, "tool_use_id", path), block.get("content")
    if call_id not in called:
        message = f"{path}.tool_use_id {call_id!r} is the id of no tool_use before it"
        raise BadRequest(message, param=f"{path}.tool_use_id", code="unknown_tool_use")
    text = "" if content is None else _joined([_text(*inner) for inner in _blocks(content, f"{path}.content")])
    return Message("tool", f"Error: {text}" if read_flag(block, "is_error", path) else text, tool_call_id=call_id)


def _blocks(value: JsonValue, path: str) -> Iterator[tuple[str, JsonObject, str]]:
    """The content blocks, each with its type before and its path after it; text is short for one of them."""
    if isinstance(value, str):
        yield "text", {"text": value}, path
        return
    if not isinstance(value, list):
        raise wrong_type(path, "a string or a list of content blocks", value)
    for i, entry in enumerate(value):
        block = read_object(entry, f"{path}[{i}]")
        yield read_text(block, "type", f"{path}[{i}]"), block, f"{path}[{i}]"


def _text(kind: str, block: JsonObject, path: str) -> str:
    if kind != "text":
        raise UnsupportedParameter(f"{path}.type {dump_json(kind)} is not supported: only text is here", param=f"{path}.type")
    return read_text(block, "text", path)


def _joined(texts: Sequence[str]) -> str:
    return "\n".join(text for text in texts if text)
