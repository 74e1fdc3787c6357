"""What Open WebUI 0.12.4 sends to an Ollama and to an OpenAI connection, recorded, and what it reads of the answers.

The recordings, made between it and this server, have the requests of a model list, a streamed chat, the tasks after it, a
native tool call and its result, a response format, a constraint among a model's custom parameters, embeddings, models shown,
unloaded and pulled. The texts of tasks are left out. What it does with answers: `routers/` and `utils/` of `open-webui`.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from converters.grammar.gbnf_parser import parse_gbnf
from converters.grammar.match import Matcher, build_tables
from tests.server.api.sse import events
from tests.server.api.test_tools import CALL, says
from tests.server.fakes import Served, serve


def recording(connection: str) -> list[dict[str, Any]]:
    """The requests of a connection, each with the step that it belongs to."""
    text = Path(__file__).with_name(f"open_webui_{connection}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


OLLAMA, OPENAI = recording("ollama"), recording("openai")
CHATS = {"ollama": "/api/chat", "openai": "/v1/chat/completions"}
COUNTS = ("prompt_eval_count", "eval_count", "prompt_eval_duration", "eval_duration", "total_duration", "load_duration")


async def send(served: Served, row: dict[str, Any]) -> httpx.Response:
    reply = await served.client.request(row["method"], row["path"], json=row.get("body"))
    assert reply.status_code == 200, reply.text
    return reply


@pytest.mark.parametrize("row", OLLAMA, ids=[f"{row['step']}{row['path']}" for row in OLLAMA])
async def test_a_request_to_an_ollama_connection_is_answered_as_it_is_read(served: Served, row: dict[str, Any]) -> None:
    reply = await send(served, row)
    match row["path"]:
        case "/api/tags":
            (model,) = reply.json()["models"]
            assert ":" in model["model"]  # a chat's model gets a tag, and is looked up in this list
            assert model["name"]
        case "/api/ps":
            for model in reply.json()["models"]:
                assert int(datetime.fromisoformat(model["expires_at"].replace("Z", "+00:00")).timestamp())
        case "/api/version":
            assert tuple(map(int, re.sub(r"^v|-.*", "", reply.json()["version"]).split("."))) > (0, 6)
        case "/api/chat":
            check_ollama_chat(reply, is_stream=row["body"]["stream"])
        case "/api/generate":
            assert (reply.json()["done_reason"], served.app.state.manager.touched) == ("unload", [("fake", 0.0)])
        case "/api/embed":
            assert [type(vector) for vector in reply.json()["embeddings"]] == [list, list]
        case "/api/show":
            assert reply.json()["details"]["format"] == "gguf"
        case "/api/pull":
            assert json.loads(reply.text.splitlines()[-1]) == {"status": "success"}
        case path:
            raise AssertionError(f"{path} is in the recording and judged nowhere")


def check_ollama_chat(reply: httpx.Response, *, is_stream: bool) -> None:
    lines = [json.loads(line) for line in reply.text.splitlines()]
    assert len(lines) > 1 if is_stream else len(lines) == 1
    assert "".join(line["message"]["content"] for line in lines) == "Hello"
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert all(isinstance(lines[-1][name], int) for name in COUNTS)


@pytest.mark.parametrize("row", OPENAI, ids=[f"{row['step']}{row['path']}" for row in OPENAI])
async def test_a_request_to_an_openai_connection_is_answered_as_it_is_read(served: Served, row: dict[str, Any]) -> None:
    reply = await send(served, row)
    match row["path"]:
        case "/v1/models":
            assert reply.json()["data"][0]["id"] == "fake"
        case "/v1/chat/completions":
            if row["body"]["stream"]:
                check_stream(reply, wants_usage="stream_options" in row["body"])
            else:
                (choice,) = reply.json()["choices"]
                assert choice["message"]["content"] == "Hello"
                assert "error" not in reply.json()
        case "/v1/embeddings":
            assert [type(entry["embedding"]) for entry in reply.json()["data"]] == [list, list]
        case path:
            raise AssertionError(f"{path} is in the recording and judged nowhere")


def check_stream(reply: httpx.Response, *, wants_usage: bool) -> None:
    assert reply.headers["content-type"].startswith("text/event-stream")  # of anything else it waits for JSON
    *chunks, last = events(reply.text)
    assert last == "[DONE]"
    for chunk in chunks:
        assert not {"error", "event", "selected_model_id", "type"} & set(chunk)
        assert isinstance(chunk.get("timings", {}), dict)
        assert all(isinstance(choice["delta"], dict) for choice in chunk["choices"])
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert text.endswith("Hello")
    usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    assert [usage["completion_tokens"] for usage in usages] == [2] * wants_usage


def only(connection: str, step: str) -> dict[str, Any]:
    """The one chat of a step."""
    rows = {"ollama": OLLAMA, "openai": OPENAI}[connection]
    (row,) = (row for row in rows if row["step"] == step and row["path"] == CHATS[connection])
    return row


async def test_a_call_has_what_becomes_a_call_there() -> None:
    async with serve(says(CALL, 40)) as served:
        reply = await send(served, only("ollama", "a native tool call"))
        lines = [json.loads(line) for line in reply.text.splitlines()]
        (call,) = [call for line in lines for call in line["message"].get("tool_calls", ())]
        assert isinstance(call["function"]["index"], int)
        assert call["id"]
        assert call["function"]["arguments"] == {"city": 'Köln "x"'}
        reply = await send(served, only("openai", "a native tool call"))
        choices = [choice for chunk in events(reply.text)[:-1] for choice in chunk["choices"]]
        deltas = [delta for choice in choices for delta in choice["delta"].get("tool_calls", ())]
        assert all(isinstance(delta["index"], int) for delta in deltas)
        assert json.loads("".join(delta["function"]["arguments"] for delta in deltas)) == {"city": 'Köln "x"'}
        assert choices[-1]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("connection", CHATS)
@pytest.mark.parametrize(
    ("step", "good", "bad"),
    [
        ("a response format", '{"x":"a"}', '{"x":"c"}'),
        ("a constraint among a model's custom parameters", "yes", "maybe"),
    ],
)
async def test_constraints_reach_the_engine(served: Served, connection: str, step: str, good: str, bad: str) -> None:
    await send(served, only(connection, step))
    (text,) = served.engine.grammars.values()
    grammar = Matcher.from_tables(build_tables(parse_gbnf(text)))
    assert grammar.accepts(good)
    assert not grammar.accepts(bad)


@pytest.mark.parametrize("connection", CHATS)
async def test_the_parameters_reach_the_engine(served: Served, connection: str) -> None:
    await send(served, only(connection, "a streamed chat"))
    request = served.engine.requests[-1]
    assert (request.max_tokens, request.stop, request.sampling.seed, request.sampling.top_k) == (8, ("END",), 1, 20)
    assert served.app.state.manager.touched == ([("fake", 300.0)] if connection == "ollama" else [])
