"""The official `openai` package judges /v1/responses: the default model, and a tiny one that thinks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response, ResponseInputParam, ToolParam
from pydantic import BaseModel, Field

from tests.live_server import LiveServer
from tests.server.chat.test_reasoning import THINKERS
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.client

ORDER = re.compile(
    r"response\.created response\.in_progress "
    r"(response\.output_item\.added (response\.content_part\.added )?(response\.\w+\.delta )*response\.\w+\.done "
    r"(response\.content_part\.done )?response\.output_item\.done )+response\.(completed|incomplete) "
)
WEATHER: ToolParam = {
    "type": "function",
    "name": "get_weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}
CALC: ToolParam = {
    "type": "custom",
    "name": "calc",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: NUM "+" NUM\nNUM: /[0-9]{1,3}/'},
}


class Person(BaseModel):
    name: str = Field(max_length=10)
    age: int = Field(ge=0, le=130)
    mood: Literal["happy", "sad"]


class GetTime(BaseModel):
    zone: Literal["UTC", "CET"]


@pytest.fixture
def client(live_server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{live_server.url}/v1", api_key="sesame", max_retries=0) as opened:
        yield opened


@pytest.fixture(scope="module")
def thinking_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A tiny model whose vocabulary has <think>; what it writes means nothing."""
    path = write_tiny_model(tmp_path_factory.mktemp("thinker") / "thinker.gguf", THINKERS["control"])
    with LiveServer(path, "--ctx", "1024", "--threads", "1") as server:
        yield server


@pytest.fixture
def thinker(thinking_server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{thinking_server.url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


def test_a_response(client: OpenAI) -> None:
    response = client.responses.create(
        model="default",
        input="Say hello.",
        instructions="Be brief.",
        max_output_tokens=8,
        metadata={"k": "v"},
        extra_body={"ignore_eos": True},
    )
    assert response.output_text
    assert (response.status, response.metadata) == ("incomplete", {"k": "v"})
    assert response.incomplete_details
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage
    assert response.usage.output_tokens == 8
    assert response.usage.total_tokens == response.usage.input_tokens + 8
    assert response.usage.output_tokens_details.reasoning_tokens == 0


async def test_a_response_async(live_server: LiveServer) -> None:
    async with AsyncOpenAI(base_url=f"{live_server.url}/v1", api_key="sesame", max_retries=0) as client:
        choices = {"guided_choice": ["hello there", "good evening"]}
        response = await client.responses.create(model="default", input="Greet.", extra_body=choices)
        assert response.output_text in choices["guided_choice"]
        stream = await client.responses.create(model="default", input="Greet.", extra_body=choices, stream=True)
        text = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
        assert text in choices["guided_choice"]
        async with client.responses.stream(
            model="default", input="Greet.", text_format=Person, max_output_tokens=400
        ) as person:
            final = await person.get_final_response()
        assert isinstance(final.output_parsed, Person)


def test_events_come_in_order(client: OpenAI) -> None:
    endless = {"ignore_eos": True}  # so that the limit is what ends it
    stream = client.responses.create(model="default", input="Say hello.", max_output_tokens=8, stream=True, extra_body=endless)
    events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert ORDER.fullmatch("".join(f"{event.type} " for event in events))
    last = events[-1]
    assert last.type == "response.incomplete"
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert last.response.output_text == text


def test_the_stream_helper(client: OpenAI) -> None:
    choices = {"guided_choice": ["hello there", "good evening"]}
    with client.responses.stream(model="default", input="Greet.", extra_body=choices) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert final.output_text == snapshots[-1]
    assert final.output_text in choices["guided_choice"]


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_parse_into_a_pydantic_model(client: OpenAI, temperature: float) -> None:
    response = client.responses.parse(
        model="default", input="Invent a person.", text_format=Person, temperature=temperature, max_output_tokens=400
    )
    assert isinstance(response.output_parsed, Person)
    assert response.status == "completed"


def test_parse_streamed(client: OpenAI) -> None:
    with client.responses.stream(
        model="default", input="Invent a person.", text_format=Person, temperature=1.5, max_output_tokens=400
    ) as stream:
        done = [event.parsed for event in stream if event.type == "response.output_text.done"]
        final = stream.get_final_response()
    assert isinstance(final.output_parsed, Person)
    assert done == [final.output_parsed]


def test_json_object(client: OpenAI) -> None:
    response = client.responses.create(
        model="default", input="A fruit as JSON.", text={"format": {"type": "json_object"}}, max_output_tokens=60
    )
    assert isinstance(json.loads(response.output_text), dict)


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_a_function_round_trip(client: OpenAI, temperature: float) -> None:
    question: ResponseInputParam = [{"role": "user", "content": "Weather in Rome?"}]
    first = client.responses.create(
        model="default", input=question, tools=[WEATHER], tool_choice={"type": "function", "name": "get_weather"},
        temperature=temperature,
    )  # fmt: skip
    (call,) = first.output
    assert call.type == "function_call"
    assert set(json.loads(call.arguments)) == {"city", "days"}
    history: list[Any] = [
        *question,
        *(item.model_dump(exclude_unset=True) for item in first.output),
        {"type": "function_call_output", "call_id": call.call_id, "output": "It rains."},
    ]
    second = client.responses.create(
        model="default", input=history, tools=[WEATHER], store=False, extra_body={"guided_choice": ["rain", "sun"]},
        tool_choice="none",
    )  # fmt: skip
    assert second.output_text in ("rain", "sun")
    third = client.responses.create(
        model="default", previous_response_id=first.id, input=history[-1:], tools=[WEATHER], tool_choice="none",
        extra_body={"guided_choice": ["rain", "sun"]},
    )  # fmt: skip
    assert third.output_text in ("rain", "sun")


def test_calls_streamed(client: OpenAI) -> None:
    with client.responses.stream(
        model="default", input="Weather?", tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, temperature=1.5,
    ) as stream:  # fmt: skip
        deltas = [event for event in stream if event.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    (call,) = final.output
    assert call.type == "function_call"
    assert call.arguments == "".join(event.delta for event in deltas) == deltas[-1].snapshot
    assert isinstance(call.parsed_arguments, dict)


def test_tools_of_pydantic_models(client: OpenAI) -> None:
    response = client.responses.parse(
        model="default", input="What time is it?", tools=[openai.pydantic_function_tool(GetTime)], tool_choice="required",
        parallel_tool_calls=False, temperature=1.5,
    )  # fmt: skip
    (call,) = response.output
    assert call.type == "function_call"
    assert isinstance(call.parsed_arguments, GetTime)


def test_a_custom_tool_round_trip(client: OpenAI) -> None:
    first = client.responses.create(
        model="default", input="What is 1+2?", tools=[WEATHER, CALC], tool_choice={"type": "custom", "name": "calc"},
        temperature=1.5,
    )  # fmt: skip
    (call,) = first.output
    assert call.type == "custom_tool_call"
    assert re.fullmatch("[0-9]{1,3}[+][0-9]{1,3}", call.input)
    second = client.responses.create(
        model="default", previous_response_id=first.id, tools=[CALC], max_output_tokens=8,
        input=[{"type": "custom_tool_call_output", "call_id": call.call_id, "output": "3"}],
    )  # fmt: skip
    assert second.output


def test_a_custom_tool_streamed(client: OpenAI) -> None:
    events = list(client.responses.create(
        model="default", input="What is 1+2?", tools=[CALC], tool_choice="required", parallel_tool_calls=False, stream=True
    ))  # fmt: skip
    assert ORDER.fullmatch("".join(f"{event.type} " for event in events))
    deltas = "".join(event.delta for event in events if event.type == "response.custom_tool_call_input.delta")
    (done,) = (event for event in events if event.type == "response.custom_tool_call_input.done")
    assert re.fullmatch("[0-9]{1,3}[+][0-9]{1,3}", deltas)
    assert done.input == deltas


def test_allowed_tools(client: OpenAI) -> None:
    response = client.responses.create(
        model="default", input="Weather?", tools=[WEATHER, CALC], parallel_tool_calls=False, temperature=1.5,
        tool_choice={"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]},
    )  # fmt: skip
    assert [item.type for item in response.output] == ["function_call"]


def test_a_chain_and_what_is_kept(client: OpenAI) -> None:
    first = client.responses.create(model="default", input="My name is Ada.", max_output_tokens=8)
    second = client.responses.create(model="default", input="Who am I?", previous_response_id=first.id, max_output_tokens=8)
    assert second.previous_response_id == first.id
    assert second.usage
    assert first.usage
    assert second.usage.input_tokens > first.usage.input_tokens
    assert second.usage.input_tokens_details.cached_tokens > 0
    counted = client.responses.input_tokens.count(model="default", input="Who am I?", previous_response_id=first.id)
    assert counted.input_tokens == second.usage.input_tokens
    again = client.responses.retrieve(second.id)
    assert isinstance(again, Response)
    assert (again.output_text, again.usage) == (second.output_text, second.usage)
    items = list(client.responses.input_items.list(second.id, limit=2, order="asc"))
    assert [item.type for item in items] == ["message"] * 3  # in two pages
    client.responses.delete(second.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(second.id)
    with pytest.raises(openai.BadRequestError) as cancelled:
        client.responses.cancel(first.id)
    assert cancelled.value.code == "not_cancellable"


def test_logprobs(client: OpenAI) -> None:
    response = client.responses.create(
        model="default", input="Say hello.", max_output_tokens=5, include=["message.output_text.logprobs"], top_logprobs=3,
        temperature=0,
    )  # fmt: skip
    (message,) = response.output
    assert message.type == "message"
    (part,) = message.content
    assert part.type == "output_text"
    assert part.logprobs
    for entry in part.logprobs:
        assert len(entry.top_logprobs) == 3
        assert entry.logprob == max(top.logprob for top in entry.top_logprobs)
    assert b"".join(bytes(entry.bytes) for entry in part.logprobs).decode() == part.text


def test_reasoning(thinker: OpenAI) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "maxLength": 5}}, "required": ["x"]}
    fields: dict[str, Any] = {
        "model": "default", "input": "Think.", "reasoning": {"effort": "low"}, "max_output_tokens": 200, "temperature": 1.0,
        "text": {"format": {"type": "json_schema", "name": "x", "schema": schema}},
    }  # fmt: skip
    for seed in range(20):
        response = thinker.responses.create(**fields, extra_body={"seed": seed})
        if response.output[0].type == "reasoning":
            break
    reasoning, message = response.output
    assert reasoning.type == "reasoning"
    assert reasoning.content
    assert message.type == "message"
    assert set(json.loads(response.output_text)) >= {"x"}
    assert response.usage
    assert response.usage.output_tokens_details.reasoning_tokens > 0
    events = list(thinker.responses.create(**fields, extra_body={"seed": seed}, stream=True))
    assert ORDER.fullmatch("".join(f"{event.type} " for event in events))
    thought = "".join(event.delta for event in events if event.type == "response.reasoning_text.delta")
    assert thought == reasoning.content[0].text
    off = thinker.responses.create(**{**fields, "reasoning": {"effort": "none"}})
    assert [item.type for item in off.output] == ["message"]
    history: list[Any] = [
        *(item.model_dump(exclude_unset=True) for item in response.output),
        {"role": "user", "content": "More."},
    ]
    assert thinker.responses.create(**{**fields, "input": history}).output


def test_errors_are_the_packages_own(client: OpenAI) -> None:
    def failing(kind: type[openai.APIStatusError], **fields: Any) -> Any:
        with pytest.raises(kind) as caught:
            client.responses.create(**{"model": "default", "input": "hi", **fields})
        return caught.value

    assert failing(openai.NotFoundError, model="gpt-4").code == "model_not_found"
    assert failing(openai.BadRequestError, input=[]).param == "input"
    assert failing(openai.BadRequestError, tools=[{"type": "web_search"}]).param == "tools[0].type"
    assert failing(openai.BadRequestError, background=True).code == "unsupported_parameter"
    assert failing(openai.BadRequestError, previous_response_id="resp_0").code == "previous_response_not_found"
    assert failing(openai.BadRequestError, max_output_tokens=5000).param == "max_output_tokens"
    too_few = failing(openai.BadRequestError, max_output_tokens=1, text={"format": {"type": "json_schema", "name": "p",
                      "schema": Person.model_json_schema()}})  # fmt: skip
    assert (too_few.code, too_few.param) == ("max_tokens_too_small", "max_output_tokens")
    assert "max_output_tokens" in too_few.message


def test_a_stream_that_fails_raises(thinker: OpenAI, thinking_server: LiveServer) -> None:
    stream = thinker.responses.create(
        model="default", input="Go on.", stream=True, max_output_tokens=900, extra_body={"ignore_eos": True}
    )
    assert next(stream).type == "response.created"
    thinking_server.kill_model()
    with pytest.raises(openai.APIError, match="signal 9"):
        list(stream)
