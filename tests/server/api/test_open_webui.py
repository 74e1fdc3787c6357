"""What Open WebUI 0.12.4 sends to an Ollama connection, recorded between it and this server, and what it reads of the answers.

The recording has the requests of a model list, a streamed chat, the tasks after it, a native tool call and its result, a
response format, a constraint among a model's custom parameters, embeddings, and models shown, unloaded and pulled. The texts of
tasks are left out. What it does with answers: `routers/ollama.py` and `utils/response.py` of the package `open-webui`.
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
from tests.server.api.test_tools import CALL, says
from tests.server.fakes import Served, serve

RECORDING = Path(__file__).with_name("open_webui_ollama.jsonl")
REQUESTS: list[dict[str, Any]] = [json.loads(line) for line in RECORDING.read_text("utf-8").splitlines()]
IDS = [f"{row['step']}{row['path']}" for row in REQUESTS]
COUNTS = ("prompt_eval_count", "eval_count", "prompt_eval_duration", "eval_duration", "total_duration", "load_duration")


async def send(served: Served, row: dict[str, Any]) -> httpx.Response:
    reply = await served.client.request(row["method"], row["path"], json=row.get("body"))
    assert reply.status_code == 200, reply.text
    return reply


@pytest.mark.parametrize("row", REQUESTS, ids=IDS)
async def test_the_recorded_request_is_answered_as_it_is_read(served: Served, row: dict[str, Any]) -> None:
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
            check_chat(reply, is_stream=row["body"]["stream"])
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


def check_chat(reply: httpx.Response, *, is_stream: bool) -> None:
    lines = [json.loads(line) for line in reply.text.splitlines()]
    assert len(lines) > 1 if is_stream else len(lines) == 1
    assert "".join(line["message"]["content"] for line in lines) == "Hello"
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert all(isinstance(lines[-1][name], int) for name in COUNTS)


def only(step: str) -> dict[str, Any]:
    (row,) = (row for row in REQUESTS if row["step"] == step and row["path"] == "/api/chat")
    return row


async def test_a_call_has_what_becomes_a_call_there() -> None:
    async with serve(says(CALL, 40)) as served:
        lines = [json.loads(line) for line in (await send(served, only("a native tool call"))).text.splitlines()]
        (call,) = [call for line in lines for call in line["message"].get("tool_calls", ())]
        assert isinstance(call["function"]["index"], int)
        assert call["id"]
        assert json.loads(json.dumps(call["function"]["arguments"])) == {"city": 'Köln "x"'}


@pytest.mark.parametrize(
    ("step", "good", "bad"),
    [
        ("a response format", '{"x":"a"}', '{"x":"c"}'),
        ("a constraint among a model's custom parameters", "yes", "maybe"),
    ],
)
async def test_constraints_reach_the_engine(served: Served, step: str, good: str, bad: str) -> None:
    await send(served, only(step))
    (text,) = served.engine.grammars.values()
    grammar = Matcher.from_tables(build_tables(parse_gbnf(text)))
    assert grammar.accepts(good)
    assert not grammar.accepts(bad)


async def test_the_parameters_reach_the_engine(served: Served) -> None:
    await send(served, only("a streamed chat"))
    request = served.engine.requests[-1]
    assert (request.max_tokens, request.stop, request.sampling.seed, request.sampling.top_k) == (8, ("END",), 1, 20)
    assert served.app.state.manager.touched == [("fake", 300.0)]
