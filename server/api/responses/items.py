"""Input items -> the items of a conversation, each with its piece of the chat. Whatever isn't text is refused by its path."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from converters.constraint import JsonValue
from server.api.bounded import BoundedStore
from server.api.flat_tools import joined_name
from server.api.openai_shape import content_text, draw_id, parse_arguments
from server.chat.types import JsonObject, Message, ToolCallPart
from server.errors import BadRequest, UnsupportedParameter, wrong_type
from server.json_text import dump_json
from server.settings import RequestLimits
from server.values import read_object, read_text, read_word

Role = Literal["system", "user", "assistant"]
ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_SEAL = "gramserve."  # begins the reasoning that a client keeps for us; nothing in it is secret


@dataclass(frozen=True, slots=True)
class Item:
    """One item as the API lists it, and what it adds to the chat. `n_bytes` is counted as JSON text."""

    wire: JsonObject
    piece: Message
    n_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """A response with its whole conversation, so that it can be continued whatever became of those before it.

    The first `n_input` of `items` are what it answered.
    """

    response: JsonObject
    items: tuple[Item, ...]
    n_input: int

    @property
    def n_bytes(self) -> int:
        """Bytes of its JSON text; what it shares with other responses counts in each."""
        return _n_bytes(self.response) + sum(item.n_bytes for item in self.items)


def _n_bytes(value: JsonValue) -> int:
    return len(dump_json(value).encode("utf-8"))


def seal(reasoning: str) -> str:
    """Reasoning as `encrypted_content`, for clients that hand back nothing else."""
    return _SEAL + base64.b64encode(reasoning.encode("utf-8")).decode("ascii")


def _unseal(text: str) -> str:
    """What `seal` was given; "" for another server's, which can't be read."""
    try:
        return base64.b64decode(text.removeprefix(_SEAL)).decode("utf-8") if text.startswith(_SEAL) else ""
    except (binascii.Error, UnicodeDecodeError):
        return ""


@dataclass(slots=True)
class ItemReader:
    """Reads items that follow others; what they refer to is in the store."""

    limits: RequestLimits
    store: BoundedStore[Kept]
    _stored: dict[str, Item] | None = None
    _ids: set[str] = field(default_factory=set)
    _calls: dict[str, str] = field(default_factory=dict)  # id of a call → the tool's name
    _answered: set[str] = field(default_factory=set)

    def follow(self, items: Iterable[Item]) -> ItemReader:
        """Itself, after taking note of items that are read already."""
        for item in items:
            self._note(item)
        return self

    def read(self, value: JsonValue, path: str) -> tuple[Item, ...]:
        """A request's input: text, or items. Raises BadRequest with the path of what is wrong."""
        if isinstance(value, str):
            value = [{"role": "user", "content": value}] if value else []
        if not isinstance(value, list):
            raise wrong_type(path, "a string or a list of items", value)
        return tuple(self._item(entry, f"{path}[{i}]") for i, entry in enumerate(value))

    def _item(self, value: JsonValue, path: str) -> Item:
        given = {name: entry for name, entry in read_object(value, path).items() if entry is not None}
        kind = given.get("type", "message" if "role" in given else "item_reference")
        if not isinstance(kind, str) or kind not in _READERS:
            message = f"{path}.type {dump_json(kind)} is not supported: {', '.join(_READERS)} are"
            raise UnsupportedParameter(message, param=f"{path}.type")
        item_id = read_text(given, "id", path, default="")
        if item_id in self._ids:
            raise _repeated(f"{path}.id", item_id, "is that of an earlier item")
        item = _READERS[kind](self, given, path)
        item = item if item.n_bytes else replace(item, n_bytes=_n_bytes(item.wire))
        self._note(item)
        return item

    def _note(self, item: Item) -> None:
        self._ids.add(str(item.wire["id"]))
        for call in item.piece.tool_calls:
            self._calls[str(call.id)] = call.name
        if item.piece.tool_call_id is not None:
            self._answered.add(item.piece.tool_call_id)

    # ---- one reader per type

    def _message(self, value: JsonObject, path: str) -> Item:
        role = read_word(value, "role", path, tuple(ROLES))
        content = value.get("content")
        text = content_text(content, f"{path}.content")
        if isinstance(content, str):
            own = {"type": "output_text", "annotations": []} if role == "assistant" else {"type": "input_text"}
            content = [{**own, "text": text}]
        return Item(_listed(value, "msg", type="message", content=content), Message(ROLES[role], text))

    def _function_call(self, value: JsonObject, path: str) -> Item:
        arguments = parse_arguments(read_text(value, "arguments", path), self.limits, f"{path}.arguments")
        return self._call(value, "fc", arguments, path)

    def _custom_call(self, value: JsonObject, path: str) -> Item:
        return self._call(value, "ctc", {"input": read_text(value, "input", path)}, path)

    def _call(self, value: JsonObject, prefix: str, arguments: JsonValue, path: str) -> Item:
        call_id = read_text(value, "call_id", path)
        if call_id in self._calls:
            raise _repeated(f"{path}.call_id", call_id, "is that of an earlier call")
        name = joined_name(read_text(value, "namespace", path, default=""), read_text(value, "name", path))
        piece = Message("assistant", "", tool_calls=(ToolCallPart(call_id, name, arguments),))
        return Item(_listed(value, prefix), piece)

    def _output(self, value: JsonObject, path: str) -> Item:
        call_id = read_text(value, "call_id", path)
        if call_id in self._answered:
            raise _repeated(f"{path}.call_id", call_id, "has its output already")
        if call_id not in self._calls:
            raise BadRequest(f"{path}.call_id {call_id!r}: no such call stands before its output", param=f"{path}.call_id")
        text = content_text(value.get("output"), f"{path}.output")
        return Item(_listed(value, "fco"), Message("tool", text, name=self._calls[call_id], tool_call_id=call_id))

    def _reasoning(self, value: JsonObject, path: str) -> Item:
        shown = [content_text(value.get(name, []), f"{path}.{name}") for name in ("content", "summary")]
        text = shown[0] or shown[1] or _unseal(read_text(value, "encrypted_content", path, default=""))
        return Item(_listed({"summary": [], **value}, "rs"), Message("assistant", "", reasoning=text))

    def _reference(self, value: JsonObject, path: str) -> Item:
        if self._stored is None:
            self._stored = {str(item.wire["id"]): item for kept in self.store.values() for item in kept.items}
        item_id = read_text(value, "id", path)
        if item_id not in self._stored:
            message = f"{path}.id {item_id!r}: no such item is kept; items of responses with store: false never are"
            raise BadRequest(message, param=f"{path}.id", code="item_not_found")
        return self._stored[item_id]


_READERS: dict[str, Callable[[ItemReader, JsonObject, str], Item]] = {
    "message": ItemReader._message,
    "function_call": ItemReader._function_call,
    "function_call_output": ItemReader._output,
    "custom_tool_call": ItemReader._custom_call,
    "custom_tool_call_output": ItemReader._output,
    "reasoning": ItemReader._reasoning,
    "item_reference": ItemReader._reference,
}


def _repeated(path: str, item_id: str, what: str) -> BadRequest:
    return BadRequest(f"{path} {item_id!r} {what}", param=path, code="duplicate_item")


def _listed(value: JsonObject, prefix: str, **changes: Any) -> JsonObject:
    return {"status": "completed", **value, **changes, "id": value.get("id") or draw_id(prefix)}
