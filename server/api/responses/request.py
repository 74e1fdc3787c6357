"""The body of a request -> the internal request, and what its answer must know: decode_request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from server.api.bounded import BoundedStore
from server.api.fields import FieldMap, template_kwargs
from server.api.flat_tools import Names, decode_flat_tools
from server.api.responses.fields import ResponseFields, read_response_fields
from server.api.responses.items import Item, ItemReader, Kept
from server.chat.history import join_pieces
from server.chat.reasoning import parse_effort
from server.chat.types import ChatPrompt, GenerateRequest, JsonObject, Message
from server.constraints import merge_extra_body, read_constraint
from server.errors import BadRequest
from server.settings import RequestLimits
from server.values import read_object


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, decoded. `items` is the whole conversation up to here, `repeated` what the response repeats of its request."""

    request: GenerateRequest
    fields: ResponseFields
    items: tuple[Item, ...]
    names: Names
    repeated: JsonObject


def decode_request(body: JsonObject, limits: RequestLimits, store: BoundedStore[Kept]) -> Asked:
    """Raises BadRequest naming the field."""
    merged = merge_extra_body(body)
    fields = read_response_fields(merged)
    items = _conversation(merged, fields, limits, store)
    tools, names = decode_flat_tools(body, merged, limits)
    if fields.effort is not None:
        parse_effort(fields.effort, "reasoning_effort" if fields.reasoning.effort is None else "reasoning.effort")
    request = GenerateRequest(
        prompts=(_prompt(merged, fields, items, tools.shown if tools is not None else ()),),
        model=fields.model,
        sampling=fields.sampling(),
        stop=fields.stop or (),
        on_length=fields.on_length or "complete",
        max_tokens=fields.max_output_tokens,
        max_tokens_param="max_output_tokens",
        constraint=read_constraint(body, limits),
        tools=tools,
        effort=fields.effort,
        logprobs=fields.top_logprobs if fields.has_logprobs else None,
        param="input",
    )
    return Asked(request, fields, items, names, _repeated(merged, fields))


def _conversation(
    merged: FieldMap, fields: ResponseFields, limits: RequestLimits, store: BoundedStore[Kept]
) -> tuple[Item, ...]:
    """The items of the response that is continued, then those of the input."""
    before: tuple[Item, ...] = ()
    if fields.previous_response_id is not None:
        previous = store.get(fields.previous_response_id)
        if previous is None:
            message = f"previous_response_id: no response with id {fields.previous_response_id!r} is kept, or not any more"
            raise BadRequest(message, param="previous_response_id", code="previous_response_not_found")
        before = previous.items
    path, value = merged.get("input", ("input", ""))
    return (*before, *ItemReader(limits, store).follow(before).read(value, path))


def _prompt(merged: FieldMap, fields: ResponseFields, items: tuple[Item, ...], shown: tuple[JsonObject, ...]) -> ChatPrompt:
    instructions = [Message("system", fields.instructions)] if fields.instructions else []
    messages = join_pieces([*instructions, *(item.piece for item in items)])
    if not messages:
        raise BadRequest("input must not be empty", param="input")
    return ChatPrompt(
        messages,
        template=fields.template,
        tools=shown,
        thinking=fields.switch,
        kwargs=template_kwargs(merged, fields.switch),
        param="input",
    )


def _repeated(merged: FieldMap, fields: ResponseFields) -> dict[str, Any]:
    path, text = merged.get("text", ("text", {}))
    return {
        **fields.repeated(),
        "text": {"format": {"type": "text"}, **read_object(text, path)},
        "tool_choice": merged.get("tool_choice", ("", "auto"))[1],
        "tools": merged.get("tools", ("", []))[1],
    }
