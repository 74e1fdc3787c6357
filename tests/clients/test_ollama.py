"""The official `ollama` package judges the wire format: sync, async and streaming, over three models."""

from __future__ import annotations

import functools
import http.server
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import ollama
import pytest
import pytest_asyncio
from pydantic import BaseModel, Field

from tests.live_server import LiveServer
from tests.tiny_models import TinyModel, write_tiny_model

pytestmark = pytest.mark.client

HEADERS = {"Authorization": "Bearer sesame"}
MESSAGES = [{"role": "user", "content": "Say hello."}]
SHORT = {"num_predict": 8, "seed": 1, "ignore_eos": True}
THINKING_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
MIDDLE = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
THINKER = TinyModel(controls=("<|im_start|>", "<|im_end|>", "<think>", "</think>", *MIDDLE), chat_template=THINKING_TEMPLATE)


class Person(BaseModel):
    name: str = Field(max_length=10)
    age: int = Field(ge=0, le=130)


def get_weather(city: str) -> str:
    """Tell the weather.

    Args:
      city: Where.
    """
    return f"{city}: rainy"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a web server with one model."""
    folder = tmp_path_factory.mktemp("shelf")
    write_tiny_model(folder / "remote.gguf", TinyModel(chat_template=THINKING_TEMPLATE, seed=2))
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/remote.gguf"
        server.shutdown()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server(default_model: Path, shelf: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("models")
    write_tiny_model(folder / "thinker.gguf", THINKER)
    models = folder / "models.txt"
    models.write_text(f"smol {default_model}\nthinker thinker.gguf\nremote:tiny {shelf}\n", "utf-8")
    options = ("--models", str(models), "--cache-dir", str(folder / "cache"), "--ctx", "1024", "--threads", "1")
    with LiveServer(Path("smol"), *options, "--api-key", "sesame") as running:
        yield running


@pytest.fixture
def client(server: LiveServer) -> Iterator[ollama.Client]:
    with ollama.Client(host=server.url, headers=HEADERS) as opened:
        yield opened


@pytest_asyncio.fixture
async def async_client(server: LiveServer) -> AsyncIterator[ollama.AsyncClient]:
    async with ollama.AsyncClient(host=server.url, headers=HEADERS) as opened:
        yield opened


def check_end(answer: ollama.ChatResponse | ollama.GenerateResponse, reason: str = "length") -> None:
    """The last line's figures are there, and add up."""
    assert (answer.done, answer.done_reason) == (True, reason)
    assert answer.prompt_eval_count
    assert answer.eval_count
    assert answer.total_duration
    assert answer.eval_duration
    assert answer.prompt_eval_duration is not None
    assert answer.load_duration is not None
    assert answer.total_duration >= answer.load_duration + answer.eval_duration
    assert datetime.fromisoformat((answer.created_at or "").replace("Z", "+00:00"))


# ---- answers


def test_a_chat(client: ollama.Client) -> None:
    answer = client.chat("smol", MESSAGES, options=SHORT)
    check_end(answer)
    assert (answer.model, answer.eval_count, answer.message.role) == ("smol", 8, "assistant")
    streamed = list(client.chat("smol", MESSAGES, options=SHORT, stream=True))
    assert "".join(line.message.content or "" for line in streamed) == answer.message.content
    assert len(streamed) > 4
    check_end(streamed[-1])


async def test_async_chats(async_client: ollama.AsyncClient) -> None:
    answer = await async_client.chat("smol", MESSAGES, options=SHORT)
    streamed = [line async for line in await async_client.chat("smol", MESSAGES, options=SHORT, stream=True)]
    assert "".join(line.message.content or "" for line in streamed) == answer.message.content
    check_end(streamed[-1])


def test_generate(client: ollama.Client) -> None:
    answer = client.generate("smol", "Say hello.", system="You are brief.", options=SHORT)
    check_end(answer)
    streamed = list(client.generate("smol", "Say hello.", system="You are brief.", options=SHORT, stream=True))
    assert "".join(line.response or "" for line in streamed) == answer.response
    assert streamed[-1].context == answer.context
    raw = client.generate("smol", "One, two, three,", raw=True, options={"num_predict": 4, "temperature": 0})
    assert raw.context is None
    assert raw.prompt_eval_count
    assert raw.prompt_eval_count < (answer.prompt_eval_count or 0)


async def test_async_generate(async_client: ollama.AsyncClient) -> None:
    answer = await async_client.generate("smol", "Say hello.", options=SHORT)
    streamed = [line async for line in await async_client.generate("smol", "Say hello.", options=SHORT, stream=True)]
    assert "".join(line.response or "" for line in streamed) == answer.response


def test_generate_goes_on_from_its_context(client: ollama.Client) -> None:
    first = client.generate("smol", "My name is Ada.", options=SHORT)
    assert first.context
    second = client.generate("smol", "What is my name?", context=first.context, options=SHORT)
    assert second.context
    assert second.context[: len(first.context) - 1] == first.context[:-1]
    assert (second.prompt_eval_count or 0) > len(first.context)


def test_log_probabilities(client: ollama.Client) -> None:
    answer = client.chat("smol", MESSAGES, options=SHORT, logprobs=True, top_logprobs=3)
    assert answer.logprobs
    assert "".join(entry.token for entry in answer.logprobs) == answer.message.content
    assert all(len(entry.top_logprobs or ()) == 3 for entry in answer.logprobs)


def test_stop_strings(client: ollama.Client) -> None:
    answer = client.generate("smol", "a b c", raw=True, format="json", options={"stop": ['"'], "num_predict": 20})
    assert '"' not in (answer.response or "")


# ---- shapes


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema(client: ollama.Client, stream: bool) -> None:
    options = {"temperature": 1.5, "num_predict": 200}
    schema = Person.model_json_schema()
    if stream:
        lines = client.chat("smol", MESSAGES, format=schema, options=options, stream=True)
        text = "".join(line.message.content or "" for line in lines)
    else:
        text = client.chat("smol", MESSAGES, format=schema, options=options).message.content or ""
    Person.model_validate_json(text)
    jsonschema.validate(json.loads(text), schema)


def test_any_json(client: ollama.Client) -> None:
    answer = client.generate("smol", "An object.", format="json", options={"temperature": 1.2, "num_predict": 100})
    assert isinstance(json.loads(answer.response or ""), dict)


def test_constraints_in_options(client: ollama.Client) -> None:
    """Where Open WebUI puts a model's custom parameters."""
    answer = client.chat("smol", MESSAGES, options={"guided_regex": "[0-9]{4}-[0-9]{2}", "temperature": 1.5})
    assert re.fullmatch("[0-9]{4}-[0-9]{2}", answer.message.content or "")
    assert answer.done_reason == "stop"


# ---- thinking


@pytest.mark.parametrize("think", [True, "low"])
def test_thinking(client: ollama.Client, think: Any) -> None:
    schema = {"type": "object", "properties": {"x": {"enum": ["a", "b"]}}, "required": ["x"], "additionalProperties": False}
    options = {"num_predict": 100, "temperature": 1.0, "seed": 3}
    answer = client.chat("thinker", MESSAGES, think=think, format=schema, options=options)
    assert answer.message.thinking
    jsonschema.validate(json.loads(answer.message.content or ""), schema)
    lines = list(client.chat("thinker", MESSAGES, think=think, format=schema, options=options, stream=True))
    assert "".join(line.message.thinking or "" for line in lines) == answer.message.thinking
    assert "".join(line.message.content or "" for line in lines) == answer.message.content
    generated = client.generate("thinker", "hi", think=think, format=schema, options=options)
    assert generated.thinking
    jsonschema.validate(json.loads(generated.response or ""), schema)


def test_no_thinking(client: ollama.Client) -> None:
    schema = {"enum": ["a", "b"]}
    for think in (False, None):
        answer = client.chat("thinker", MESSAGES, think=think, format=schema, options={"num_predict": 100})
        assert json.loads(answer.message.content or "") in ("a", "b")
    assert not client.chat("thinker", MESSAGES, think=False, format=schema).message.thinking


# ---- tools


def test_tools(client: ollama.Client) -> None:
    """The package makes the schema of a Python function; `tool_choice` is what this server adds."""
    tool = ollama._utils.convert_function_to_tool(get_weather).model_dump(exclude_none=True)
    body = {"model": "smol", "messages": MESSAGES, "tools": [tool], "tool_choice": "required", "stream": False}
    reply = client._client.post("/api/chat", json={**body, "options": {"num_predict": 200}})
    answer = ollama.ChatResponse(**reply.json())
    assert answer.message.tool_calls
    for call in answer.message.tool_calls:
        assert call.function.name == "get_weather"
        assert isinstance(call.function.arguments["city"], str)
    result = {"role": "tool", "tool_name": "get_weather", "content": get_weather("Köln")}
    following = client.chat("smol", [*MESSAGES, answer.message, result], tools=[get_weather], options=SHORT)
    assert following.done


def test_tools_that_are_free(client: ollama.Client) -> None:
    for line in client.chat("smol", MESSAGES, tools=[get_weather], options={"num_predict": 60, "seed": 2}, stream=True):
        for call in line.message.tool_calls or ():
            assert call.function.name == "get_weather"


# ---- models


def test_list_and_show(client: ollama.Client) -> None:
    listed = {model.model: model for model in client.list().models}
    assert {"smol:latest", "thinker:latest"} <= set(listed)
    assert listed["smol:latest"].details
    assert listed["smol:latest"].details.family == "llama"
    assert listed["smol:latest"].size
    shown = client.show("thinker")
    assert shown.modelinfo
    assert shown.modelinfo["general.architecture"] == "llama"
    assert shown.template == THINKING_TEMPLATE
    assert {"completion", "thinking"} <= set(shown.capabilities or ())


def test_ps_and_how_long_a_model_stays(client: ollama.Client) -> None:
    """Loaded by an empty prompt, seen, and unloaded by a keep_alive of 0."""
    assert client.generate("thinker", keep_alive="10m").done_reason == "load"
    running = {model.model: model for model in client.ps().models}
    thinker = running["thinker:latest"]
    assert thinker.expires_at
    assert timedelta(minutes=9) < thinker.expires_at - datetime.now(timezone.utc) < timedelta(minutes=11)
    assert (thinker.context_length, thinker.details and thinker.details.format) == (1024, "gguf")
    assert client.chat("thinker", keep_alive=-1).done_reason == "load"
    forever = next(model for model in client.ps().models if model.model == "thinker:latest")
    assert forever.expires_at
    assert forever.expires_at.year > 2100
    assert client.generate("thinker", keep_alive=0).done_reason == "unload"
    assert _goes(client, "thinker:latest")
    client.chat("thinker", MESSAGES, keep_alive=0, options=SHORT)
    assert _goes(client, "thinker:latest")


def _goes(client: ollama.Client, name: str) -> bool:
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        if name not in {model.model for model in client.ps().models}:
            return True
        time.sleep(0.2)
    return False


def test_pull_and_delete(client: ollama.Client) -> None:
    names = {model.model for model in client.list().models}
    assert "remote:tiny" not in names
    with pytest.raises(ollama.ResponseError) as missing:
        client.show("remote:tiny")
    assert missing.value.status_code == 404
    steps = list(client.pull("remote:tiny", stream=True))
    assert (steps[0].status, steps[-1].status) == ("pulling manifest", "success")
    assert any(step.completed and step.completed == step.total for step in steps)
    assert client.pull("remote:tiny").status == "success"
    assert "remote:tiny" in {model.model for model in client.list().models}
    assert client.chat("remote:tiny", MESSAGES, options=SHORT).done
    assert client.delete("remote:tiny").status == "success"
    assert "remote:tiny" not in {model.model for model in client.list().models}
    with pytest.raises(ollama.ResponseError) as gone:
        client.delete("remote:tiny")
    assert gone.value.status_code == 404


async def test_async_models(async_client: ollama.AsyncClient) -> None:
    assert (await async_client.list()).models
    assert (await async_client.ps()).models
    assert (await async_client.show("smol")).details


# ---- vectors


def test_embeddings(client: ollama.Client) -> None:
    answer = client.embed("smol", ["a cat", "a dog"])
    assert len(answer.embeddings) == 2
    assert answer.prompt_eval_count == 4
    for vector in answer.embeddings:
        assert sum(number * number for number in vector) == pytest.approx(1, abs=1e-4)
    alone = client.embed("smol", "a cat").embeddings[0]
    assert alone == pytest.approx(answer.embeddings[0], abs=1e-4)
    assert client.embeddings("smol", "a cat").embedding == pytest.approx(alone, abs=1e-4)
    with pytest.raises(ollama.ResponseError, match="input"):
        client.embed("smol", "cat " * 2000, truncate=False)
    assert len(client.embed("smol", "cat " * 2000).embeddings) == 1


async def test_async_embeddings(async_client: ollama.AsyncClient) -> None:
    assert len((await async_client.embed("smol", ["a", "b"])).embeddings) == 2


# ---- errors


def test_errors(client: ollama.Client) -> None:
    for ask in (
        lambda: client.chat("nope", MESSAGES),
        lambda: list(client.chat("nope", MESSAGES, stream=True)),
        lambda: client.generate("nope", "hi"),
        lambda: client.show("nope"),
        lambda: client.pull("nope"),
    ):
        with pytest.raises(ollama.ResponseError) as missing:
            ask()
        assert missing.value.status_code == 404
        assert missing.value.error.startswith("model 'nope' not found")
    with pytest.raises(ollama.ResponseError) as refused:
        client.chat("smol", MESSAGES, options={"temperature": "hot"})
    assert (refused.value.status_code, refused.value.error) == (400, "options.temperature must be a number")
    refusals: list[Callable[[], object]] = [
        lambda: client.copy("smol", "other"),
        lambda: client.create("other", from_="smol"),
        lambda: client.push("smol"),
    ]
    for refuse in refusals:
        with pytest.raises(ollama.ResponseError) as other:
            refuse()
        assert other.value.status_code == 400
        assert "models.txt" in other.value.error
    with pytest.raises(ollama.ResponseError) as delete:
        client.delete("smol")
    assert (delete.value.status_code, "delete it yourself" in delete.value.error) == (400, True)


def test_a_suffix(client: ollama.Client) -> None:
    answer = client.generate("thinker", "the cat", suffix="dog", options=SHORT)
    assert answer.done
    assert answer.context is None
    with pytest.raises(ollama.ResponseError, match="does not support insert"):
        client.generate("smol", "the cat", suffix="dog")


def test_a_model_that_dies_ends_the_stream_with_an_error(server: LiveServer, client: ollama.Client) -> None:
    client.generate("thinker", keep_alive=0)
    assert _goes(client, "thinker:latest")
    stream = client.chat("smol", MESSAGES, options={"num_predict": 500, "seed": 1}, stream=True)
    next(iter(stream))
    server.kill_model()
    with pytest.raises(ollama.ResponseError):
        list(stream)
    assert client.chat("smol", MESSAGES, options=SHORT).done
