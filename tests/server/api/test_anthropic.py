"""Anthropic's dialect over a fake engine: answers whole and streamed, which must be the same, and Claude Code's course."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from server.engine.messages import FinishReason
from server.errors import ServerError
from tests.server.api.anthropic_message import CLOCK, CLOCK_CALL, THINKER, WEATHER, ask, grammar_of, text
from tests.server.fakes import FakeEngine, Served, serve, with_info

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln \\"x\\""}}\n</tool_call>'
WEATHER_USE = {"type": "tool_use", "name": "get_weather", "input": {"city": 'Köln "x"'}}
CLOCK_USE = {"type": "tool_use", "name": "mcp__clock", "input": {}}


def says(text: str, size: int = 3, **changes: Any) -> FakeEngine:
    """An engine that says `text` in pieces of `size` characters."""
    return FakeEngine(pieces=[text[i : i + size] for i in range(0, len(text), size)], **changes)


# ---- answers, in both directions


@dataclass(frozen=True)
class Case:
    """What the model writes, the fields of the request, and the message that must come, its blocks' ids apart."""

    written: str
    content: list[dict[str, Any]]
    stop_reason: str = "end_turn"
    fields: tuple[tuple[str, Any], ...] = ()
    reason: FinishReason = FinishReason.STOP
    template: str | None = None


def thinking(value: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": value}


TOOLS = (("tools", [WEATHER, CLOCK]),)
THINKING = (("thinking", {"type": "enabled", "budget_tokens": 100}),)
CASES = {
    "text": Case("Hello", [text("Hello")]),
    "nothing": Case("", []),
    "line ends": Case("a\u2028b\x85c\nd", [text("a\u2028b\x85c\nd")]),
    "cut": Case("Hel", [text("Hel")], "max_tokens", reason=FinishReason.LENGTH),
    "at the context's end": Case(
        "Hel", [text("Hel")], "model_context_window_exceeded", (("max_tokens", 9999),), FinishReason.LENGTH),
    "within the context": Case("Hello", [text("Hello")], "end_turn", (("max_tokens", 9999),)),
    "a call": Case(CALL, [WEATHER_USE], "tool_use", TOOLS),
    "text and calls": Case(
        f"Let me see.\n{CALL}\n{CLOCK_CALL}", [text("Let me see."), WEATHER_USE, CLOCK_USE], "tool_use", TOOLS),
    "a forced call": Case(CALL, [WEATHER_USE], "tool_use", (*TOOLS, ("tool_choice", {"type": "any"}))),
    "markup without tools": Case(CALL, [text(CALL)]),
    "a cut call": Case(CALL[:-25], [{**WEATHER_USE, "input": {}}], "max_tokens", TOOLS, FinishReason.LENGTH),
    "thinking": Case(
        "<think>\nhmm, <b\n</think>\n\nYes.", [thinking("hmm, <b"), text("Yes.")], fields=THINKING, template=THINKER),
    "thinking and a call": Case(
        f"<think>\nhmm\n</think>\n\n{CALL}", [thinking("hmm"), WEATHER_USE], "tool_use", TOOLS,
        template=THINKER + "{# <tool_call> #}"),
    "thinking told of": Case(
        "<think>\nhmm\n</think>\n\nYes.",
        [thinking(""), text("Yes.")],
        fields=(("thinking", {"type": "adaptive", "display": "omitted"}),),
        template=THINKER,
    ),
    "thinking alone": Case("<think>\nhmm", [thinking("hmm")], "max_tokens", THINKING, FinishReason.LENGTH, THINKER),
}  # fmt: skip
DELTAS = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}
FIELDS = {"text": "text", "thinking": "thinking", "tool_use": "partial_json"}


def read_stream(data: str) -> dict[str, Any]:
    """The message of a stream, whose order of events is checked as strictly as it is promised."""
    events = []
    for block in data.removesuffix("\n\n").split("\n\n"):
        name, body = block.split("\n")
        event = json.loads(body.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    assert [event["type"] for event in events[:2]] == ["message_start", "ping"]
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    message = dict(events[0]["message"])
    assert (message["content"], message["stop_reason"], message["usage"]["output_tokens"]) == ([], None, 0)
    rest = events[2:-2]
    while rest:
        rest = _read_block(rest, message["content"])
    message |= events[-2]["delta"]
    message["usage"] = {**message["usage"], **events[-2]["usage"]}
    return message


def _read_block(events: list[dict[str, Any]], content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Take the events of the next block, put it into `content`; the events after it."""
    start, *rest = events
    assert (start["type"], start["index"]) == ("content_block_start", len(content))
    block = start["content_block"]
    kind = block["type"]
    pieces = []
    while rest[0]["type"] == "content_block_delta":
        event, *rest = rest
        assert event["index"] == len(content)
        if event["delta"]["type"] == "signature_delta":
            assert kind == "thinking"
            block["signature"] = event["delta"]["signature"]
            assert rest[0]["type"] == "content_block_stop"
            break
        assert event["delta"]["type"] == DELTAS[kind]
        pieces.append(event["delta"][FIELDS[kind]])
    stop, *rest = rest
    assert (stop["type"], stop["index"]) == ("content_block_stop", len(content))
    if kind == "tool_use":
        assert block["input"] == {}
        try:
            block["input"] = json.loads("".join(pieces))
        except ValueError:  # cut off
            block["input"] = {}
    else:
        block[FIELDS[kind]] += "".join(pieces)
    content.append(block)
    return rest


def checked(message: dict[str, Any]) -> dict[str, Any]:
    """What two answers to one request have in common: all but ids, whose forms are checked."""
    assert message["id"].startswith("msg_")
    assert (message["type"], message["role"], message["model"]) == ("message", "assistant", "fake")
    blocks = [dict(block) for block in message["content"]]
    ids = [block.pop("id") for block in blocks if block["type"] == "tool_use"]
    assert all(call.startswith("toolu_") for call in ids)
    assert len(set(ids)) == len(ids)
    assert all(block.pop("signature") for block in blocks if block["type"] == "thinking")
    return {**message, "id": "", "content": blocks}


@pytest.mark.parametrize("name", CASES)
async def test_an_answer_whole_and_streamed(name: str) -> None:
    case = CASES[name]
    info = with_info(chat_template=case.template, n_ctx_slot=4000)
    async with serve(FakeEngine(reason=case.reason, info=info)) as served:
        for size in (1, 4, 1000):
            served.engine.pieces = says(case.written, size).pieces
            reply = await ask(served, **dict(case.fields))
            assert reply.status_code == 200, reply.text
            whole = checked(reply.json())
            assert whole["content"] == case.content
            assert (whole["stop_reason"], whole["stop_sequence"]) == (case.stop_reason, None)
            streamed = await ask(served, "?beta=true", **dict(case.fields), stream=True)
            assert streamed.headers["content-type"].startswith("text/event-stream")
            assert checked(read_stream(streamed.text)) == whole
            for answer in (reply, streamed):
                assert answer.headers["request-id"].startswith("req_")


async def test_usage_tells_what_was_read_and_what_was_cached(served: Served) -> None:
    usage = (await ask(served)).json()["usage"]
    n_tokens = (await ask(served, "/count_tokens", max_tokens=None)).json()["input_tokens"]
    assert usage["cache_read_input_tokens"] == 1
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == n_tokens
    assert usage["output_tokens"] == 2


async def test_an_error_after_the_first_byte_is_an_event() -> None:
    def fail(_request: Any, event: Any) -> None:
        if type(event).__name__ == "Finished":
            raise ServerError("late")

    async with serve(FakeEngine(pieces=["x"], before=fail)) as served:
        reply = await ask(served, stream=True)
        name, data = reply.text.removesuffix("\n\n").split("\n\n")[-1].split("\n")
        assert name == "event: error"
        body = json.loads(data.removeprefix("data: "))
        assert (body["type"], body["error"]["type"], body["error"]["message"]) == ("error", "api_error", "late")
        assert body["request_id"] == reply.headers["request-id"]


# ---- what Claude Code sends, in order

CLAUDE_CODE = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
    "authorization": "Bearer none",
    "user-agent": "claude-cli/2.1.177 (external, cli)",
    "x-app": "cli",
    "x-stainless-retry-count": "0",
}
READ = {
    "name": "Read",
    "description": "Reads a file.",
    "input_schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "file_path": {"description": "The absolute path", "type": "string"},
            "limit": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991},
        },
        "required": ["file_path"],
        "additionalProperties": False,
    },
}
READ_CALL = '<tool_call>\n{"name": "Read", "arguments": {"file_path": "/a.py"}}\n</tool_call>'


def agent_request(cch: str, *turns: dict[str, Any]) -> dict[str, Any]:
    """A request of its main loop."""
    line = f"x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch={cch};"
    cached = {"cache_control": {"type": "ephemeral"}}
    return {
        "model": "default",
        "messages": list(turns),
        "system": [text(line), {**text("You are Claude Code."), **cached}, {**text("Rules: be brief."), **cached}],
        "tools": [READ, {**WEATHER, "cache_control": {"type": "ephemeral"}}],
        "metadata": {"user_id": json.dumps({"device_id": "d", "session_id": "s"})},
        "max_tokens": 32000,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "stream": True,
    }


async def test_what_claude_code_sends() -> None:
    info = with_info(n_ctx_slot=4000)
    async with serve(says(f"I'll look.\n{READ_CALL}", info=info)) as served:
        send = served.client
        quota = {"model": "default", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}
        assert (await send.post("/v1/messages?beta=true", json=quota, headers=CLAUDE_CODE)).status_code == 200
        schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
        title = {
            "model": "default",
            "max_tokens": 32000,
            "messages": [{"role": "user", "content": [text("fix it")]}],
            "system": [text("Write a title.")],
            "tools": [],
            "output_config": {"format": {"type": "json_schema", "schema": schema}},
            "stream": True,
        }
        assert (await send.post("/v1/messages?beta=true", json=title, headers=CLAUDE_CODE)).status_code == 200
        assert grammar_of(served).accepts('{"title": "Fix it"}')
        user_turn = {"role": "user", "content": [text("<system-reminder>…</system-reminder>"), text("fix it")]}
        reply = await send.post("/v1/messages?beta=true", json=agent_request("36ee5", user_turn), headers=CLAUDE_CODE)
        message = read_stream(reply.text)
        assert (message["stop_reason"], message["content"][1]["input"]) == ("tool_use", {"file_path": "/a.py"})
        result_turn = {"role": "user", "content": [{
            "type": "tool_result", "tool_use_id": message["content"][1]["id"], "content": "1\tprint(1)", "is_error": False,
            "cache_control": {"type": "ephemeral"}}]}  # fmt: skip
        turns = (user_turn, {"role": "assistant", "content": message["content"]}, result_turn)
        again = await send.post("/v1/messages?beta=true", json=agent_request("0aaa9", *turns), headers=CLAUDE_CODE)
        assert again.status_code == 200
        first, second = [str(request.prompt) for request in served.engine.requests[-2:]]
        assert second.startswith(first)  # so all of it is in the cache
        assert second[len(first) :].startswith(f"I'll look.\n{READ_CALL}")
        counted = {
            name: value
            for name, value in agent_request("9", *turns).items()
            if name in ("model", "messages", "tools", "system")
        }
        tokens = await send.post("/v1/messages/count_tokens?beta=true", json=counted, headers=CLAUDE_CODE)
        assert tokens.json() == {"input_tokens": len(second)}
