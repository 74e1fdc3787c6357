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

from server.api.openai_shape import encode_logprobs, error_body
from server.api.responses.items import draw_id, seal
from server.api.responses.request import Asked
from server.api.sse import frame
from server.chat import types
from server.errors import ServerError


def encode_usage(usage: types.Usage) -> dict[str, Any]:
    """Tokens of the whole answer."""
    return {
        "input_tokens": usage.n_prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.n_cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.n_completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.n_reasoning_tokens},
        "total_tokens": usage.n_prompt_tokens + usage.n_completion_tokens,
    }


@dataclass(slots=True)
class _OpenItem:
    """The item that is being written. `events` begins the names of its text's events; `key`: where a call has its text."""

    item: dict[str, Any]
    events: str
    key: str = ""
    text: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def part(self) -> dict[str, Any]:
        """The content of a message or of reasoning, as far as it has come."""
        text = {"type": self.events, "text": "".join(self.text)}
        return text if self.events == "reasoning_text" else {**text, "annotations": [], "logprobs": self.logprobs}


@dataclass(slots=True)
class Encoder:
    """Events -> frames. `keep` takes the response when it is over."""

    asked: Asked
    keep: Callable[[types.JsonObject], None]
    id: str = field(default_factory=lambda: draw_id("resp"))
    created_s: int = field(default_factory=lambda: int(time.time()))
    media_type: str = "text/event-stream"
    _model: str = ""
    _n_sent: int = 0
    _output: list[dict[str, Any]] = field(default_factory=list)
    _open: _OpenItem | None = None
    _logprobs: list[dict[str, Any]] = field(default_factory=list)  # of text that is still to come
    _is_cut: bool = False
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
                return self._begin("reasoning") + self._delta(text, content_index=0)
            case types.CallStarted():
                return self._begin_call(event)
            case types.ArgumentsDelta(text=text):
                return self._delta(text)
            case types.ChoiceCompleted(reason=reason):
                self._is_cut = reason is types.FinishReason.LENGTH
                is_empty = not self._output and self._open is None
                return (self._begin("message") if is_empty else b"") + self._end(self._status)
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
        begun = self._begin("message")
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

    def _begin(self, kind: str) -> bytes:
        """Open a message or reasoning, unless that is what is open."""
        if self._open is not None and self._open.item["type"] == kind:
            return b""
        ended = self._end()
        if kind == "reasoning":
            item = {"id": draw_id("rs"), "type": kind, "status": "in_progress", "summary": [], "content": []}
            return ended + self._add(_OpenItem(item, "reasoning_text"))
        item = {"id": draw_id("msg"), "type": kind, "status": "in_progress", "role": "assistant", "content": []}
        opened = _OpenItem(item, "output_text")
        part = dict(opened.part, logprobs=[])
        return ended + self._add(opened) + self._send_inside("content_part.added", content_index=0, part=part)

    def _begin_call(self, event: types.CallStarted) -> bytes:
        kind, prefix, events, key = "function_call", "fc", "function_call_arguments", "arguments"
        if event.is_custom:
            kind, prefix, events, key = "custom_tool_call", "ctc", "custom_tool_call_input", "input"
        item = {"id": draw_id(prefix), "type": kind, "status": "in_progress", "call_id": event.id, "name": event.name, key: ""}
        if event.name in self.asked.names:
            item["namespace"], item["name"] = self.asked.names[event.name]
        return self._end() + self._add(_OpenItem(item, events, key))

    def _add(self, opened: _OpenItem) -> bytes:
        self._open = opened
        return self._send("output_item.added", output_index=len(self._output), item=opened.item)

    def _delta(self, text: str, **fields: Any) -> bytes:
        assert self._open is not None
        self._open.text.append(text)
        return self._send_inside(f"{self._open.events}.delta", **fields, delta=text)

    def _end(self, status: str = "completed") -> bytes:
        """The events that end the open item."""
        opened = self._open
        if opened is None:
            return b""
        text, name = "".join(opened.text), f"{opened.events}.done"
        if opened.key:
            named = {"name": opened.item["name"]} if opened.key == "arguments" else {}
            ended = self._send_inside(name, **{opened.key: text}, **named)
            change: dict[str, Any] = {opened.key: text}
        elif opened.events == "output_text":
            ended = self._send_inside(name, content_index=0, text=text, logprobs=opened.logprobs)
            ended += self._send_inside("content_part.done", content_index=0, part=opened.part)
            change = {"content": [opened.part]}
        else:
            ended = self._send_inside(name, content_index=0, text=text)
            is_sealed = "reasoning.encrypted_content" in self.asked.fields.include
            change = {"content": [opened.part], **({"encrypted_content": seal(text)} if is_sealed else {})}
        item = {**opened.item, **change, "status": status}
        ended += self._send("output_item.done", output_index=len(self._output), item=item)
        self._output.append(item)
        self._open = None
        return ended

    # ---- the response and its events

    @property
    def _status(self) -> str:
        return "incomplete" if self._is_cut else "completed"

    def _finish(self, usage: types.Usage) -> bytes:
        end = {"incomplete_details": {"reason": "max_output_tokens"}} if self._is_cut else {"completed_at": int(time.time())}
        self._final = self._response(self._status, usage=encode_usage(usage), **end)
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
