"""A chat's messages and what shapes their rendering, in OpenAI's form, which this server's own routes take too."""

from __future__ import annotations

from server.api.fields import Boolean, FieldMap, TemplateFields, template_kwargs
from server.api.messages import decode_messages
from server.api.tools import decode_tools
from server.chat.types import ChatPrompt, JsonObject
from server.constraints import merge_extra_body
from server.errors import BadRequest, UnsupportedParameter
from server.settings import RequestLimits

_UNSUPPORTED = ("audio", "web_search_options", "chat_template")


class PromptFields(TemplateFields):
    """The scalar fields that shape a chat's rendering."""

    add_generation_prompt: Boolean | None = None
    continue_final_message: Boolean | None = None


def decode_prompt(body: JsonObject, fields: PromptFields, limits: RequestLimits) -> ChatPrompt:
    """The messages and everything that shapes their rendering. Raises BadRequest naming the field."""
    merged = merge_extra_body(body)
    _refuse_unsupported(merged)
    if fields.continue_final_message and fields.add_generation_prompt:
        message = "continue_final_message and add_generation_prompt can't both be true"
        raise BadRequest(message, param="add_generation_prompt")
    tools = decode_tools(merged, limits)
    return ChatPrompt(
        messages=decode_messages(body.get("messages"), limits),
        template=fields.template,
        tools=tools.shown if tools is not None else (),
        add_generation_prompt=fields.add_generation_prompt is not False,
        continue_final_message=bool(fields.continue_final_message),
        thinking=fields.switch,
        kwargs=template_kwargs(merged, fields.switch),
    )


def _refuse_unsupported(fields: FieldMap) -> None:
    for name in _UNSUPPORTED:
        if name in fields:
            raise UnsupportedParameter(f"{fields[name][0]} is not supported", param=fields[name][0])
    path, modalities = fields.get("modalities", ("modalities", ["text"]))
    if modalities != ["text"]:
        raise UnsupportedParameter(f'{path} is not supported: only ["text"] is', param=path)
