"""The body of a request -> the internal request, and what its answer must know: decode_request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from server.api.bounded import BoundedStore
from server.api.openai_shape import template_kwargs
from server.api.responses.fields import ResponseFields, read_response_fields
from server.api.responses.items import Item, ItemReader, Kept, joined_name
from server.api.tools import Fields, GivenTool, choose, listed_tools, tool, tool_name
from server.chat.history import join_pieces
from server.chat.reasoning import parse_effort
from server.chat.types import ChatPrompt, GenerateRequest, JsonObject, Message, ToolUse
from server.constraints import merge_extra_body, read_constraint, read_options, whitespace_param
from server.errors import BadRequest
from server.settings import RequestLimits

Names = Mapping[str, tuple[str, str]]
"""Of a tool's joined name: its namespace and its name in there, as calls have to say them."""


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
    given, names = _given_tools(merged, limits)
    use = _tool_use(body, merged, given, limits)
    instructions = [Message("system", fields.instructions)] if fields.instructions else []
    prompt = ChatPrompt(
        join_pieces([*instructions, *(item.piece for item in items)]),
        template=fields.template,
        tools=use.shown if use is not None else (),
        thinking=fields.switch,
        kwargs=template_kwargs(merged, fields.switch),
        param="input",
    )
    if fields.reasoning.effort is not None:
        parse_effort(fields.reasoning.effort, "reasoning.effort")
    request = GenerateRequest(
        prompts=(prompt,),
        model=fields.model,
        sampling=fields.sampling(),
        stop=fields.stop or (),
        on_length=fields.on_length or "complete",
        max_tokens=fields.max_output_tokens,
        max_tokens_param="max_output_tokens",
        constraint=read_constraint(body, limits),
        tools=use,
        effort=fields.reasoning.effort,
        logprobs=fields.top_logprobs if fields.has_logprobs else None,
        param="input",
    )
    return Asked(request, fields, items, names, _repeated(merged, fields))


def _conversation(merged: Fields, fields: ResponseFields, limits: RequestLimits, store: BoundedStore[Kept]) -> tuple[Item, ...]:
    """The items of the response that is continued, then those of the input."""
    before: tuple[Item, ...] = ()
    if fields.previous_response_id is not None:
        previous = store.get(fields.previous_response_id)
        if previous is None:
            message = f"previous_response_id: no response with id {fields.previous_response_id!r} is kept, or not any more"
            raise BadRequest(message, param="previous_response_id", code="previous_response_not_found")
        before = previous.items
    path, value = merged.get("input", ("input", ""))
    reader = ItemReader(limits, store)
    reader.follow(before)
    items = (*before, *reader.read(value, path))
    if not items and not fields.instructions:
        raise BadRequest(f"{path} must not be empty", param=path)
    return items


def _given_tools(merged: Fields, limits: RequestLimits) -> tuple[list[GivenTool], Names]:
    """Every tool under the name that the model sees, which no two may share."""
    given: list[GivenTool] = []
    names: dict[str, tuple[str, str]] = {}
    for value, path in listed_tools(merged, "tools", limits):
        if value.get("type") != "namespace":
            given.append(tool(value, path, limits))
            continue
        namespace = tool_name(value, path)
        for inner, place in listed_tools({"tools": (f"{path}.tools", value.get("tools", []))}, "tools", limits):
            name = tool_name(inner, place)
            joined = joined_name(namespace, name)
            if joined != name:
                names[joined] = (namespace, name)
            given.append(tool({**inner, "name": joined}, place, limits))
    taken: set[str] = set()
    for entry in given:
        if entry.tool.name in taken:
            raise BadRequest(f"{entry.path}.name: two tools are called {entry.tool.name!r}", param=f"{entry.path}.name")
        taken.add(entry.tool.name)
    return given, names


def _tool_use(body: JsonObject, merged: Fields, given: list[GivenTool], limits: RequestLimits) -> ToolUse | None:
    use = choose(given, {name: merged[name] for name in ("tool_choice", "parallel_tool_calls") if name in merged})
    if use is None:
        return None
    return replace(use, options=read_options(body, limits), whitespace_param=whitespace_param(body, limits))


def _repeated(merged: Fields, fields: ResponseFields) -> dict[str, Any]:
    text = merged.get("text", ("", {}))[1]
    return {
        **fields.repeated(),
        "text": {"format": {"type": "text"}, **(text if isinstance(text, Mapping) else {})},
        "tool_choice": merged.get("tool_choice", ("", "auto"))[1],
        "tools": merged.get("tools", ("", []))[1],
    }
