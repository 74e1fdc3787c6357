"""What tests of Anthropic's dialect send, and what they read of its constraints."""

from __future__ import annotations

from typing import Any

import httpx

from converters.grammar.gbnf_parser import parse_gbnf
from converters.grammar.match import Matcher, build_tables
from tests.server.fakes import Served

USER = {"role": "user", "content": "hi"}
WEATHER = {
    "name": "get_weather",
    "description": "The weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CLOCK = {"name": "mcp__clock", "type": "custom", "input_schema": {"type": "object", "properties": {}}}
CLOCK_CALL = '<tool_call>\n{"name": "mcp__clock", "arguments": {}}\n</tool_call>'
THINKER = "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


async def ask(served: Served, path: str = "", **fields: Any) -> httpx.Response:
    body = {"max_tokens": 1000, "messages": [USER], **fields}
    return await served.client.post(f"/v1/messages{path}", json=body)


def grammar_of(served: Served) -> Matcher:
    key = served.engine.requests[-1].grammar_key
    assert key is not None
    return Matcher.from_tables(build_tables(parse_gbnf(served.engine.grammars[key])))
