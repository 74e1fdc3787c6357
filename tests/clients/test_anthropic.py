"""The official `anthropic` package judges the wire format of /v1/messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic, beta_tool
from anthropic.types import Message, MessageParam, ToolParam
from pydantic import BaseModel

from tests.live_server import LiveServer
from tests.server.chat.test_reasoning import CONTROLS, OPENING
from tests.tiny_models import TinyModel, write_tiny_model

pytestmark = pytest.mark.client

MESSAGES: list[MessageParam] = [{"role": "user", "content": "Say hello."}]
WEATHER: ToolParam = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "enum": ["Rome", "Oslo"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["city", "days"],
    },
}
CLOCK: ToolParam = {"name": "clock", "input_schema": {"type": "object", "properties": {}}}


class Person(BaseModel):
    mood: Literal["happy", "sad"]
    is_old: bool


@pytest.fixture
def client(live_server: LiveServer) -> Iterator[Anthropic]:
    with Anthropic(base_url=live_server.url, api_key="sesame", max_retries=0) as opened:
        yield opened


def arguments(**fields: Any) -> dict[str, Any]:
    """The package's arguments: it knows no fields of the sampler any more, and of ours none at all."""
    own = (
        "temperature",
        "top_p",
        "top_k",
        "seed",
        "guided_regex",
        "guided_choice",
        "structured_outputs",
        "on_length",
        "ignore_eos",
    )
    extra = {name: fields.pop(name) for name in own if name in fields}
    return {"model": "default", "max_tokens": 16, "messages": MESSAGES, "extra_body": extra, **fields}


def create(client: Anthropic, **fields: Any) -> Message:
    message: Message = client.messages.create(**arguments(**fields))
    return message


def stream(client: Anthropic, **fields: Any) -> Message:
    """The message that the package's accumulator makes, the same as its own events'."""
    with client.messages.stream(**arguments(**fields)) as opened:
        pieces = [event.text for event in opened if event.type == "text"]
        message: Message = opened.get_final_message()
    assert "".join(pieces) == "".join(block.text for block in message.content if block.type == "text")
    return message


def check(message: Message) -> None:
    assert (message.type, message.role) == ("message", "assistant")
    assert message.usage.output_tokens > 0
    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) > 0


# ---- messages


@pytest.mark.parametrize("send", [create, stream])
def test_a_message(client: Anthropic, send: Any) -> None:
    message = send(client, system="Be brief.", temperature=0.5, top_p=0.9, top_k=20, metadata={"user_id": "u"})
    check(message)
    (block,) = message.content
    assert block.type == "text"
    assert block.text
    assert message.stop_reason in ("end_turn", "max_tokens")


def test_whole_and_streamed_are_the_same(client: Anthropic) -> None:
    fields: dict[str, Any] = {"seed": 7, "max_tokens": 24}
    whole, streamed = create(client, **fields), stream(client, **fields)
    assert [block.to_dict() for block in whole.content] == [block.to_dict() for block in streamed.content]


def test_raw_events(client: Anthropic) -> None:
    events = list(client.messages.create(model="default", max_tokens=8, messages=MESSAGES, stream=True))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}


async def test_async(live_server: LiveServer) -> None:
    async with AsyncAnthropic(base_url=live_server.url, auth_token="sesame", api_key=None, max_retries=0) as client:
        check(await client.messages.create(model="default", max_tokens=8, messages=MESSAGES))
        async with client.messages.stream(model="default", max_tokens=8, messages=MESSAGES) as opened:
            text = "".join([piece async for piece in opened.text_stream])
            message = await opened.get_final_message()
        check(message)
        assert message.content[0].type == "text"
        assert message.content[0].text == text


def test_beta_messages(client: Anthropic) -> None:
    message = client.beta.messages.create(
        model="default", max_tokens=8, messages=[{"role": "user", "content": "hi"}], betas=["context-management-2025-06-27"]
    )
    assert message.content[0].type == "text"


@pytest.mark.parametrize("send", [create, stream])
def test_a_stop_sequence(client: Anthropic, send: Any) -> None:
    message = send(client, stop_sequences=["END", "o"], max_tokens=60, guided_regex="[a-n]{4}o[a-z]{90}")
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "o")
    assert len(message.content[0].text) == 4


def test_a_prefill_is_continued(client: Anthropic) -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": "The answer is ("}]
    message = create(client, messages=messages, guided_choice=["yes)", "no)"])
    assert message.content[0].type == "text"
    assert message.content[0].text in ("yes)", "no)")


def test_count_tokens(client: Anthropic) -> None:
    number = "Number 4711. "  # a prompt of its own, so that nothing of it is cached
    for fields in (
        {"messages": [{"role": "user", "content": f"{number}hi"}]},
        {"messages": [{"role": "user", "content": "hi"}], "system": f"{number}Be brief.", "tools": [WEATHER]},
    ):
        n_tokens = client.messages.count_tokens(model="default", **fields).input_tokens
        usage = create(client, **fields).usage
        assert n_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
        assert n_tokens >= usage.input_tokens > 0


def test_a_changing_billing_line_leaves_the_cache_alone(client: Anthropic) -> None:
    rules = "You are an agent that works in a terminal. Answer briefly, and never invent the names of files. "
    usages = []
    for i, cch in enumerate(("36ee5", "0aaa9")):
        line = f"x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch={cch};"
        system = [{"type": "text", "text": line}, {"type": "text", "text": rules * 3, "cache_control": {"type": "ephemeral"}}]
        usages.append(create(client, system=system, messages=[{"role": "user", "content": f"{i} hi"}], max_tokens=4).usage)
    assert usages[1].cache_read_input_tokens
    assert usages[1].cache_read_input_tokens > 50
    assert usages[1].input_tokens < 30


# ---- tools


@pytest.mark.parametrize("send", [create, stream])
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_forced_call(client: Anthropic, send: Any, choice: dict[str, str]) -> None:
    tools = [WEATHER] if choice["type"] == "any" else [WEATHER, CLOCK]
    fields = {"tools": tools, "tool_choice": {**choice, "disable_parallel_tool_use": True}}
    message = send(client, **fields, temperature=1.5, max_tokens=100)
    check(message)
    (block,) = message.content
    assert (block.type, block.name, message.stop_reason) == ("tool_use", "get_weather", "tool_use")
    assert block.input["city"] in ("Rome", "Oslo")
    assert 1 <= block.input["days"] <= 9


def test_a_turn_with_a_result(client: Anthropic) -> None:
    first = create(client, tools=[WEATHER, CLOCK], tool_choice={"type": "tool", "name": "clock"}, max_tokens=60)
    (call,) = first.content
    assert call.type == "tool_use"
    assert call.input == {}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "noon"}], "is_error": False}
    messages = [*MESSAGES, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = create(client, messages=messages, tools=[WEATHER, CLOCK], tool_choice={"type": "none"})
    assert {block.type for block in second.content} <= {"text"}


def test_tools_that_may_be_called(client: Anthropic) -> None:
    for choice in ({"type": "auto"}, {"type": "auto", "disable_parallel_tool_use": True}):
        message = create(client, tools=[WEATHER, CLOCK], tool_choice=choice, max_tokens=40)
        assert {block.type for block in message.content} <= {"text", "tool_use"}


def test_joined_partial_json_parses(client: Anthropic) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"code": {"type": "string"}},
        "required": ["code"],
        "additionalProperties": False,
    }
    tools: list[ToolParam] = [{"name": "run", "input_schema": schema}]
    with client.messages.stream(
        model="default",
        max_tokens=64,
        messages=MESSAGES,
        tools=tools,
        tool_choice={"type": "tool", "name": "run"},
        extra_body={"temperature": 0, "on_length": "stop"},  # whole and called whole, however long the code would be
    ) as opened:
        pieces = [event.partial_json for event in opened if event.type == "input_json"]
        message = opened.get_final_message()
    (block,) = message.content
    assert block.type == "tool_use"
    assert json.loads("".join(pieces)) == block.input
    assert message.stop_reason == "tool_use"


# ---- structured outputs


def test_parse(client: Anthropic) -> None:
    message = client.messages.parse(model="default", max_tokens=60, messages=MESSAGES, output_format=Person)
    assert isinstance(message.parsed_output, Person)
    assert message.stop_reason == "end_turn"


def test_parse_streamed(client: Anthropic) -> None:
    with client.messages.stream(model="default", max_tokens=60, messages=MESSAGES, output_format=Person) as opened:
        assert isinstance(opened.get_final_message().parsed_output, Person)


def test_output_config(client: Anthropic) -> None:
    schema = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": False}
    message = create(client, output_config={"format": {"type": "json_schema", "schema": schema}, "effort": "low"})
    assert message.content[-1].type == "text"
    assert json.loads(message.content[-1].text)["x"] in (1, 2)


def test_extra_body(client: Anthropic) -> None:
    message = create(client, temperature=1, structured_outputs={"choice": ["red", "blue"]})
    assert message.content[0].type == "text"
    assert message.content[0].text in ("red", "blue")


# ---- thinking


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Anthropic]:
    """A tiny model whose template begins every answer with its thinking."""
    tiny = TinyModel(vocabulary="sentencepiece", controls=(*CONTROLS, "<think>", "</think>"), chat_template=OPENING)
    path: Path = write_tiny_model(tmp_path_factory.mktemp("thinker") / "thinker.gguf", tiny)
    with LiveServer(path, "--threads", "1") as server, Anthropic(base_url=server.url, api_key="none", max_retries=0) as opened:
        yield opened


@pytest.mark.parametrize("send", [create, stream])
def test_thinking(thinker: Anthropic, send: Any) -> None:
    budget = {"type": "enabled", "budget_tokens": 20}
    message = send(thinker, max_tokens=64, thinking=budget, temperature=1, seed=60, ignore_eos=True)
    assert [block.type for block in message.content] == ["thinking", "text"]
    thought, _ = message.content
    assert thought.thinking
    assert thought.signature
    assert 0 < message.usage.output_tokens_details.thinking_tokens <= 20 + 4


def test_thinking_comes_back(thinker: Anthropic) -> None:
    first = create(thinker, max_tokens=64, thinking={"type": "enabled", "budget_tokens": 20}, seed=60)
    messages = [*MESSAGES, {"role": "assistant", "content": first.content}, *MESSAGES]
    second = create(thinker, max_tokens=64, thinking={"type": "adaptive", "display": "omitted"}, messages=messages, seed=60)
    thought = second.content[0]
    assert thought.type == "thinking"
    assert thought.thinking == ""


@pytest.mark.parametrize("send", [create, stream])
def test_thinking_before_json(thinker: Anthropic, send: Any) -> None:
    schema = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": False}
    form = {"format": {"type": "json_schema", "schema": schema}}
    message = send(
        thinker, max_tokens=80, thinking={"type": "enabled", "budget_tokens": 20}, output_config=form, temperature=1, seed=60
    )
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert json.loads(message.content[1].text)["x"] in (1, 2)


def test_more_tokens_than_the_context_has(thinker: Anthropic) -> None:
    fields = {"thinking": {"type": "disabled"}, "guided_regex": "(ab){9000}", "on_length": "cut"}
    assert create(thinker, max_tokens=20_000, **fields).stop_reason == "model_context_window_exceeded"


async def test_streams_side_by_side(thinker: Anthropic) -> None:
    """Each is whole and its own; one that is left in the middle harms none."""
    async with AsyncAnthropic(base_url=str(thinker.base_url), api_key="none", max_retries=0) as client:

        async def one(seed: int) -> list[str]:
            fields = arguments(seed=seed, max_tokens=40, thinking={"type": "enabled", "budget_tokens": 10})
            async with client.messages.stream(**fields) as opened:
                if seed == 5:
                    return [str(event.type) async for event in opened][:3]
                return [block.to_json() for block in (await opened.get_final_message()).content]

        async def left() -> None:
            async with client.messages.stream(**arguments(max_tokens=1000)) as opened:
                async for _ in opened:
                    break

        first, _, *_ = await asyncio.gather(one(1), left(), *(one(seed) for seed in range(2, 9)))
        assert first == await one(1)


def test_the_tool_runner(thinker: Anthropic) -> None:
    """It goes on until the model calls nothing more; here the model calls what it must and then may not."""
    calls = []

    @beta_tool
    def get_weather(city: Literal["Rome", "Oslo"]) -> str:
        """The weather in a city."""
        calls.append(city)
        return "20 °C"

    runner = thinker.beta.messages.tool_runner(
        model="default",
        max_tokens=60,
        max_iterations=2,
        messages=[{"role": "user", "content": "hi"}],
        tools=[get_weather],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        thinking={"type": "disabled"},
        extra_body={"on_length": "stop"},
    )
    messages = list(runner)
    assert len(messages) == 2
    assert {message.stop_reason for message in messages} == {"tool_use"}
    assert calls
    assert set(calls) <= {"Rome", "Oslo"}


# ---- models and errors


def test_models(client: Anthropic) -> None:
    models = list(client.models.list(limit=1))
    assert models
    assert models[0].type == "model"
    assert models[0].created_at.year >= 2024
    assert client.models.retrieve(models[0].id).id == models[0].id


@pytest.mark.parametrize(
    ("fields", "error", "kind"),
    [
        ({"max_tokens": 0}, anthropic.BadRequestError, "invalid_request_error"),
        ({"messages": []}, anthropic.BadRequestError, "invalid_request_error"),
        (
            {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
            anthropic.BadRequestError,
            "invalid_request_error",
        ),
        ({"model": "nope"}, anthropic.NotFoundError, "not_found_error"),
        ({"extra_headers": {"Host": "evil.example"}}, anthropic.PermissionDeniedError, "permission_error"),
        ({"messages": [{"role": "user", "content": "x " * 3000}]}, anthropic.BadRequestError, "invalid_request_error"),
    ],
)
@pytest.mark.parametrize("send", [create, stream])
def test_errors(client: Anthropic, send: Any, fields: dict[str, Any], error: type[anthropic.APIStatusError], kind: str) -> None:
    with pytest.raises(error) as caught:
        send(client, **fields)
    assert caught.value.type == kind
    assert caught.value.request_id
    if "Host" in str(fields) or len(str(fields)) < 1000:
        return
    assert caught.value.api_message is not None
    assert caught.value.api_message.startswith("prompt is too long: ")


def test_a_wrong_key(client: Anthropic) -> None:
    with pytest.raises(anthropic.AuthenticationError):
        create(client.with_options(api_key="wrong"))
