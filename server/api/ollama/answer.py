"""Ollama's answers: Encoder for streams of JSON lines, encode_completion for whole ones, encode_error."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.responses import Response
from typing_extensions import assert_never

from server.api.lines import MEDIA_TYPE, Line, frame
from server.api.logprobs import encode_logprobs
from server.api.respond import error_response, named_message
from server.api.timestamp import timestamp
from server.chat import types
from server.chat.types import Completion, Event, FinishReason, TokenLogprobs, ToolCall, Usage
from server.errors import ServerError
from server.json_text import dump_json
from server.values import parse_call


@dataclass(slots=True)
class Envelope:
    """What the lines of one answer have in common. `model` is as the request calls it; times are of the monotonic clock."""

    is_chat: bool
    model: str
    has_logprobs: bool = False
    started_ns: int = field(default_factory=time.monotonic_ns)
    load_ns: int = 0
    context: list[int] = field(default_factory=list)

    @property
    def age_ns(self) -> int:
        """Since the request came."""
        return time.monotonic_ns() - self.started_ns

    def line(
        self, text: str = "", thinking: str = "", calls: Sequence[Line] = (), logprobs: Sequence[TokenLogprobs] = ()
    ) -> Line:
        """A piece of the answer, or all of it."""
        extras: Line = {"thinking": thinking} if thinking else {}
        if calls:
            extras["tool_calls"] = list(calls)
        content: Line = {"response": text, **extras}
        if self.is_chat:
            content = {"message": {"role": "assistant", "content": text, **extras}}
        if self.has_logprobs and logprobs:
            content["logprobs"] = [encode_logprobs(entry) for entry in logprobs]
        return {"model": self.model, "created_at": timestamp(), **content, "done": False}

    def last(self, line: Line, reason: str, usage: Usage | None = None) -> Line:
        """The line as the last one, with what it all took; durations are in nanoseconds."""
        line = {**line, "done": True, "done_reason": reason}
        if self.context:
            line["context"] = self.context
        if usage is None:
            return line
        return {
            **line,
            **self.figures(usage.n_prompt_tokens),
            "prompt_eval_duration": round(usage.prompt_s * 1e9),
            "eval_count": usage.n_completion_tokens,
            "eval_duration": round(usage.decode_s * 1e9),
        }

    def figures(self, n_prompt_tokens: int) -> Line:
        """What every answer of a model says of its work."""
        return {"total_duration": self.age_ns, "load_duration": self.load_ns, "prompt_eval_count": n_prompt_tokens}


@dataclass(slots=True)
class Encoder:
    """Events -> lines. A call's line comes when the call is whole."""

    envelope: Envelope
    media_type: str = MEDIA_TYPE
    heartbeat: bytes = b""
    _reason: FinishReason = FinishReason.STOP
    _call: types.CallStarted | None = None
    _arguments: list[str] = field(default_factory=list)

    def encode(self, event: Event) -> bytes:
        """The lines of one event."""
        match event:
            case types.TextDelta(text=text, logprobs=logprobs):
                line = self.envelope.line(text, logprobs=logprobs)
                ended = self._end_call() if text else b""  # a call's own log-probabilities come without text
                return ended + (frame(line) if text or "logprobs" in line else b"")
            case types.ReasoningDelta(text=text):
                return frame(self.envelope.line(thinking=text)) if text else b""
            case types.CallStarted():
                ended, self._call = self._end_call(), event
                return ended
            case types.ArgumentsDelta(text=text):
                self._arguments.append(text)
                return b""
            case types.ChoiceCompleted(reason=reason):
                self._reason = reason
                return self._end_call()
            case types.Completed(usage=usage):
                return frame(self.envelope.last(self.envelope.line(), self._reason.value, usage))
            case types.Started() | types.PromptEcho():
                return b""
            case _:
                assert_never(event)

    def encode_error(self, error: ServerError) -> bytes:
        """The stream's last line."""
        return frame(error_body(error))

    def _end_call(self) -> bytes:
        """The line of the call that was under way."""
        if self._call is None:
            return b""
        call = ToolCall(self._call.id, self._call.name, "".join(self._arguments), self._call.is_custom)
        text, calls = _encode_calls([call], self._call.call)
        self._call, self._arguments = None, []
        return frame(self.envelope.line(text, calls=calls))


def encode_completion(completion: Completion, envelope: Envelope) -> Line:
    """A whole answer."""
    (answer,) = completion.choices
    broken, calls = _encode_calls(answer.tool_calls)
    line = envelope.line(answer.text + broken, answer.reasoning, calls, answer.logprobs)
    return envelope.last(line, answer.reason.value, completion.usage)


def error_body(error: ServerError) -> Line:
    """Whole, or a stream's last line. There is no place for the field at fault but the text."""
    return {"error": named_message(error)}


def encode_error(error: ServerError) -> Response:
    """The response of an error."""
    return error_response(error, error_body(error))


def _encode_calls(calls: Sequence[ToolCall], first: int = 0) -> tuple[str, list[Line]]:
    """Calls with their arguments as objects; one whose arguments are none (cut off, say) as text, so that nothing is lost."""
    texts, encoded = [], []
    for index, call in enumerate(calls, first):
        arguments = {"input": call.arguments} if call.is_custom else parse_call(call.arguments or "{}")
        if arguments is None:
            texts.append(dump_json({"name": call.name, "arguments": call.arguments}))
        else:
            encoded.append({"id": call.id, "function": {"index": index, "name": call.name, "arguments": arguments}})
    return "".join(texts), encoded
