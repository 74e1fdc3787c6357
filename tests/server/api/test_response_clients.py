"""What well-known clients send to /v1/responses, each in its shape of autumn 2026."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.api import response_stream
from tests.server.api.test_responses import FILES, FORMAT, PATH, WEATHER, ask, prompt_of
from tests.server.api.test_tools import CALL, says
from tests.server.fakes import Served, serve

EXEC = {
    "type": "function", "name": "exec_command", "description": "Runs a command.", "strict": False,
    "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
}  # fmt: skip
PATCH = {
    "type": "custom", "name": "apply_patch", "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark",
               "definition": 'start: "*** Begin" LF line+\nline: /(.+)/ LF -> l\n%import common.LF'},
}  # fmt: skip
CODEX: dict[str, Any] = {
    "model": "default", "instructions": "You are Codex.", "tool_choice": "auto", "parallel_tool_calls": True, "store": False,
    "stream": True, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0198-a", "text": {"verbosity": "low"},
    "reasoning": {"effort": "medium", "summary": "auto"}, "client_metadata": {"session": "s"},
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "fix it"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "gAAAA"},
        {"type": "function_call", "name": "exec_command", "arguments": '{"cmd":"ls"}', "call_id": "call_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "a.txt"},
        {"type": "custom_tool_call", "status": "completed", "call_id": "call_2", "name": "apply_patch",
         "input": "*** Begin\nx\n"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "Done"}]},
        {"type": "function_call", "name": "read", "namespace": "mcp__files__", "arguments": "{}", "call_id": "call_3"},
        {"type": "function_call_output", "call_id": "call_3", "output": [{"type": "input_text", "text": "x"}]},
    ],
    "tools": [EXEC, PATCH, FILES, {"type": "namespace", "name": "functions", "description": "", "tools": [
        {**EXEC, "name": "update_plan", "defer_loading": False}]}],
}  # fmt: skip
AGENTS: dict[str, Any] = {
    "model": "default", "include": [], "instructions": "Use tools.", "temperature": 0.0, "tool_choice": "required",
    "parallel_tool_calls": False, "text": FORMAT, "metadata": {},
    "tools": [{**WEATHER, "description": "weather"}, {**EXEC, "name": "transfer_to_a", "strict": True}],
    "input": [
        {"content": "Weather?", "role": "user"},
        {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1", "name": "get_weather",
         "arguments": '{"city": "Rome"}'},
        {"call_id": "call_1", "output": "sunny", "type": "function_call_output"},
    ],
}  # fmt: skip
LANGCHAIN: dict[str, Any] = {
    "model": "default", "max_output_tokens": 60, "temperature": 0, "stream": True, "parallel_tool_calls": False,
    "tool_choice": {"type": "function", "name": "get_weather"}, "tools": [WEATHER],
    "input": [
        {"content": "Be brief.", "role": "system", "type": "message"},
        {"content": [{"type": "input_text", "text": "Weather?"}], "role": "user", "type": "message"},
        {"type": "message", "role": "assistant", "id": "msg_1", "content": [
            {"type": "output_text", "text": "I look.", "annotations": []}]},
        {"type": "function_call", "name": "get_weather", "arguments": '{"city": "Rome"}', "call_id": "call_1", "id": "fc_1"},
        {"type": "function_call_output", "output": "sunny", "call_id": "call_1"},
    ],
}  # fmt: skip
OPEN_WEBUI: dict[str, Any] = {
    "model": "default", "stream": True, "temperature": 0.5, "max_output_tokens": 60, "instructions": "Be brief.",
    "reasoning_effort": "low", "seed": 1, "guided_choice": ["a", "b"], "tools": [{**WEATHER, "strict": None}],
    "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "reasoning", "id": "r_1", "status": "completed", "start_tag": "<think>", "summary": None,
         "attributes": {}, "content": [{"type": "output_text", "text": "hm"}], "started_at": 1.5, "duration": 2},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "call_1", "id": "fc_1", "name": "get_weather", "arguments": '{"city": "Rome"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "sunny"}]},
        {"type": "message", "role": "user", "content": []},
    ],
}  # fmt: skip


@pytest.mark.parametrize("body", [CODEX, AGENTS, LANGCHAIN, OPEN_WEBUI], ids=["codex", "agents", "langchain", "open-webui"])
async def test_what_clients_send(served: Served, body: dict[str, Any]) -> None:
    reply = await served.client.post(PATH, json=body)
    assert reply.status_code == 200, reply.text
    if body.get("stream"):
        assert response_stream.check(reply.text)["status"] == "completed"
    prompt = prompt_of(served)
    for item in body["input"]:
        assert str(item.get("name", "")) in prompt
    assert "defer_loading" not in prompt
    forced = await served.client.post(PATH, json={**body, "stream": False, "tool_choice": "required"})
    assert forced.status_code == 200, forced.text
    assert served.engine.requests[-1].grammar_key is not None


async def test_tools_of_the_default_namespace_have_no_other_name() -> None:
    async with serve(says(CALL.replace("get_weather", "update_plan"))) as served:
        (call,) = (await ask(served, tools=CODEX["tools"]))["output"]
        assert call["name"] == "update_plan"
        assert "namespace" not in call
