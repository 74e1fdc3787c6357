"""Tools through HTTP: who may be called, what reaches the engine, and calls in whole answers and streams."""

from __future__ import annotations

import json
from typing import Any

import pytest

from converters.grammar.gbnf_parser import parse_gbnf
from converters.grammar.match import Matcher, build_tables
from server.engine.messages import FinishReason
from tests.server.api.sse import events
from tests.server.fakes import FakeEngine, Served, serve, with_info


def function(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


WEATHER = function("get_weather", city={"type": "string"})
CLOCK = function("mcp__a.b/c-d:e")
CUSTOM = {
    "type": "custom",
    "custom": {
        "name": "calc",
        "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[0-9+]+"}},
    },
}
TOOLS = [WEATHER, CLOCK, CUSTOM]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln \\"x\\""}}\n</tool_call>'
CLOCK_CALL = '<tool_call>\n{"name": "mcp__a.b/c-d:e", "arguments": {}}\n</tool_call>'
CUSTOM_CALL = '<tool_call>\n{"name": "calc", "arguments": {"input": "1+2"}}\n</tool_call>'
FORCED: list[Any] = [
    "required",
    {"type": "function", "function": {"name": "get_weather"}},
    {"type": "custom", "custom": {"name": "calc"}},
    {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [WEATHER]}},
]


def says(text: str, size: int = 3, **changes: Any) -> FakeEngine:
    """An engine that says `text` in pieces of `size` characters."""
    return FakeEngine(pieces=[text[i : i + size] for i in range(0, len(text), size)], **changes)


def accumulate(text: str) -> tuple[dict[str, Any], str | None]:
    """The message that a stream's deltas make, checked as OpenAI's accumulator has it, and the finish reason."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": {}}
    reason = None
    for event in events(text)[:-1]:
        (choice,) = event["choices"]
        reason = choice["finish_reason"] or reason
        delta = choice["delta"]
        for key in ("content", "reasoning_content"):
            message[key] += delta.get(key) or ""
        for part in delta.get("tool_calls", ()):
            assert isinstance(part["index"], int)
            kind = "custom" if "custom" in part else "function"
            key = "input" if kind == "custom" else "arguments"
            if part["index"] not in message["tool_calls"]:
                assert part["type"] == kind
                assert part[kind][key] == ""
                message["tool_calls"][part["index"]] = {"id": part["id"], "type": kind, kind: dict(part[kind])}
            else:
                assert set(part) == {"index", kind}
                assert set(part[kind]) == {key}
                message["tool_calls"][part["index"]][kind][key] += part[kind][key]
    return message, reason


@pytest.mark.parametrize("choice", FORCED)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_forced_call_is_held_to_a_grammar(choice: Any, stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gramserve.constraint")
    async with serve(says(CALL)) as served:
        reply = await served.chat(tools=TOOLS, tool_choice=choice, stream=stream, guided_regex="a")
        assert reply.status_code == 200, reply.text
        (request,) = served.engine.requests
        assert request.grammar_key is not None
        grammar = served.engine.grammars[request.grammar_key]
        assert "tool_call" in grammar
        assert ("get_weather" in grammar) == ("calc" not in json.dumps(choice))
        assert ("mcp__a.b/c-d:e" in grammar) == (choice == "required")
        assert "source=tool_choice type=tool" in caplog.text


async def test_a_forced_call_is_still_checked_for_conflicts(served: Served) -> None:
    reply = await served.chat(tools=TOOLS, tool_choice="required", guided_regex="a", grammar='root ::= "a"')
    assert reply.status_code == 400
    assert "only one of" in reply.json()["error"]["message"]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
async def test_calls_in_both_modes(size: int) -> None:
    text = f"Let me see.\n{CALL}\n{CLOCK_CALL}\n{CUSTOM_CALL}"
    async with serve(says(text, size)) as served:
        choice = (await served.chat(tools=TOOLS)).json()["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        message = choice["message"]
        assert message["content"] == "Let me see."
        first, second, third = message["tool_calls"]
        assert json.loads(first["function"]["arguments"]) == {"city": 'Köln "x"'}
        assert second["function"] == {"name": "mcp__a.b/c-d:e", "arguments": "{}"}
        assert third["custom"] == {"name": "calc", "input": "1+2"}
        assert third["type"] == "custom"
        assert len({call["id"] for call in message["tool_calls"]}) == 3
        streamed, reason = accumulate((await served.chat(tools=TOOLS, stream=True)).text)
        assert reason == "tool_calls"
        assert streamed["content"] == message["content"]
        for mine, theirs in zip(streamed["tool_calls"].values(), message["tool_calls"], strict=True):
            assert {**mine, "id": ""} == {**theirs, "id": ""}


async def test_content_is_null_beside_calls_alone() -> None:
    async with serve(says(CALL)) as served:
        assert (await served.chat(tools=TOOLS)).json()["choices"][0]["message"]["content"] is None


async def test_a_cut_call_is_length() -> None:
    async with serve(says(CALL[:-20], reason=FinishReason.LENGTH)) as served:
        choice = (await served.chat(tools=TOOLS)).json()["choices"][0]
        assert choice["finish_reason"] == "length"
        assert choice["message"]["tool_calls"][0]["function"]["name"] == "get_weather"


async def test_without_tools_the_markup_is_content(served: Served) -> None:
    async with serve(says(CALL)) as served:
        for fields in ({}, {"tools": TOOLS, "tool_choice": "none"}):
            assert (await served.chat(**fields)).json()["choices"][0]["message"]["content"] == CALL


async def test_auto_is_free_and_beside_a_constraint_either() -> None:
    async with serve(says(CALL)) as served:
        await served.chat(tools=TOOLS)
        free = served.engine.requests[-1]
        assert free.grammar_key is None
        await served.chat(tools=[WEATHER], guided_choice=["sunny"])
        key = served.engine.requests[-1].grammar_key
        assert key is not None
        assert "sunny" in served.engine.grammars[key]
        assert "get_weather" in served.engine.grammars[key]


@pytest.mark.parametrize(
    ("choice", "parallel", "is_many"),
    [("required", None, True), ("required", False, False), (FORCED[1], None, False), (FORCED[1], True, True)],
)
async def test_how_many_calls(served: Served, choice: Any, parallel: bool | None, is_many: bool) -> None:
    await served.chat(tools=[WEATHER], tool_choice=choice, parallel_tool_calls=parallel)
    key = served.engine.requests[-1].grammar_key
    assert key is not None
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    matcher = Matcher.from_tables(build_tables(parse_gbnf(served.engine.grammars[key])))
    assert matcher.accepts(call)
    assert matcher.accepts(f"{call}\n{call}") == is_many


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice", "unknown_tool"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice", None),
        ({"tool_choice": "required"}, "tool_choice", None),
        ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice", None),
        ({"tools": TOOLS, "tool_choice": 5}, "tool_choice", "invalid_type"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "x", "tools": []}}},
         "tool_choice", None),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported_parameter"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "invalid_type"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name", "invalid_type"),
        ({"tools": "get"}, "tools", "invalid_type"),
        ({"tools": [function("x" * 300_000)]}, "tools", "limit_exceeded"),
        ({"tools": [{"type": "custom", "custom": {"name": "c", "format": {"type": "grammar", "grammar": {
            "syntax": "ebnf", "definition": "x"}}}}]}, "tools[0].custom.format.grammar.syntax", None),
        ({"tools": [WEATHER, function("bad", a={"type": "strng"})]}, "tools[1].function.parameters.properties.a",
         "invalid_constraint"),
        ({"tools": [WEATHER, function("bad", a={"type": "strng"})], "tool_choice": "required"},
         "tools[1].function.parameters.properties.a", "invalid_constraint"),
        ({"tools": [WEATHER, WEATHER], "tool_choice": "required"}, "tools[1].function.name", "invalid_constraint"),
    ],
)  # fmt: skip
async def test_what_is_wrong_with_tools_is_named(served: Served, fields: dict[str, Any], param: str, code: str | None) -> None:
    reply = await served.chat(**fields)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"].startswith(param)
    assert reply.json()["error"]["code"] == code


async def test_odd_parameters_are_no_parameters(served: Served) -> None:
    tool = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": [], "required": []}}}
    for choice in ("auto", "required"):
        assert (await served.chat(tools=[tool], tool_choice=choice)).status_code == 200


UNKNOWN = "{% for t in tools %}<tool_call><arg_key>{{ t.function.name }}{% endfor %}"


async def test_a_model_whose_format_is_unknown() -> None:
    async with serve(says(CALL, info=with_info(chat_template=UNKNOWN))) as served:
        assert (await served.chat(tools=TOOLS)).json()["choices"][0]["message"]["content"] == CALL
        reply = await served.chat(tools=TOOLS, tool_choice="required")
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "tool_choice")


async def test_a_template_without_tools_gets_them_described(served: Served) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"X"}'}}]},
        {"role": "tool", "tool_call_id": "c", "content": "20C"},
    ]  # fmt: skip
    await served.chat(messages=messages, tools=TOOLS)
    prompt = str(served.engine.requests[-1].prompt)
    assert prompt.index("Be brief.") < prompt.index('"name": "get_weather"') < prompt.index("Weather?")
    assert '{"name": "get_weather", "arguments": {"city": "X"}}' in prompt
    assert prompt.index("Weather?") < prompt.index("<tool_response>\n20C")


class _KnowsMarkers(FakeEngine):
    """The markers are one control token each."""

    async def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> tuple[int, ...]:
        return (900,) if parse_special else (1, 2, 3)


async def test_markers_that_are_control_tokens_are_named_as_tokens() -> None:
    async with serve(_KnowsMarkers(pieces=[CALL])) as served:
        await served.chat(tools=[WEATHER], tool_choice="required")
        key = served.engine.requests[-1].grammar_key
        assert key is not None
        assert "<[900]>" in served.engine.grammars[key]


THINKER = "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"


@pytest.mark.parametrize("size", [1, 3, 100])
async def test_reasoning_comes_back_apart(size: int) -> None:
    engine = says("<think>\nhmm, <b\n</think>\n\nYes.", size, info=with_info(chat_template=THINKER))
    async with serve(engine) as served:
        message = (await served.chat()).json()["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("hmm, <b", "Yes.")
        streamed, reason = accumulate((await served.chat(stream=True)).text)
        assert (streamed["reasoning_content"], streamed["content"], reason) == ("hmm, <b", "Yes.", "stop")


async def test_reasoning_that_the_prompt_has_opened() -> None:
    engine = says("hmm</think>Yes.", info=with_info(chat_template="x</think>{{ '<think>\n' }}"))
    async with serve(engine) as served:
        message = (await served.chat()).json()["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("hmm", "Yes.")


async def test_logprobs_stay_whole_beside_calls() -> None:
    async with serve(says(CALL, 4)) as served:
        choice = (await served.chat(tools=TOOLS, logprobs=True)).json()["choices"][0]
        assert "".join(bytes(entry["bytes"]).decode() for entry in choice["logprobs"]["content"]) == CALL


async def test_every_choice_has_calls_of_its_own() -> None:
    async with serve(says(CALL)) as served:
        choices = (await served.chat(tools=TOOLS, n=2)).json()["choices"]
        ids = [choice["message"]["tool_calls"][0]["id"] for choice in choices]
        assert len(set(ids)) == 2


async def test_fractions_in_tools_and_calls_reach_the_prompt(served: Served) -> None:
    tool = function("share", part={"type": "number", "minimum": 0.25})
    call = {"id": "c", "type": "function", "function": {"name": "share", "arguments": '{"part": 0.75}'}}
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}]
    assert (await served.chat(tools=[tool], messages=messages)).status_code == 200
    for number in ("0.25", "0.75"):
        assert number in str(served.engine.requests[-1].prompt)
