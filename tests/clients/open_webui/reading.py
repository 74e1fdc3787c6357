"""What Open WebUI makes of replies: its `utils/middleware.py` for streams, `utils/response.py` for Ollama's lines.

A reply that it would stumble over is an AssertionError or a KeyError here. Nothing in here knows what a reply should say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

COUNTS = ("prompt_eval_count", "eval_count", "prompt_eval_duration", "eval_duration", "total_duration", "load_duration")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. arguments: JSON, as the API wrote it, or a dump of its object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What becomes a message there. usage: tokens of the prompt and of the reply; None where none came."""

    content: str
    reasoning: str
    calls: tuple[Call, ...]
    usage: tuple[int, int] | None


def read_reply(reply: httpx.Response, path: str, *, is_stream: bool) -> Reply:
    """A reply with status 200 to a request of `path`."""
    assert reply.status_code == 200, reply.text
    match path, is_stream:
        case "/v1/chat/completions", True:
            return _chunks(list(_server_sent(reply)))
        case "/v1/chat/completions", False:
            return _whole_chat(reply.json())
        case "/api/chat", _:
            return _lines([json.loads(line) for line in reply.text.splitlines()])
        case "/v1/responses", True:
            return _events(list(_server_sent(reply)))
        case "/v1/responses", False:
            return _output(reply.json())
    raise AssertionError(path)


def _server_sent(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    """Of any other content type it waits for JSON; lines without `data:` are passed over, the rest must be JSON objects."""
    assert reply.headers["content-type"].startswith("text/event-stream")
    for line in reply.text.splitlines():
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data and data != "[DONE]":
            event = json.loads(data)
            assert "error" not in event, event
            yield event


def _chunks(chunks: list[dict[str, Any]]) -> Reply:
    deltas = []
    usage = None
    for chunk in chunks:
        assert not {"event", "selected_model_id", "type"} & set(chunk)
        assert isinstance(chunk.get("timings", {}), dict)
        usage = chunk.get("usage") or usage
        deltas += [choice["delta"] for choice in chunk["choices"]]
    content = "".join(delta.get("content") or "" for delta in deltas)
    reasoning = "".join(delta.get("reasoning_content") or delta.get("reasoning") or "" for delta in deltas)
    calls: dict[int, list[str]] = {}
    for part in (part for delta in deltas for part in delta.get("tool_calls") or ()):
        assert type(part["index"]) is int  # others are dropped
        call = calls.setdefault(part["index"], ["", "", ""])
        call[0] = call[0] or part["id"]
        call[1] = call[1] or part["function"]["name"]
        call[2] += part["function"].get("arguments") or ""
    return Reply(content, reasoning, tuple(Call(*call) for call in calls.values()), _tokens(usage))


def _whole_chat(body: dict[str, Any]) -> Reply:
    (choice,) = body["choices"]  # a task with any other number is dropped
    message = choice["message"]
    calls = tuple(Call(call["id"], **call["function"]) for call in message.get("tool_calls") or ())
    return Reply(message["content"] or "", message.get("reasoning_content") or "", calls, _tokens(body["usage"]))


def _tokens(usage: dict[str, Any] | None) -> tuple[int, int] | None:
    return None if usage is None else (usage["prompt_tokens"], usage["completion_tokens"])


def _lines(lines: list[dict[str, Any]]) -> Reply:
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert all(type(lines[-1][name]) is int for name in COUNTS)
    messages = [line["message"] for line in lines]
    calls = []
    for call in (call for message in messages for call in message.get("tool_calls") or ()):
        assert type(call["function"]["index"]) is int
        assert isinstance(call["function"]["arguments"], dict)
        calls.append(Call(call["id"], call["function"]["name"], json.dumps(call["function"]["arguments"])))
    content = "".join(message.get("content") or "" for message in messages)
    reasoning = "".join(message.get("thinking") or "" for message in messages)
    return Reply(content, reasoning, tuple(calls), (lines[-1]["prompt_eval_count"], lines[-1]["eval_count"]))


def _events(events: list[dict[str, Any]]) -> Reply:
    """Deltas are shown as they come; the last event's output is what stays, so both must say the same."""
    last = events[-1]
    assert last["type"] in ("response.completed", "response.incomplete")
    reply = _output(last["response"])
    shown = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert shown == reply.content
    return reply


def _output(response: dict[str, Any]) -> Reply:
    items = response["output"]
    parts = {kind: "".join(_texts(items, kind)) for kind in ("message", "reasoning")}
    calls = tuple(Call(item["call_id"], item["name"], item["arguments"]) for item in items if item["type"] == "function_call")
    usage = response["usage"]
    return Reply(parts["message"], parts["reasoning"], calls, (usage["input_tokens"], usage["output_tokens"]))


def _texts(items: list[dict[str, Any]], kind: str) -> Iterator[str]:
    return (part["text"] for item in items if item["type"] == kind for part in item.get("content") or ())
