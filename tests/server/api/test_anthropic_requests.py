"""Anthropic's dialect over a fake engine: what requests mean, what is refused and how, and its shape of models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from server.errors import ContextOverflow
from server.settings import RequestLimits, Settings
from tests.server.api.anthropic_message import CLOCK, CLOCK_CALL, THINKER, USER, WEATHER, ask, grammar_of, text
from tests.server.fakes import FakeEngine, Served, serve, with_info

VERSION = {"anthropic-version": "2023-06-01"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def refusing() -> AsyncIterator[Served]:
    """One app for all requests that never reach the engine."""
    async with serve() as opened:
        yield opened


one_app = pytest.mark.asyncio(loop_scope="module")


# ---- what a request means


USE = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Rome"}}
ASKED = {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, USE]}


def result(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **more}


PROMPTS: list[tuple[dict[str, Any], list[str]]] = [
    ({"system": "Be brief."}, ["system\nBe brief.<", "user\nhi<"]),
    ({"system": [{"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}}, text("brief.")]},
     ["system\nBe\n\nbrief.<"]),
    ({"system": "x-anthropic-billing-header: cc_version=2; cch=1a2b3;\nBe brief."}, ["system\nBe brief.<"]),
    ({"system": [text("x-anthropic-billing-header: cch=1a2b3;"), text("Be brief.")]}, ["system\nBe brief.<"]),
    ({"system": [text("x-anthropic-billing-header: cch=1a2b3;")]}, ["user\nhi<"]),
    ({"messages": [{"role": "user", "content": [text("a"), text("b")]}, {"role": "user", "content": "c"}]}, ["user\na\nb\nc<"]),
    ({"messages": [USER, {"role": "system", "content": "Now in verse."}]}, ["user\nhi<", "system\nNow in verse.<"]),
    ({"messages": [USER, ASKED, {"role": "user", "content": [text("and?"), result([text("20"), text("C")])]}]},
     ['Let me see.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}',
      "<tool_response>\n20\nC\n<", "user\nand?<"]),
    ({"messages": [USER, ASKED, {"role": "user", "content": [result("no such city", is_error=True)]}]},
     ["<tool_response>\nError: no such city\n<"]),
    ({"messages": [USER, ASKED, {"role": "user", "content": [result(None)]}]}, ["<tool_response>\n\n<"]),
    ({"messages": [USER, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, text("Yes.")]}, USER]},
     ["user\nhi<", "assistant\nYes.<"]),
    *(({"messages": [USER, {"role": "assistant", "content": content}]}, ["user\nhi<|im_end|>\n<|im_start|>assistant\n"])
      for content in ("", " \n", [], [{"type": "thinking", "thinking": "hmm", "signature": ""}])),
    ({"tools": [WEATHER, CLOCK]}, ['"name": "get_weather"', '"name": "mcp__clock"']),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "parts"), PROMPTS)
async def test_what_the_model_is_shown(served: Served, fields: dict[str, Any], parts: list[str]) -> None:
    reply = await ask(served, **fields)
    assert reply.status_code == 200, reply.text
    prompt = str(served.engine.requests[-1].prompt)
    places = [prompt.find(part) for part in parts]
    assert -1 not in places, prompt
    assert places == sorted(places)
    assert "billing" not in prompt
    counted = await ask(served, "/count_tokens", **{**fields, "max_tokens": None})
    assert counted.json() == {"input_tokens": len(prompt)}  # a token a character here


async def test_prompts_with_another_billing_line_are_the_same(served: Served) -> None:
    for cch in ("36ee5", "0aaa9"):
        await ask(
            served, system=[text(f"x-anthropic-billing-header: cc_version=2.1; cch={cch};"), text("You are Claude Code.")]
        )
    first, second = served.engine.requests
    assert first.prompt == second.prompt


async def test_the_last_turn_of_the_assistant_is_continued(served: Served) -> None:
    await ask(served, messages=[USER, {"role": "assistant", "content": "The answer is ("}])
    assert str(served.engine.requests[-1].prompt).endswith("assistant\nThe answer is (")


async def test_thinking_that_comes_back_reaches_the_template() -> None:
    template = "{% for m in messages %}[{{ m.role }}|{{ m.reasoning_content }}|{{ m.content }}]{% endfor %}</think>"
    async with serve(FakeEngine(info=with_info(chat_template=template))) as served:
        block = {"type": "thinking", "thinking": "hmm", "signature": "x"}
        await ask(served, messages=[USER, {"role": "assistant", "content": [block, text("Yes.")]}, USER])
        assert "[assistant|hmm|Yes.]" in str(served.engine.requests[-1].prompt)


@pytest.mark.parametrize(
    ("fields", "switch"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "True"),
        ({"thinking": {"type": "adaptive"}}, "True"),
        ({"thinking": {"type": "disabled"}}, "False"),
        ({"thinking": {"type": "between_tools"}}, "False"),
        ({"thinking": True}, "True"),
        ({"enable_thinking": False}, "False"),
        ({"output_config": {"effort": "high"}}, "True"),
        ({"output_config": {"effort": "high"}, "thinking": {"type": "disabled"}}, "False"),
        ({}, ""),
    ],
)
async def test_how_thinking_is_switched(fields: dict[str, Any], switch: str) -> None:
    async with serve(
        FakeEngine(info=with_info(chat_template="{{ messages[0].content }}|{{ enable_thinking }}|<think></think>"))
    ) as served:
        reply = await ask(served, **fields)
        assert reply.status_code == 200, reply.text
        assert str(served.engine.requests[-1].prompt).split("|")[1] == switch


class _KnowsMarkers(FakeEngine):
    """The markers of thinking are one control token each."""

    async def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> tuple[int, ...]:
        return (900,) if parse_special and text in ("<think>", "</think>") else tuple(map(ord, text))


@pytest.mark.parametrize(
    ("fields", "budget"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 77}}, 77),
        ({"thinking": {"type": "enabled", "budget_tokens": 77}, "output_config": {"effort": "low"}}, 77),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, 256),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"thinking": {"type": "disabled"}}, 0),
    ],
)
async def test_the_budget_of_thinking(fields: dict[str, Any], budget: int | None) -> None:
    async with serve(_KnowsMarkers(info=with_info(chat_template=THINKER + "<think>"))) as served:
        await ask(served, **fields)
        block = served.engine.requests[-1].thinking
        assert block is not None
        assert block.max_tokens == budget


async def test_the_samplers_fields(served: Served) -> None:
    await ask(served, temperature=0.5, top_k=7, top_p=0.25, stop_sequences=["a", "b"], seed=3, min_p=0.125, max_tokens=44)
    (request,) = served.engine.requests
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed, sampling.min_p) == (0.5, 7, 0.25, 3, 0.125)
    assert (request.stop, request.max_tokens) == (("a", "b"), 44)


async def test_what_is_ignored(served: Served) -> None:
    reply = await ask(
        served,
        metadata={"user_id": "u"},
        service_tier="auto",
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
        mcp_servers=[],
        container=None,
        betas=["x"],
        top_k=None,
        system=None,
        tools=None,
        tool_choice=None,
        thinking=None,
        output_config=None,
        stop_sequences=None,
    )
    assert reply.status_code == 200, reply.text


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
CONSTRAINTS: list[dict[str, Any]] = [
    {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    {"output_format": {"type": "json_schema", "schema": SCHEMA}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}},
    {"structured_outputs": {"json": SCHEMA}},
    {"guided_json": SCHEMA},
    {"guided_regex": '\\{"x":[0-9]+\\}'},
    {"guided_choice": ['{"x":1}', '{"x":2}']},
    {"guided_grammar": 'root ::= "{\\"x\\":" [0-9]+ "}"'},
    {"grammar": 'root ::= "{\\"x\\":" [0-9]+ "}"'},
    {"json_schema": SCHEMA},
    {"constraint": '\\{"x":[0-9]\\}', "constraint_type": "regex"},
    {"extra_body": {"regex": '\\{"x":[0-9]\\}'}},
    {"format": SCHEMA},
]


@pytest.mark.parametrize("fields", CONSTRAINTS, ids=lambda fields: next(iter(fields)))
async def test_every_constraint_field_holds_the_answer(served: Served, fields: dict[str, Any]) -> None:
    reply = await ask(served, **fields)
    assert reply.status_code == 200, reply.text
    matcher = grammar_of(served)
    assert matcher.accepts('{"x":1}')
    assert not matcher.accepts("Hello")


ROME = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("choice", "accepted", "refused"),
    [
        ({"type": "any"}, [ROME, CLOCK_CALL, f"{ROME}\n{CLOCK_CALL}"], ["Hello"]),
        ({"type": "any", "disable_parallel_tool_use": True}, [ROME, CLOCK_CALL], ["Hello", f"{ROME}\n{CLOCK_CALL}"]),
        ({"type": "tool", "name": "get_weather"}, [ROME], ["Hello", CLOCK_CALL, f"{ROME}\n{ROME}"]),
        ({"type": "tool", "name": "get_weather", "disable_parallel_tool_use": False}, [ROME, f"{ROME}\n{ROME}"], [CLOCK_CALL]),
    ],
)
async def test_forced_calls(served: Served, choice: dict[str, Any], accepted: list[str], refused: list[str]) -> None:
    reply = await ask(served, tools=[WEATHER, CLOCK], tool_choice=choice)
    assert reply.status_code == 200, reply.text
    matcher = grammar_of(served)
    assert [accepted, []] == [[t for t in accepted if matcher.accepts(t)], [t for t in refused if matcher.accepts(t)]]


async def test_calls_that_are_free_or_forbidden(served: Served) -> None:
    await ask(served, tools=[WEATHER])
    free = served.engine.requests[-1]
    assert free.triggers
    assert not free.ends_after_call
    await ask(served, tools=[WEATHER], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert served.engine.requests[-1].ends_after_call
    await ask(served, tools=[WEATHER], tool_choice={"type": "none"})
    forbidden = served.engine.requests[-1]
    assert "get_weather" not in str(forbidden.prompt)
    assert not forbidden.triggers


# ---- what is refused


def user(*blocks: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(blocks)}]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
BAD_TOOL = {"name": "bad", "input_schema": {"type": "object", "properties": {"a": {"type": "strng"}}}}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "9"}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [5]}, "messages[0]"),
    ({"messages": [{}]}, "messages[0].role"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": ""}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": {"type": "text"}}]}, "messages[0].content"),
    ({"messages": [{"role": "assistant", "content": ""}]}, "messages"),
    ({"messages": user(None)}, "messages[0].content[0]"),
    ({"messages": user({})}, "messages[0].content[0].type"),
    ({"messages": user({"type": "text"})}, "messages[0].content[0].text"),
    ({"messages": user(text("a"), IMAGE)}, "messages[0].content[1].type"),
    ({"messages": user({"type": "document", "source": {"type": "text", "data": "x"}})}, "messages[0].content[0].type"),
    ({"messages": user(result("x"))}, "messages[0].content[0].tool_use_id"),
    ({"messages": user({"type": "tool_result", "content": "x"})}, "messages[0].content[0].tool_use_id"),
    ({"messages": [USER, ASKED, *user(result([IMAGE]))]}, "messages[2].content[0].content[0].type"),
    ({"messages": [USER, ASKED, *user(result("x", is_error="yes"))]}, "messages[2].content[0].is_error"),
    ({"messages": [USER, ASKED]}, "messages"),
    ({"messages": [USER, {"role": "assistant", "content": [{**USE, "input": "x"}]}]}, "messages[1].content[0].input"),
    ({"messages": [USER, {"role": "assistant", "content": [{**USE, "id": None}]}]}, "messages[1].content[0].id"),
    ({"messages": [USER, {"role": "assistant", "content": [{"type": "thinking"}]}]}, "messages[1].content[0].thinking"),
    ({"system": 5}, "system"),
    ({"system": [IMAGE]}, "system[0].type"),
    ({"tools": {}}, "tools"),
    ({"tools": [5]}, "tools[0]"),
    ({"tools": [{"name": "x"}]}, "tools[0].input_schema"),
    ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
    ({"tools": [{"name": "x", "input_schema": []}]}, "tools[0].input_schema"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
    ({"tools": [WEATHER, {"type": "bash_20250124", "name": "bash"}]}, "tools[1].type"),
    ({"tools": [WEATHER, BAD_TOOL]}, "tools[1].input_schema.properties.a"),
    ({"tools": [WEATHER, BAD_TOOL], "tool_choice": {"type": "any"}}, "tools[1].input_schema.properties.a"),
    ({"tools": [{"name": "x", "input_schema": {"description": "d" * 300_000}}]}, "tools"),
    ({"tools": [WEATHER], "tool_choice": "auto"}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {}}, "tool_choice.type"),
    ({"tools": [WEATHER], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice.name"),
    ({"tools": [WEATHER], "tool_choice": {"type": "any", "disable_parallel_tool_use": 1}},
     "tool_choice.disable_parallel_tool_use"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"thinking": 5}, "thinking"),
    ({"thinking": {}}, "thinking.type"),
    ({"thinking": {"type": "much"}}, "thinking.type"),
    ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "enabled", "budget_tokens": "x"}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "adaptive", "display": "loud"}}, "thinking.display"),
    ({"output_config": 5}, "output_config"),
    ({"output_config": {"effort": "lots"}}, "output_config.effort"),
    ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "strng"}}}}, "output_config.format.schema"),
    ({"stop_sequences": [5]}, "stop_sequences"),
    ({"stop_sequences": [""]}, "stop_sequences"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"stream": "yes"}, "stream"),
    ({"template": "none"}, "template"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
    ({"guided_regex": "a", "grammar": 'root ::= "a"'}, "grammar"),
    ({"guided_thing": "a"}, "guided_thing"),
    ({"reasoning_effort": "lots"}, "reasoning_effort"),
    ({"thread": {"type": "create"}}, "thread"),
]  # fmt: skip


@one_app
@pytest.mark.parametrize(("fields", "param"), WRONG, ids=lambda value: value if isinstance(value, str) else None)
async def test_what_is_wrong_is_named(refusing: Served, fields: dict[str, Any], param: str) -> None:
    for stream in (False, True):
        reply = await ask(refusing, **{"stream": stream, **fields})
        assert reply.status_code == 400, reply.text
        body = reply.json()
        assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
        assert body["request_id"] == reply.headers["request-id"]
        assert body["error"]["details"]["param"].startswith(param)
        assert param in body["error"]["message"]
        assert not refusing.engine.requests


@one_app
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 5000, b'{"max_tokens":NaN}', b'{"a":1,"a":2}'])
async def test_bodies_that_are_no_json_object(refusing: Served, body: bytes) -> None:
    reply = await refusing.client.post("/v1/messages", content=body)
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_a_prompt_past_the_context_says_so_in_the_words_that_clients_look_for() -> None:
    def fail(_request: Any, _event: Any) -> None:
        raise ContextOverflow("too much", n_tokens=300, n_ctx=256)

    async with serve(FakeEngine(before=fail)) as served:
        reply = await ask(served)
        assert reply.status_code == 400
        assert reply.json()["error"]["message"] == "prompt is too long: 300 tokens > 256 maximum"


# ---- headers, keys, models


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"x-api-key": "sesame"}, 200),
        ({"x-api-key": "wrong"}, 401),
        ({"Authorization": "Bearer sesame"}, 200),
        ({"Authorization": "Bearer wrong", "x-api-key": "sesame"}, 200),
        ({"Authorization": "Bearer wrong", "x-api-key": "wrong"}, 401),
    ],
)
async def test_the_key(headers: dict[str, str], status: int) -> None:
    async with serve(settings=Settings(api_key="sesame")) as served:
        reply = await served.client.post("/v1/messages", json={"max_tokens": 9, "messages": [USER]}, headers=headers)
        assert reply.status_code == status
        if status == 401:
            assert reply.json()["error"]["type"] == "authentication_error"
            assert reply.headers["www-authenticate"] == "Bearer"


async def test_models_have_this_shape_for_this_dialects_clients(served: Served) -> None:
    page = (await served.client.get("/v1/models", headers=VERSION)).json()
    assert [model["id"] for model in page["data"]] == ["fake", "dir/other"]
    assert {model["type"] for model in page["data"]} == {"model"}
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, "fake", "dir/other")
    assert (await served.client.get("/v1/models")).json()["object"] == "list"
    one = await served.client.get("/v1/models/dir/other", headers=VERSION)
    assert one.json() == page["data"][1]
    missing = await served.client.get("/v1/models/nope", headers=VERSION)
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")


@one_app
@pytest.mark.parametrize(
    ("query", "ids", "has_more"),
    [
        ("limit=1", ["fake"], True),
        ("limit=1&after_id=fake", ["dir/other"], False),
        ("after_id=dir/other", [], False),
        ("before_id=dir/other", ["fake"], False),
        ("before_id=fake", [], False),
    ],
)
async def test_pages_of_models(refusing: Served, query: str, ids: list[str], has_more: bool) -> None:
    page = (await refusing.client.get(f"/v1/models?{query}", headers=VERSION)).json()
    assert [model["id"] for model in page["data"]] == ids
    assert page["has_more"] == has_more


@one_app
@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "after_id=nope", "before_id=nope"])
async def test_wrong_pages(refusing: Served, query: str) -> None:
    reply = await refusing.client.get(f"/v1/models?{query}", headers=VERSION)
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_an_unknown_model_and_an_unknown_path(served: Served) -> None:
    for reply in (
        await ask(served, model="nope"),
        await ask(served, "/batches"),
        await served.client.get("/v1/x", headers=VERSION),
    ):
        assert (reply.status_code, reply.json()["error"]["type"]) == (404, "not_found_error")
    assert (await served.client.get("/v1/messages")).status_code == 405


async def test_a_large_body_is_refused_in_this_shape() -> None:
    async with serve(settings=Settings(request_limits=RequestLimits(body_bytes=1000))) as served:
        reply = await ask(served, system="x" * 2000)
        assert (reply.status_code, reply.json()["error"]["type"]) == (413, "request_too_large")
