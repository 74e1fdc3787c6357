"""/api/chat and /api/generate, the way in: decode_request. Without messages or prompt a request only loads its model."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from converters.constraint import JsonValue
from server.api.ollama.wire import PLACES, RequestFields, constraint_fields, read_options, read_request
from server.api.tools import choose, listed_tools, tool
from server.chat.embedding import EmbedRequest
from server.chat.reasoning import parse_effort
from server.chat.types import ChatPrompt, GenerateRequest, JsonObject, Message, Prompt, TextPrompt, ToolCallPart, ToolUse
from server.constraints import merge_extra_body, read_constraint
from server.constraints import read_options as read_compile_options
from server.errors import BadRequest, UnsupportedParameter
from server.settings import RequestLimits
from server.values import read_list, read_object, read_string, read_text, read_word

_ROLES: dict[str, Literal["system", "user", "assistant", "tool"]] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool",
}  # fmt: skip


def decode_request(body: JsonObject, limits: RequestLimits, *, is_chat: bool) -> tuple[GenerateRequest | None, RequestFields]:
    """The internal request, None where there is nothing to answer, and the wire's fields. Raises BadRequest with the path."""
    fields = read_request(body)
    tools = _tools(body, limits) if is_chat else None
    prompt = _chat_prompt(body, fields, tools) if is_chat else _text_prompt(body, fields)
    options = read_options(body)
    if fields.top_logprobs and not fields.logprobs:
        raise BadRequest("top_logprobs needs logprobs: true", param="top_logprobs")
    constraint = read_constraint(constraint_fields(body), limits, PLACES)
    effort = options.reasoning_effort or _effort(fields.think, is_constrained=constraint is not None)
    if effort is not None:
        parse_effort(effort)
    request = GenerateRequest(
        prompts=(prompt,),
        sampling=options.sampling(),
        stop=options.stop or (),
        on_length=options.on_length or "complete",
        max_tokens=options.num_predict if (options.num_predict or 0) > 0 else None,  # else to the end of the context
        max_tokens_param="options.num_predict",
        clips_to_context=True,
        constraint=constraint,
        tools=tools,
        logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
        effort=effort,
        suffix=None if is_chat else fields.suffix,
        param="messages" if is_chat else "prompt",
    )
    return (request if body.get(request.param) else None), fields


def decode_inputs(body: JsonObject, name: str) -> tuple[EmbedRequest, RequestFields]:
    """The texts in the field `name`, one or a list, for their vectors; without any a request only loads its model."""
    fields, value = read_request(body), body.get(name)
    entries = [(value, name)] if isinstance(value, str) and value else read_list(value or None, name)
    texts = tuple(read_string(entry, path) for entry, path in entries)
    cuts = fields.truncate is not False
    return EmbedRequest(texts, fields.asked_model, name, isinstance(value, str), cuts, fields.dimensions), fields


def _effort(think: bool | str | None, *, is_constrained: bool) -> str | None:
    """`think: true` asks for thinking before a constrained answer too, where it has to be bounded."""
    if not think or isinstance(think, str):
        return think or None
    return "medium" if is_constrained else "max"


def _chat_prompt(body: JsonObject, fields: RequestFields, tools: ToolUse | None) -> Prompt:
    """A last message of the assistant is the beginning of the answer."""
    messages = tuple(_message(read_object(entry, path), path) for entry, path in read_list(body.get("messages"), "messages"))
    return ChatPrompt(
        messages,
        template=fields.template or None,
        tools=tools.shown if tools is not None else (),
        continue_final_message=bool(messages) and messages[-1].role == "assistant" and not messages[-1].tool_calls,
        thinking=fields.thinking,
    )


def _text_prompt(body: JsonObject, fields: RequestFields) -> Prompt:
    _refuse_images(body, "images")
    for name in ("raw", "suffix"):
        if getattr(fields, name) and (fields.system or fields.template or fields.context):
            raise BadRequest(f"{name} does not go with template, system, or context", param=name)
    if fields.raw or fields.suffix:
        return TextPrompt(fields.prompt or "")
    system = (Message("system", fields.system),) if fields.system else ()
    turns = (*system, Message("user", fields.prompt or ""))
    return ChatPrompt(turns, template=fields.template or None, thinking=fields.thinking, param="prompt")


def _message(value: JsonObject, path: str) -> Message:
    _refuse_images(value, f"{path}.images")
    return Message(
        _ROLES[read_word(value, "role", path, tuple(_ROLES))],
        read_text(value, "content", path, ""),
        read_text(value, "tool_name", path, "") or read_text(value, "name", path, "") or None,
        tuple(_call(entry, at) for entry, at in read_list(value.get("tool_calls"), f"{path}.tool_calls")),
        read_text(value, "tool_call_id", path, "") or None,
        read_text(value, "thinking", path, "") or None,
    )


def _call(value: JsonValue, path: str) -> ToolCallPart:
    call_id = read_text(read_object(value, path), "id", path, "")
    path = f"{path}.function"
    function = read_object(read_object(value, path).get("function"), path)
    arguments = function.get("arguments")
    parsed = {} if arguments is None else read_object(arguments, f"{path}.arguments")
    return ToolCallPart(call_id or None, read_text(function, "name", path), parsed)


def _refuse_images(owner: JsonObject, path: str) -> None:
    if read_list(owner.get("images"), path):
        raise UnsupportedParameter(f"{path} is not supported: this server reads text only", param=path)


def _tools(body: JsonObject, limits: RequestLimits) -> ToolUse | None:
    """OpenAI's form, in which `type` may be absent; `tool_choice` is an extension."""
    merged = merge_extra_body(constraint_fields(body), PLACES)
    listed = listed_tools(merged, "tools", limits)
    typed = [({**value, "type": value.get("type") or "function"}, path) for value, path in listed]
    use = choose([tool(value, path, limits) for value, path in typed], merged)
    return None if use is None else replace(use, options=read_compile_options(constraint_fields(body), limits, PLACES))
