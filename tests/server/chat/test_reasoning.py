"""Thinking and calls through HTTP, with tiny models that have the tokens for it: the real engine, in this process."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest

from converters.compile import CompileOptions
from converters.constraint import JsonSchema
from server.chat.fold import fold
from server.chat.profile import PROFILES, find_reasoner
from server.chat.reasoning import BUDGETS, parse_effort
from server.chat.types import ChatPrompt, GenerateRequest, Message, RequestedConstraint, Sampling
from server.engine.client import LocalClient
from server.engine.llama import LlamaBackend
from server.engine.messages import ModelSpec
from server.errors import BadRequest
from tests.server.api.sse import events
from tests.server.fakes import FakeEngine, InlineCompiler, Served, serve
from tests.tiny_models import TinyModel, write_tiny_model

TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    "{% if tools %}{{ tools | tojson }}{% endif %}{# <tool_call> #}"
)
SWITCHED = TURNS + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
OPENING = TURNS + "<think>\n{# </think> #}"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "string", "maxLength": 5}}, "required": ["x"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}
CONTROLS = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>")
THINKERS = {
    "text": TinyModel(controls=CONTROLS, user_defined=("<think>", "</think>"), chat_template=SWITCHED),
    "control": TinyModel(controls=(*CONTROLS, "<think>", "</think>"), chat_template=SWITCHED),
    "opened": TinyModel(vocabulary="sentencepiece", controls=(*CONTROLS, "<think>", "</think>"), chat_template=OPENING),
}
PLAIN = TinyModel(controls=CONTROLS, chat_template=TURNS)
COMPILER = InlineCompiler()


@pytest.fixture(scope="module")
def backends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LlamaBackend]:
    folder = tmp_path_factory.mktemp("thinkers")
    models = {**THINKERS, "plain": PLAIN}
    paths: dict[str, Path] = {name: write_tiny_model(folder / f"{name}.gguf", model) for name, model in models.items()}
    return {name: LlamaBackend(ModelSpec(str(path), n_ctx=1024, n_threads=1)) for name, path in paths.items()}


@asynccontextmanager
async def serving(backend: LlamaBackend) -> AsyncIterator[Served]:
    client = LocalClient(backend)
    await client.start()
    try:
        async with serve(cast(FakeEngine, client), compiler=COMPILER) as served:
            yield served
    finally:
        await client.stop()


async def ask(served: Served, **fields: Any) -> dict[str, Any]:
    reply = await served.chat(**{"temperature": 1.0, "seed": 1, **fields})
    assert reply.status_code == 200, reply.text
    return cast("dict[str, Any]", reply.json())


# ---- thinking, then a conforming answer


EFFORTS = (*BUDGETS, "custom:Plan: {text}\nSure: {text}")
FEW = [*(("text", effort) for effort in EFFORTS), *((name, effort) for name in THINKERS for effort in ("none", "cot"))]
"""Every effort, and every kind of model, but not each with each."""


@pytest.mark.parametrize(
    ("name", "effort"),
    [
        pytest.param(name, effort, marks=() if (name, effort) in FEW else pytest.mark.conformance)
        for effort in EFFORTS
        for name in THINKERS
    ],
)
async def test_a_conforming_answer_for_every_effort(backends: dict[str, LlamaBackend], name: str, effort: str) -> None:
    async with serving(backends[name]) as served:
        for max_tokens in (60, 150):
            body = await ask(served, reasoning_effort=effort, response_format=FORMAT, max_tokens=max_tokens)
            message = body["choices"][0]["message"]
            jsonschema.validate(json.loads(message["content"]), SCHEMA)
            n_thought = body["usage"]["completion_tokens_details"]["reasoning_tokens"]
            assert body["usage"]["completion_tokens"] <= max_tokens
            assert (n_thought > 4) == (effort != "none")
            assert ("reasoning_content" in message) == (effort != "none")
            check_form(effort, message.get("reasoning_content", ""))


@pytest.mark.parametrize("name", THINKERS)
async def test_whitespace_that_a_constraint_wants_after_a_block(backends: dict[str, LlamaBackend], name: str) -> None:
    async with serving(backends[name]) as served:
        for effort in ("low", "none"):
            body = await ask(served, reasoning_effort=effort, guided_choice=["\n\n yes "], max_tokens=80)
            assert body["choices"][0]["message"]["content"] == "\n\n yes "


def check_form(effort: str, thought: str) -> None:
    if effort in ("cot", "chain_of_thought"):
        lines = thought.split("\n")
        assert [line.split(".")[0] for line in lines] == [str(number) for number in range(1, len(lines) + 1)]
    elif effort == "cove":
        assert re.fullmatch(r"Draft: .+\nChecks:\n(- [^\n]+\n)+Revision: .+", thought, re.DOTALL)
    elif effort.startswith("custom:"):
        assert re.fullmatch(r"Plan: .+\nSure:.*", thought, re.DOTALL)


async def test_the_tokens_that_are_needed_with_a_block(backends: dict[str, LlamaBackend]) -> None:
    async with serving(backends["control"]) as served:
        fields: dict[str, Any] = {"reasoning_effort": "max", "response_format": FORMAT}
        refused = await served.chat(**fields, max_tokens=3)
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert (error["param"], error["code"]) == ("max_tokens", "max_tokens_too_small")
        needed = int(re.findall(r"needs (\d+) tokens", error["message"])[0])
        assert (await served.chat(**fields, max_tokens=needed - 1)).status_code == 400
        for extra in (0, 1, 3, 8, 64):
            body = await ask(served, **fields, max_tokens=needed + extra)
            jsonschema.validate(json.loads(body["choices"][0]["message"]["content"]), SCHEMA)


async def test_a_refusal_calls_max_tokens_what_the_request_calls_it(backends: dict[str, LlamaBackend]) -> None:
    async with serving(backends["plain"]) as served:
        for name in ("max_tokens", "max_completion_tokens"):
            for value, words in ((1, f"but {name} is 1"), (5000, f"{name} 5000")):
                error = (await served.chat(response_format=FORMAT, **{name: value})).json()["error"]
                assert error["param"] == name
                assert words in error["message"]


async def test_without_an_effort_the_block_is_the_models_choice(backends: dict[str, LlamaBackend]) -> None:
    async with serving(backends["text"]) as served:
        thought = []
        for seed in range(30):
            body = await ask(
                served, response_format=FORMAT, max_tokens=40, seed=seed, temperature=4.0, top_k=0, min_p=0, top_p=1
            )
            message = body["choices"][0]["message"]
            jsonschema.validate(json.loads(message["content"]), SCHEMA)
            n_thought = body["usage"]["completion_tokens_details"]["reasoning_tokens"]
            assert n_thought <= 20 + 4
            thought.append(n_thought > 0)
        assert len(set(thought)) == 2


@pytest.mark.parametrize("name", THINKERS)
async def test_streams_agree_and_choices_have_their_own_block(backends: dict[str, LlamaBackend], name: str) -> None:
    async with serving(backends[name]) as served:
        fields: dict[str, Any] = {"reasoning_effort": "low", "response_format": FORMAT, "max_tokens": 60, "n": 3}
        whole = [choice["message"] for choice in (await ask(served, **fields))["choices"]]
        streamed = [{"content": "", "reasoning_content": ""} for _ in whole]
        reply = await served.chat(**fields, seed=1, temperature=1.0, stream=True)
        for event in events(reply.text)[:-1]:
            for choice in event["choices"]:
                for key in streamed[0]:
                    streamed[choice["index"]][key] += choice["delta"].get(key) or ""
        assert [{key: message[key] for key in streamed[0]} for message in whole] == streamed


async def test_an_explicit_switch_wins_over_the_effort(backends: dict[str, LlamaBackend]) -> None:
    async with serving(backends["text"]) as served:
        for fields in ({"thinking": False}, {"chat_template_kwargs": {"enable_thinking": False}}):
            body = await ask(served, **fields, reasoning_effort="high", response_format=FORMAT, max_tokens=40)
            assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


async def test_no_markers_is_a_warning_and_the_constraint_alone(backends: dict[str, LlamaBackend]) -> None:
    async with serving(backends["plain"]) as served:
        reply = await served.chat(reasoning_effort="high", response_format=FORMAT, max_tokens=40)
        assert "no markers" in reply.headers["x-constraint-warnings"]
        jsonschema.validate(json.loads(reply.json()["choices"][0]["message"]["content"]), SCHEMA)


async def test_thinking_without_a_constraint(backends: dict[str, LlamaBackend]) -> None:
    async with serving(backends["opened"]) as served:
        body = await ask(served, max_tokens=30, reasoning_effort="none")
        assert "reasoning_content" not in body["choices"][0]["message"]
        assert 0 < body["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 2
        body = await ask(served, max_tokens=20, stop=["e", "a", "t"])
        assert body["choices"][0]["message"]["reasoning_content"]
        assert body["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("name", THINKERS)
async def test_a_budget_in_tokens(backends: dict[str, LlamaBackend], name: str) -> None:
    """As a dialect without efforts sets it, alone and beside an effort; with and without a constraint."""
    prompt = ChatPrompt((Message("user", "hi"),), thinking=True)
    constraint = RequestedConstraint(JsonSchema(SCHEMA), CompileOptions(), "format", "json_schema", "format")
    async with serving(backends[name]) as served:
        for budget, effort, held in ((0, None, constraint), (7, None, constraint), (9, "high", None), (11, "cot", constraint)):
            request = GenerateRequest(
                (prompt,), sampling=Sampling(seed=1), max_tokens=90, constraint=held, effort=effort, budget_tokens=budget
            )
            completion = await fold(served.app.state.service.generate(request))
            (answer,) = completion.choices
            assert completion.usage.n_reasoning_tokens <= budget + 3  # the markers and what follows them
            if held is not None:
                jsonschema.validate(json.loads(answer.text), SCHEMA)
            if effort == "cot":
                check_form(effort, answer.reasoning)


def test_efforts() -> None:
    assert parse_effort("low").max_tokens == 256
    assert [parse_effort("high").bound(n) for n in (None, 100)] == [4096, 4096]
    assert [parse_effort("max").bound(n) for n in (None, 100)] == [None, None]
    for form in ("cot", "cove", "custom:a {text}"):
        assert [parse_effort(form).bound(n) for n in (None, 100, 5000)] == [1024, 50, 1024]
    for text in ("lots", "", "custom:", "custom: "):
        with pytest.raises(BadRequest):
            parse_effort(text)


@pytest.mark.parametrize("profile", PROFILES)
async def test_every_profile_is_told_by_its_markers(profile: Any) -> None:
    reasoner = await find_reasoner(f"x{profile.start}y{profile.end}", FakeEngine())
    assert reasoner is not None
    assert reasoner.profile is profile
    assert not reasoner.is_in_vocabulary
    assert await find_reasoner("no sign of it", FakeEngine()) is None


@pytest.mark.parametrize("name", THINKERS)
async def test_a_forced_call_after_the_thinking(backends: dict[str, LlamaBackend], name: str) -> None:
    async with serving(backends[name]) as served:
        for max_tokens in (60, 200):
            body = await ask(served, tools=[TOOL], tool_choice="required", reasoning_effort="low", max_tokens=max_tokens)
            (choice,) = body["choices"]
            calls = choice["message"]["tool_calls"]
            assert calls
            assert choice["message"]["reasoning_content"]
            assert all(0 <= json.loads(call["function"]["arguments"])["n"] <= 99 for call in calls)


async def test_a_message_that_goes_on_has_no_block(backends: dict[str, LlamaBackend]) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "I say"}]
    async with serving(backends["text"]) as served:
        body = await ask(
            served, messages=messages, continue_final_message=True, reasoning_effort="high", guided_regex=" [0-9]{3}"
        )
        assert re.fullmatch(" [0-9]{3}", body["choices"][0]["message"]["content"])


# ---- calls that the model opens by itself

TOOL = {"type": "function", "function": {"name": "get", "parameters": {
    "type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"]}}}  # fmt: skip
BIASES = {"hermes": "<tool_call>", "mistral": "[TOOL_CALLS]", "llama3": "<|python_tag|>"}


@pytest.mark.parametrize("codec", BIASES)
@pytest.mark.parametrize("is_parallel", [True, False])
async def test_a_call_is_held_once_it_is_opened(backends: dict[str, LlamaBackend], codec: str, is_parallel: bool) -> None:
    """The opening token is made likely, so that the model opens calls; nothing else makes it write one."""
    (token,) = backends["control"].vocabulary.tokenize(BIASES[codec], False, True)
    async with serving(backends["control"]) as served:
        manager = served.app.state.service.manager
        original = manager.engine

        async def engine(name: str | None) -> Any:
            model = await original(name)
            object.__setattr__(model, "codec", codec)
            return model

        manager.engine = engine
        for seed in range(4):
            body = await ask(
                served, tools=[TOOL], seed=seed, max_tokens=300, temperature=1.5, thinking=False,
                parallel_tool_calls=is_parallel, logit_bias={str(token): 12},
            )  # fmt: skip
            choice = body["choices"][0]
            calls = choice["message"].get("tool_calls", [])
            assert calls, choice
            assert len(calls) == 1 or is_parallel
            for call in calls if choice["finish_reason"] == "tool_calls" else calls[:-1]:
                assert call["function"]["name"] == "get"
                assert 0 <= json.loads(call["function"]["arguments"])["n"] <= 99


async def test_bad_schemas_are_told_though_calls_are_free(backends: dict[str, LlamaBackend]) -> None:
    bad = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": 5}}}}}
    async with serving(backends["control"]) as served:
        reply = await served.chat(tools=[TOOL, bad], max_tokens=5)
        assert reply.status_code == 400
        assert reply.json()["error"]["param"].startswith("tools[1].function.parameters.properties.a")
