"""A chat's messages and what shapes their rendering, in OpenAI's form, which this server's own routes take too."""

from __future__ import annotations

from collections.abc import Mapping

from converters.constraint import JsonValue
from server.api.fields import Boolean, Fields, String, template_kwargs
from server.api.messages import decode_messages
from server.api.tools import decode_tools
from server.chat.types import ChatPrompt, JsonObject
from server.constraints import merge_extra_body
from server.errors import BadRequest, UnsupportedParameter
from server.settings import RequestLimits

_UNSUPPORTED = ("audio", "web_search_options", "chat_template")


class PromptFields(Fields):
    """The scalar fields that shape a chat's rendering."""

    template: String | None = None
    add_generation_prompt: Boolean | None = None
    continue_final_message: Boolean | None = None
    thinking: Boolean | None = None
    enable_thinking: Boolean | None = None
    reasoning_effort: String | None = None


def decode_prompt(body: JsonObject, fields: PromptFields, limits: RequestLimits) -> ChatPrompt:
    """The messages and everything that shapes their rendering. Raises BadRequest naming the field."""
    merged = merge_extra_body(body)
    _refuse_unsupported(merged)
    if fields.continue_final_message and fields.add_generation_prompt:
        message = "continue_final_message and add_generation_prompt can't both be true"
        raise BadRequest(message, param="add_generation_prompt")
    tools = decode_tools(merged, limits)
    thinking = fields.thinking if fields.thinking is not None else fields.enable_thinking
    return ChatPrompt(
        messages=decode_messages(body.get("messages"), limits),
        template=fields.template,
        tools=tools.shown if tools is not None else (),
        add_generation_prompt=fields.add_generation_prompt is not False,
        continue_final_message=bool(fields.continue_final_message),
        thinking=thinking,
        kwargs=template_kwargs(merged, thinking),
    )


def _refuse_unsupported(fields: Mapping[str, tuple[str, JsonValue]]) -> None:
    for name in _UNSUPPORTED:
        if name in fields:
            raise UnsupportedParameter(f"{fields[name][0]} is not supported", param=fields[name][0])
    path, modalities = fields.get("modalities", ("modalities", ["text"]))
    if modalities != ["text"]:
        raise UnsupportedParameter(f'{path} is not supported: only ["text"] is', param=path)
