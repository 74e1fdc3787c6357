"""Events -> the items of a response and the events of its stream: Encoder.encode, encode_completion, encode_error.

One item is open at a time. A whole answer is what the same events made, so the two can't differ.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import assert_never

from server.api.logprobs import encode_logprobs
from server.api.openai_shape import draw_id, encode_usage, error_body
from server.api.responses.items import seal
from server.api.responses.request import Asked
from server.api.sse import COMMENT, frame
from server.chat import types
from server.errors import ServerError

_KINDS = {
    # type of an item → how its id begins, what the events of its text are called, where a call has its text
    "message": ("msg", "output_text", ""),
    "reasoning": ("rs", "reasoning_text", ""),
    "function_call": ("fc", "function_call_arguments", "arguments"),
    "custom_tool_call": ("ctc", "custom_tool_call_input", "input"),
}


@dataclass(slots=True)
class _OpenItem:
    """The item that is being written."""

    item: dict[str, Any]
    pieces: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All of it that has come."""
        return "".join(self.pieces)

    @property
    def part(self) -> dict[str, Any]:
        """The content of a message or of reasoning, as far as it has come."""
        if self.item["type"] == "reasoning":
            return {"type": "reasoning_text", "text": self.text}
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": list(self.logprobs)}


@dataclass(slots=True)
class Encoder:
    """Events -> frames. `keep` takes the response when it is over."""

    asked: Asked
    keep: Callable[[types.JsonObject], None]
    id: str = field(default_factory=lambda: draw_id("resp"))
    created_s: int = field(default_factory=lambda: int(time.time()))
    media_type: str = "text/event-stream"
    heartbeat: bytes = COMMENT
    _model: str = ""
    _n_sent: int = 0
    _output: list[dict[str, Any]] = field(default_factory=list)
    _open: _OpenItem | None = None
    _logprobs: list[dict[str, Any]] = field(default_factory=list)  # of text that is still to come
    _status: str = "completed"
    _final: dict[str, Any] = field(default_factory=dict)

    def encode(self, event: types.Event) -> bytes:
        """The frames of one event."""
        match event:
            case types.Started(model=model):
                self._model = model
                begun = self._response("in_progress")
                return self._send("created", response=begun) + self._send("in_progress", response=begun)
            case types.TextDelta(text=text, logprobs=logprobs):
                return self._text(text, logprobs)
            case types.ReasoningDelta(text=text):
                return self._begin("reasoning", summary=[], content=[]) + self._delta(text, content_index=0)
            case types.CallStarted():
                return self._call(event)
            case types.ArgumentsDelta(text=text):
                return self._delta(text)
            case types.ChoiceCompleted(reason=reason):
                self._status = "incomplete" if reason is types.FinishReason.LENGTH else "completed"
                begun_empty = b"" if self._output or self._open else self._begin_message()
                return begun_empty + self._end(self._status)
            case types.Completed(usage=usage):
                return self._finish(usage)
            case types.PromptEcho():
                return b""
            case _:
                assert_never(event)

    def encode_completion(self, _completion: types.Completion) -> dict[str, Any]:
        """The whole answer, once every event went through `watch`."""
        return self._final

    async def watch(self, events: AsyncGenerator[types.Event, None]) -> AsyncGenerator[types.Event, None]:
        """The same events, encoded on their way for `encode_completion`."""
        async with aclosing(events):
            async for event in events:
                self.encode(event)
                yield event

    def encode_error(self, error: ServerError) -> bytes:
        """The end of a stream that failed: the error, flat as OpenAI documents it and nested as it sends it; the response."""
        body = error_body(error)["error"]
        code = body["code"] if error.status < 500 else "server_error"
        flat = {name: body[name] for name in ("code", "message", "param")}
        failed = self._response("failed", error={"code": code, "message": body["message"]})
        return self._frame("error", {**flat, "error": body}) + self._send("failed", response=failed)

    # ---- items

    def _text(self, text: str, logprobs: Sequence[types.TokenLogprobs]) -> bytes:
        """Log-probabilities may come ahead of their text."""
        self._logprobs += [encode_logprobs(entry) for entry in logprobs]
        if not text:
            return b""
        carried = self._carried(text)
        begun = self._begin_message()
        if self._open is not None:
            self._open.logprobs += carried
        return begun + self._delta(text, content_index=0, logprobs=carried)

    def _carried(self, text: str) -> list[dict[str, Any]]:
        """The log-probabilities that come with `text`: all that wait, but of those of another item, and its markup, none."""
        waiting, self._logprobs = self._logprobs, []
        if self._open is None or self._open.item["type"] == "message":
            return waiting
        n_bytes, first = len(text.encode("utf-8")), len(waiting)
        while n_bytes > 0 and first > 0:
            first -= 1
            n_bytes -= len(waiting[first]["bytes"])
        return waiting[first:]

    def _call(self, event: types.CallStarted) -> bytes:
        kind = "custom_tool_call" if event.is_custom else "function_call"
        fields = {"call_id": event.id, "name": event.name, _KINDS[kind][2]: ""}
        if event.name in self.asked.names:
            fields["namespace"], fields["name"] = self.asked.names[event.name]
        return self._end() + self._begin(kind, **fields)

    def _begin_message(self) -> bytes:
        begun = self._begin("message", role="assistant", content=[])
        empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        return begun and begun + self._send_inside("content_part.added", content_index=0, part=empty)

    def _begin(self, kind: str, **fields: Any) -> bytes:
        """Open an item, unless one of that kind is open."""
        if self._open is not None and self._open.item["type"] == kind:
            return b""
        ended = self._end()
        self._open = _OpenItem({"id": draw_id(_KINDS[kind][0]), "type": kind, "status": "in_progress", **fields})
        return ended + self._send("output_item.added", output_index=len(self._output), item=self._open.item)

    def _delta(self, text: str, **fields: Any) -> bytes:
        assert self._open is not None
        self._open.pieces.append(text)
        return self._send_inside(f"{_KINDS[self._open.item['type']][1]}.delta", **fields, delta=text)

    def _end(self, status: str = "completed") -> bytes:
        """The events that end the open item, if there is one."""
        if self._open is None:
            return b""
        opened, kind = self._open, self._open.item["type"]
        _, events, key = _KINDS[kind]
        change: dict[str, Any] = {key: opened.text} if key else {"content": [opened.part]}
        match kind:
            case "message":
                ended = self._send_inside(f"{events}.done", content_index=0, text=opened.text, logprobs=opened.logprobs)
                ended += self._send_inside("content_part.done", content_index=0, part=opened.part)
            case "reasoning":
                ended = self._send_inside(f"{events}.done", content_index=0, text=opened.text)
                if "reasoning.encrypted_content" in self.asked.fields.include:
                    change["encrypted_content"] = seal(opened.text)
            case _:
                ended = self._send_inside(f"{events}.done", **change, name=opened.item["name"])
        item = {**opened.item, **change, "status": status}
        ended += self._send("output_item.done", output_index=len(self._output), item=item)
        self._output.append(item)
        self._open = None
        return ended

    # ---- the response and its events

    def _finish(self, usage: types.Usage) -> bytes:
        is_cut = self._status == "incomplete"
        end = {"incomplete_details": {"reason": "max_output_tokens"}} if is_cut else {"completed_at": int(time.time())}
        tokens = encode_usage(usage, "input", "output")
        tokens["input_tokens_details"]["cache_write_tokens"] = 0  # that the openai package wants
        self._final = self._response(self._status, usage=tokens, **end)
        self.keep(self._final)
        return self._send(self._status, response=self._final)

    def _response(self, status: str, **changes: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created_s,
            "completed_at": None,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self._model,
            "output": list(self._output),
            "usage": None,
            **self.asked.repeated,
            **changes,
        }

    def _send_inside(self, name: str, /, **fields: Any) -> bytes:
        """An event of the open item."""
        assert self._open is not None
        return self._send(name, item_id=self._open.item["id"], output_index=len(self._output), **fields)

    def _send(self, name: str, /, **fields: Any) -> bytes:
        return self._frame(f"response.{name}", fields)

    def _frame(self, kind: str, fields: dict[str, Any]) -> bytes:
        self._n_sent += 1
        return frame({"type": kind, "sequence_number": self._n_sent - 1, **fields}, kind)
