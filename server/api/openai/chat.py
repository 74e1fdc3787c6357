"""/v1/chat/completions: decode_request, Encoder, encode_completion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import assert_never

from server.api.chat_prompt import decode_prompt
from server.api.fields import read_fields
from server.api.logprobs import encode_logprobs as encode_token
from server.api.openai.wire import ChatFields
from server.api.openai_shape import DONE, Envelope, encode_usage, error_frame
from server.api.prediction import decode_prediction
from server.api.respond import Answer
from server.api.sse import COMMENT, frame
from server.api.tools import decode_tool_use
from server.chat import types
from server.constraints import read_constraint
from server.errors import BadRequest, ServerError
from server.settings import RequestLimits


def decode_request(body: types.JsonObject, limits: RequestLimits) -> tuple[types.GenerateRequest, ChatFields]:
    """The internal request and the wire's fields. Raises BadRequest naming the field."""
    fields = read_fields(ChatFields, body)
    if fields.top_logprobs and not fields.logprobs:
        raise BadRequest("top_logprobs needs logprobs: true", param="top_logprobs")
    tools = decode_tool_use(body, limits)
    request = types.GenerateRequest(
        prompts=(decode_prompt(body, fields, limits),),
        model=fields.model,
        n=fields.n or 1,
        sampling=fields.sampling(),
        stop=fields.stop or (),
        on_length=fields.on_length or "complete",
        max_tokens=fields.max_tokens if fields.max_completion_tokens is None else fields.max_completion_tokens,
        max_tokens_param="max_tokens" if fields.max_completion_tokens is None else "max_completion_tokens",
        constraint=read_constraint(body, limits),
        tools=tools,
        effort=fields.reasoning_effort,
        logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
        prediction=decode_prediction(body),
        param="messages",
    )
    return request, fields


def answer(fields: ChatFields) -> Answer:
    """How to answer a request with these fields."""
    has_logprobs = bool(fields.logprobs)
    stream = Encoder(fields.wants_usage, has_logprobs) if fields.is_stream else None
    return Answer(stream, lambda completion: encode_completion(completion, has_logprobs))


@dataclass(slots=True)
class Encoder:
    """Events -> chunks: a role chunk per choice first, a finish chunk per choice, the usage chunk, [DONE]."""

    wants_usage: bool = False
    has_logprobs: bool = False
    envelope: Envelope = field(default_factory=lambda: Envelope("chatcmpl", "chat.completion.chunk"))
    media_type: str = "text/event-stream"
    heartbeat: bytes = COMMENT
    _model: str = ""
    _custom: set[tuple[int, int]] = field(default_factory=set)
    _callers: set[int] = field(default_factory=set)

    def encode(self, event: types.Event) -> bytes:
        """The frames of one event."""
        match event:
            case types.Started(model=model, n_choices=n_choices):
                self._model = model
                return b"".join(self._chunk(i, {"role": "assistant", "content": ""}) for i in range(n_choices))
            case types.TextDelta(index=index, text=text, logprobs=logprobs):
                if not text and not logprobs:
                    return b""
                return self._chunk(index, {"content": text}, logprobs=logprobs)
            case types.ReasoningDelta(index=index, text=text):
                return self._chunk(index, {"reasoning_content": text})
            case types.CallStarted() | types.ArgumentsDelta():
                return self._chunk(event.index, {"tool_calls": [self._call_delta(event)]})
            case types.ChoiceCompleted(index=index, reason=reason):
                return self._chunk(index, {}, finish_reason=_finish_reason(reason, index in self._callers))
            case types.Completed(usage=usage):
                last = frame(self.envelope.wrap(self._model, [], encode_usage(usage))) if self.wants_usage else b""
                return last + DONE
            case types.PromptEcho():
                return b""
            case _:
                assert_never(event)

    def encode_error(self, error: ServerError) -> bytes:
        """The stream's last event."""
        return error_frame(error)

    def _call_delta(self, event: types.CallStarted | types.ArgumentsDelta) -> dict[str, Any]:
        """The first delta of a call has id, type, name and an empty argument text; the others only more of that."""
        key = (event.index, event.call)
        if isinstance(event, types.ArgumentsDelta):
            inner = {"custom": {"input": event.text}} if key in self._custom else {"function": {"arguments": event.text}}
            return {"index": event.call, **inner}
        self._callers.add(event.index)
        if event.is_custom:
            self._custom.add(key)
        return {"index": event.call, **_encode_call(types.ToolCall(event.id, event.name, "", event.is_custom))}

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        finish_reason: str | None = None,
        logprobs: Sequence[types.TokenLogprobs] = (),
    ) -> bytes:
        choice: dict[str, Any] = {"index": index, "delta": delta, "finish_reason": finish_reason}
        if self.has_logprobs:
            choice["logprobs"] = encode_logprobs(logprobs) if logprobs else None
        return frame(self.envelope.wrap(self._model, [choice]))


def encode_completion(completion: types.Completion, has_logprobs: bool = False) -> dict[str, Any]:
    """A whole answer."""
    envelope = Envelope("chatcmpl", "chat.completion")
    choices = [_choice(entry, has_logprobs) for entry in completion.choices]
    return envelope.wrap(completion.model, choices, encode_usage(completion.usage))


def _choice(entry: types.Answer, has_logprobs: bool) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": entry.text if entry.text or not entry.tool_calls else None,
        "refusal": None,
    }
    if entry.reasoning:
        message["reasoning_content"] = entry.reasoning
    if entry.tool_calls:
        message["tool_calls"] = [_encode_call(call) for call in entry.tool_calls]
    return {
        "index": entry.index,
        "message": message,
        "logprobs": encode_logprobs(entry.logprobs) if has_logprobs else None,
        "finish_reason": _finish_reason(entry.reason, bool(entry.tool_calls)),
    }


def _finish_reason(reason: types.FinishReason, has_calls: bool) -> str:
    """ "tool_calls" where there are calls and none of them is cut."""
    return "tool_calls" if has_calls and reason is types.FinishReason.STOP else reason.value


def _encode_call(call: types.ToolCall) -> dict[str, Any]:
    if call.is_custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def encode_logprobs(entries: Sequence[types.TokenLogprobs]) -> dict[str, Any]:
    """Each token of the content with its alternatives."""
    return {"content": [encode_token(entry) for entry in entries], "refusal": None}
