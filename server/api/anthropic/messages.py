"""/v1/messages: decode_request, Encoder, encode_completion."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from typing_extensions import assert_never

from converters.constraint import JsonValue
from server.api.anthropic.content import decode_conversation
from server.api.anthropic.errors import draw_request_id, error_body
from server.api.anthropic.tools import decode_tools
from server.api.anthropic.wire import MessageFields
from server.api.fields import read_merged, template_kwargs
from server.api.sse import frame
from server.api.tools import with_options
from server.chat import types
from server.chat.types import Event, GenerateRequest, JsonObject, Usage
from server.constraints import merge_extra_body, read_constraint
from server.errors import ServerError, UnsupportedParameter
from server.settings import RequestLimits
from server.values import missing, parse_call


def decode_request(body: JsonObject, limits: RequestLimits, is_counted: bool = False) -> tuple[GenerateRequest, MessageFields]:
    """The internal request and the wire's fields. Raises BadRequest naming the field.

    `is_counted`: of /v1/messages/count_tokens, which needs no max_tokens.
    """
    merged = merge_extra_body(body)
    fields = read_merged(MessageFields, merged)
    if fields.max_tokens is None and not is_counted:
        raise missing("max_tokens")
    if "thread" in merged:  # ignored, half of a conversation would be answered; this code makes the package send all of it
        message = f"{merged['thread'][0]} is not supported: no conversations are kept here"
        raise UnsupportedParameter(message, param=merged["thread"][0], code="thread_unsupported_request")
    messages, is_continued = decode_conversation(merged)
    tools = decode_tools(merged, limits)
    prompt = types.ChatPrompt(
        messages,
        template=fields.template,
        tools=tools.shown if tools is not None else (),
        add_generation_prompt=not is_continued,
        continue_final_message=is_continued,
        thinking=fields.switch,
        kwargs=template_kwargs(merged, fields.switch),
    )
    request = GenerateRequest(
        prompts=(prompt,),
        model=fields.model,
        sampling=fields.sampling(),
        stop=fields.stop_sequences or (),
        max_tokens=fields.max_tokens,
        clips_to_context=True,
        constraint=read_constraint(body, limits),
        tools=None if tools is None else with_options(tools, body, limits),
        on_length=fields.on_length or "complete",
        effort=fields.effort,
        budget_tokens=None if fields.thinking is None else fields.thinking.budget_tokens,
        param="messages",
    )
    return request, fields


# ---- streams


@dataclass(slots=True)
class Encoder:
    """Events -> message_start, the content blocks one after the other, message_delta, message_stop."""

    shows_thinking: bool = True
    request_id: str = field(default_factory=draw_request_id)
    media_type: str = "text/event-stream"
    heartbeat: bytes = frame({"type": "ping"}, "ping")
    _is_clipped: bool = False
    _has_calls: bool = False
    _n_blocks: int = 0
    _open: str | None = None
    _thought: Any = field(default_factory=sha256)
    _end: types.ChoiceCompleted | None = None

    def encode(self, event: Event) -> bytes:
        """The frames of one event."""
        match event:
            case types.Started(model=model):
                self._is_clipped = event.is_clipped
                usage = Usage(event.n_prompt_tokens, event.n_cached_tokens)
                return _frame("message_start", message=_message(model, [], None, None, usage)) + self.heartbeat
            case types.TextDelta(text=text):
                return self._more({"type": "text", "text": ""}, {"type": "text_delta", "text": text}) if text else b""
            case types.ReasoningDelta(text=text):
                self._thought.update(text.encode("utf-8"))
                shown = text if self.shows_thinking else ""
                return self._more(_thinking("", ""), {"type": "thinking_delta", "thinking": shown})
            case types.CallStarted(id=call_id, name=name):
                self._has_calls = True
                return self._close() + self._start(_call(call_id, name, {}))
            case types.ArgumentsDelta(text=text):
                return self._delta({"type": "input_json_delta", "partial_json": text})
            case types.ChoiceCompleted():
                self._end = event
                return self._close()
            case types.Completed(usage=usage):
                assert self._end is not None
                reason = _stop_reason(self._end, self._has_calls, self._is_clipped)
                delta: dict[str, Any] = {"stop_reason": reason, "stop_sequence": self._end.stop_string}
                return _frame("message_delta", delta=delta, usage=_usage(usage)) + _frame("message_stop")
            case types.PromptEcho():
                return b""
            case _:
                assert_never(event)

    def encode_error(self, error: ServerError) -> bytes:
        """The stream's last event."""
        return frame(error_body(error, self.request_id), "error")

    def _more(self, block: dict[str, Any], delta: dict[str, Any]) -> bytes:
        """A delta in the open block, if that is of this kind, else in a new one."""
        opening = b"" if self._open == block["type"] else self._close() + self._start(block)
        return opening + self._delta(delta)

    def _start(self, block: dict[str, Any]) -> bytes:
        self._open = block["type"]
        self._n_blocks += 1
        return self._in_block("start", content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return self._in_block("delta", delta=delta)

    def _close(self) -> bytes:
        """The end of the open block, with its signature where it is thinking."""
        kind, self._open = self._open, None
        if kind == "thinking":
            signature, self._thought = self._thought.hexdigest(), sha256()
            return self._delta({"type": "signature_delta", "signature": signature}) + self._in_block("stop")
        return b"" if kind is None else self._in_block("stop")

    def _in_block(self, kind: str, **fields: Any) -> bytes:
        return _frame(f"content_block_{kind}", index=self._n_blocks - 1, **fields)


def _frame(kind: str, **fields: Any) -> bytes:
    return frame({"type": kind, **fields}, kind)


# ---- whole answers


def encode_completion(completion: types.Completion, shows_thinking: bool = True) -> dict[str, Any]:
    """A whole answer."""
    (choice,) = completion.choices
    reason = _stop_reason(choice, bool(choice.tool_calls), completion.is_clipped)
    blocks = []
    if choice.reasoning:
        signature = sha256(choice.reasoning.encode("utf-8")).hexdigest()
        blocks.append(_thinking(choice.reasoning if shows_thinking else "", signature))
    if choice.text:
        blocks.append({"type": "text", "text": choice.text})
    blocks += [_call(call.id, call.name, parse_call(call.arguments) or {}) for call in choice.tool_calls]
    return _message(completion.model, blocks, reason, choice.stop_string, completion.usage)


def _message(model: str, content: list[dict[str, Any]], reason: str | None, stop: str | None, usage: Usage) -> dict[str, Any]:
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": stop,
        "usage": _usage(usage),
    }


def _usage(usage: Usage) -> dict[str, Any]:
    """`input_tokens` are those that had to be read: with the cached ones they make the prompt."""
    return {
        "input_tokens": usage.n_prompt_tokens - usage.n_cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.n_cached_tokens,
        "output_tokens": usage.n_completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.n_reasoning_tokens, "forced_tokens": usage.n_forced_tokens},
        "service_tier": "standard",
    }


def _stop_reason(end: types.ChoiceCompleted | types.Answer, has_calls: bool, is_clipped: bool) -> str:
    if end.reason is types.FinishReason.LENGTH:
        return "model_context_window_exceeded" if is_clipped else "max_tokens"
    if end.stop_string is not None:
        return "stop_sequence"
    return "tool_use" if has_calls else "end_turn"


def _thinking(text: str, signature: str) -> dict[str, Any]:
    """Clients hand a block back only with its signature; nothing is signed here, and none is checked."""
    return {"type": "thinking", "thinking": text, "signature": signature}


def _call(call_id: str, name: str, arguments: JsonValue) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{call_id.removeprefix('call_')}", "name": name, "input": arguments}
