"""The official `openai` package judges the wire format."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Literal

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel, Field

from tests.live_server import LiveServer

pytestmark = pytest.mark.client

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]
ENDLESS = {"ignore_eos": True}  # a drawn answer may end at any token, so one that must reach its limit is not allowed to


class Person(BaseModel):
    name: str = Field(max_length=10)
    age: int = Field(ge=0, le=130)
    mood: Literal["happy", "sad"]


@pytest.fixture
def client(live_server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{live_server.url}/v1", api_key="sesame", max_retries=0) as opened:
        yield opened


def test_models(client: OpenAI) -> None:
    (model, *_) = client.models.list().data
    assert model.created
    assert client.models.retrieve(model.id).id == model.id
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nope")


def test_a_chat(client: OpenAI) -> None:
    completion = client.chat.completions.create(model="default", messages=MESSAGES, max_tokens=8, n=2, extra_body=ENDLESS)
    assert len(completion.choices) == 2
    assert completion.usage
    assert completion.usage.prompt_tokens > 0
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens
    assert completion.choices[0].finish_reason == "length"
    assert completion.choices[0].message.content


def test_a_chat_streamed(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="default",
        messages=MESSAGES,
        max_tokens=8,
        n=2,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=ENDLESS,
    )
    chunks = list(stream)
    assert chunks[-1].usage
    assert chunks[-1].choices == []
    assert len({chunk.id for chunk in chunks}) == 1
    for index in (0, 1):
        own = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert own[0].delta.role == "assistant"
        assert own[-1].finish_reason == "length"
        assert "".join(choice.delta.content or "" for choice in own)


def test_the_stream_helper(client: OpenAI) -> None:
    choices = {"guided_choice": ["hello there", "good evening"]}
    with client.chat.completions.stream(model="default", messages=MESSAGES, extra_body=choices) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        assert stream.get_final_completion().choices[0].message.content == text


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_parse_into_a_pydantic_model(client: OpenAI, temperature: float) -> None:
    completion = client.chat.completions.parse(
        model="default", messages=MESSAGES, response_format=Person, temperature=temperature, n=4, max_tokens=400
    )
    for choice in completion.choices:
        assert isinstance(choice.message.parsed, Person)
        assert choice.finish_reason == "stop"


def test_parse_streamed(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="default", messages=MESSAGES, response_format=Person, temperature=1.5, max_tokens=400
    ) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Person)


def test_extra_body(client: OpenAI) -> None:
    completion = client.chat.completions.create(
        model="default", messages=MESSAGES, temperature=1.5, extra_body={"guided_choice": ["red", "blue"]}
    )
    assert completion.choices[0].message.content in ("red", "blue")


def test_logprobs(client: OpenAI) -> None:
    completion = client.chat.completions.create(
        model="default", messages=MESSAGES, max_tokens=5, logprobs=True, top_logprobs=3, temperature=0
    )
    logprobs = completion.choices[0].logprobs
    assert logprobs
    assert logprobs.content
    for entry in logprobs.content:
        assert len(entry.top_logprobs) == 3
        assert entry.logprob == max(top.logprob for top in entry.top_logprobs)
    text = b"".join(bytes(entry.bytes or ()) for entry in logprobs.content)
    assert text.decode() == completion.choices[0].message.content


def test_completions(client: OpenAI) -> None:
    completion = client.completions.create(
        model="default", prompt=["One two", "A B"], max_tokens=4, echo=True, logprobs=2, temperature=0
    )
    assert [choice.index for choice in completion.choices] == [0, 1]
    for choice, prompt in zip(completion.choices, ("One two", "A B"), strict=True):
        assert choice.text.startswith(prompt)
        assert choice.logprobs
        assert choice.logprobs.tokens
        assert "".join(choice.logprobs.tokens) == choice.text
        assert choice.logprobs.token_logprobs
        assert choice.logprobs.token_logprobs[0] is None
    stream = client.completions.create(model="default", prompt="One two", max_tokens=4, stream=True, extra_body=ENDLESS)
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "length"


def test_scoring_a_text(client: OpenAI) -> None:
    completion = client.completions.create(model="default", prompt="The sky is blue", max_tokens=0, echo=True, logprobs=1)
    logprobs = completion.choices[0].logprobs
    assert logprobs
    assert logprobs.token_logprobs
    assert all(value is not None and value <= 0 for value in logprobs.token_logprobs[1:])
    assert completion.choices[0].text == "The sky is blue"


def test_errors_are_the_packages_own(client: OpenAI, live_server: LiveServer) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt-4", messages=MESSAGES)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="default", messages=MESSAGES, extra_body={"guided_regex": "("})
    assert wrong.value.param == "guided_regex"
    with pytest.raises(openai.BadRequestError) as wide:
        client.chat.completions.create(model="default", messages=MESSAGES, temperature=-1)
    assert wide.value.param == "temperature"
    with (
        OpenAI(base_url=f"{live_server.url}/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 12},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_a_forced_call(client: OpenAI, temperature: float) -> None:
    completion = client.chat.completions.create(
        model="default", messages=MESSAGES, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False,
        temperature=temperature, n=4,
    )  # fmt: skip
    for choice in completion.choices:
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content is None
        (call,) = choice.message.tool_calls or []
        assert call.type == "function"
        assert call.function.name == "get_weather"
        arguments = json.loads(call.function.arguments)
        assert set(arguments) == {"city", "days"}
        assert 1 <= arguments["days"] <= 9


def test_a_forced_call_streamed(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="default", messages=MESSAGES, tools=[WEATHER], temperature=1.5, seed=4,
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
    ) as stream:  # fmt: skip
        for _ in stream:
            pass
        (choice,) = stream.get_final_completion().choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls or []
    assert set(json.loads(call.function.arguments)) == {"city", "days"}


def test_a_parse_without_room_says_so(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"needs \d+ tokens") as refused:
        client.chat.completions.parse(model="default", messages=MESSAGES, response_format=Person, max_tokens=3)
    needed = int(re.findall(r"needs (\d+) tokens", str(refused.value))[0])
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model="default", messages=MESSAGES, response_format=Person, max_tokens=needed, temperature=0
        )
    completion = client.chat.completions.parse(
        model="default", messages=MESSAGES, response_format=Person, max_tokens=needed, extra_body={"on_length": "stop"}
    )
    assert isinstance(completion.choices[0].message.parsed, Person)
