"""The requests of Open WebUI 0.12.4, replayed against a live server, with replies read as it reads them.

For its connections to OpenAI's chat, to OpenAI's Responses and to Ollama. Open WebUI is no dependency of this test.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.clients.open_webui.reading import Call, Reply, read_reply
from tests.live_server import LiveServer
from tests.tiny_models import TinyModel, write_tiny_model

pytestmark = pytest.mark.client

Row = dict[str, Any]

TEMPLATE = """
{%- if tools %}<|im_start|>system
Tools: {{ tools | tojson }}. Call them with <tool_call>{"name": …, "arguments": …}</tool_call><|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content or "" }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
MODEL = TinyModel(
    n_ctx_train=16384, user_defined=("<tool_call>", "</tool_call>", "<think>", "</think>"), chat_template=TEMPLATE
)
SECONDS_TO_STOP = 10.0


def recording(connection: str) -> list[Row]:
    text = Path(__file__).with_name("open_webui").joinpath(f"{connection}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


RECORDINGS = {name: recording(name) for name in ("openai", "responses", "ollama")}
ROWS = [
    pytest.param(row, id=f"{name}: {row['step']} ({place})")
    for name, rows in RECORDINGS.items()
    for place, row in enumerate(rows)
]
CONNECTIONS = list(RECORDINGS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A model that thinks, calls tools and makes no sense."""
    path = write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf", MODEL)
    with LiveServer(path, "--ctx", "16384", "--parallel", "4", "--threads", "1") as live:
        yield live


def steps(connection: str, step: str) -> list[Row]:
    return [row for row in RECORDINGS[connection] if row["step"] == step]


def fields_of(row: Row) -> dict[str, Any]:
    """Where its custom parameters are."""
    return {**row["body"], **row["body"].get("options", {})}


def ask(server: LiveServer, row: Row) -> Reply:
    reply = server.client.request(row["method"], row["path"], json=row.get("body"))
    return read_reply(reply, row["path"], is_stream=row["body"]["stream"])


@pytest.mark.parametrize("row", ROWS)
def test_a_recorded_request_is_answered_as_it_is_read(server: LiveServer, row: Row) -> None:
    match row["path"]:
        case "/v1/chat/completions" | "/api/chat" | "/v1/responses" if row["step"] in REFUSED:
            check_refusal(server, row)
        case "/v1/chat/completions" | "/api/chat" | "/v1/responses" if not row["step"].startswith("stop"):
            check_reply(ask(server, row), row)
        case "/v1/chat/completions" | "/api/chat":
            pass  # below: there the client goes away
        case path:
            reply = server.client.request(row["method"], path, json=row.get("body"))
            assert reply.status_code == 200, reply.text
            OTHERS[path](reply.json())


REFUSED = {"a constraint that can't be read": "group", "a custom parameter of the wrong type": "string"}
"""A word of the text that the user is shown."""


def check_refusal(server: LiveServer, row: Row) -> None:
    reply = server.client.post(row["path"], json=row["body"])
    assert reply.status_code == 400
    error = reply.json()["error"]
    text = error["message"] if isinstance(error, dict) else error
    assert "guided_regex" in text
    assert REFUSED[row["step"]] in text


def check_reply(reply: Reply, row: Row) -> None:
    fields = fields_of(row)
    tools = dict(map(tool, fields.get("tools", ())))
    if fields["stream"] and ("stream_options" in fields or row["path"] != "/v1/chat/completions"):
        assert reply.usage is not None
        assert reply.usage[0] > 0
        most = fields.get("max_tokens") or fields.get("num_predict") or fields.get("max_output_tokens") or 16384
        assert 0 < reply.usage[1] <= most
    for call in reply.calls:
        jsonschema.validate(json.loads(call.arguments), tools[call.name])
    if fields.get("tool_choice") == "required":
        assert reply.calls
    elif reply.calls:
        assert len(reply.calls) == 1 or fields.get("parallel_tool_calls") is not False
    else:
        check_constraint(reply.content, fields)


def tool(given: Row) -> tuple[str, Any]:
    function = given.get("function", given)
    return function["name"], function["parameters"]


def check_constraint(content: str, fields: Row) -> None:
    for name in set(fields) & set(CONSTRAINTS):
        assert CONSTRAINTS[name](content, fields[name]), (name, content)


def is_valid(content: str, schema: Any) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid(json.loads(content))


CONSTRAINTS: dict[str, Callable[[str, Any], bool]] = {
    "guided_choice": lambda content, words: content in words,
    "guided_regex": lambda content, pattern: re.fullmatch(pattern, content) is not None,
    "guided_json": is_valid,
    "format": is_valid,
    "response_format": lambda content, wish: is_valid(content, wish["json_schema"]["schema"]),
    "grammar": lambda content, text: content in re.findall(r'"(\w+)"', text),
    "structured_outputs": lambda content, wish: content in wish["choice"],
}


def check_embeddings(body: Any) -> None:
    assert all(isinstance(number, float) for entry in body["data"] for number in entry["embedding"])


def check_models(body: Any) -> None:
    (model,) = (model for model in body["data"] if model["id"] == "tiny")
    assert model["status"]["value"] in ("loaded", "loading", "sleeping", "unloaded")  # of a connection of the type llama.cpp


def check_tags(body: Any) -> None:
    assert "tiny:latest" in [model["model"] for model in body["models"]]  # the name that its chats send


OTHERS: dict[str, Callable[[Any], None]] = {
    "/v1/models": check_models,
    "/models": check_models,
    "/models/load": lambda body: check_success(body),
    "/models/unload": lambda body: check_success(body),
    "/v1/embeddings": check_embeddings,
    "/api/tags": check_tags,
    "/api/ps": lambda body: check_tags(body) if body["models"] else None,
    "/api/version": lambda body: check_version(body["version"]),
}


def check_success(body: Any) -> None:
    assert body["success"] is True


def check_version(version: str) -> None:
    assert tuple(map(int, version.split("."))) > (0, 6)


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_a_call_and_its_result_become_the_next_request(server: LiveServer, connection: str) -> None:
    """What it makes of our call has the shape of what was recorded, and is answered."""
    first, then = steps(connection, "a native tool call")
    (call,) = ask(server, without(first, "tool_choice", tool_choice="required", parallel_tool_calls=False)).calls
    said = "input" if connection == "responses" else "messages"
    grown = [*first["body"][said], *HISTORY[connection](call, "rain")]
    assert shape(grown) == shape(then["body"][said])
    row = without(
        {**then, "body": {**then["body"], said: grown}}, "tool_choice", tool_choice="none", guided_choice=["wet", "dry"]
    )
    reply = ask(server, row)
    assert (reply.content in ("wet", "dry"), reply.calls) == (True, ())


def without(row: Row, *names: str, **fields: Any) -> Row:
    """The request with other custom parameters."""
    body = {name: value for name, value in row["body"].items() if name not in names}
    if "options" in body:
        options = {name: value for name, value in body["options"].items() if name not in names}
        return {**row, "body": {**body, "options": {**options, **fields}}}
    return {**row, "body": {**body, **fields}}


def openai_history(call: Call, result: str) -> list[Row]:
    function = {"name": call.name, "arguments": call.arguments}
    return [
        {"role": "assistant", "content": "", "tool_calls": [{"id": call.id, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call.id, "content": result},
    ]


def ollama_history(call: Call, result: str) -> list[Row]:
    function = {"name": call.name, "arguments": json.loads(call.arguments)}
    return [
        {"role": "assistant", "content": "", "tool_calls": [{"index": 0, "id": call.id, "function": function}]},
        {"role": "tool", "tool_call_id": call.id, "content": result},
    ]


def responses_history(call: Call, result: str) -> list[Row]:
    return [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments},
        {"type": "function_call_output", "call_id": call.id, "output": result},
    ]


HISTORY: dict[str, Callable[[Call, str], list[Row]]] = {
    "openai": openai_history,
    "ollama": ollama_history,
    "responses": responses_history,
}


def shape(value: Any, name: str = "") -> Any:
    """Names and types, without what a call's arguments are."""
    if isinstance(value, dict) and name != "arguments":
        return {key: shape(entry, key) for key, entry in value.items()}
    return [shape(entry) for entry in value] if isinstance(value, list) else type(value)


@pytest.mark.parametrize("connection", ["openai", "ollama"])
@pytest.mark.parametrize("phase", ["while it writes", "while it reads the prompt"])
def test_stop_frees_the_slot(server: LiveServer, connection: str, phase: str) -> None:
    """Its stop button closes the connection, whatever the reply is at."""
    (row,) = steps(connection, f"stop {phase}")
    body = without(row, guided_regex="[a-z ]{9000}")["body"]
    if phase == "while it reads the prompt":
        body["messages"] = [{"role": "user", "content": f"{row['body']['messages'][0]['content']} " * 1000}]
    n_gone = cancelled(server)
    with send_only(server, row["path"], body) as connected:
        wait_until(lambda: n_busy(server) == 1)
        if phase == "while it writes":
            assert connected.recv(4096).startswith(b"HTTP/1.1 200")
    wait_until(lambda: n_busy(server) == 0)
    wait_until(lambda: cancelled(server) == n_gone + 1)


def send_only(server: LiveServer, path: str, body: Row) -> socket.socket:
    """A connection on which a request was sent, and nothing read."""
    data = json.dumps(body).encode()
    host, port = server.url.removeprefix("http://").split(":")
    connected = socket.create_connection((host, int(port)))
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    connected.sendall(head.encode() + data)
    return connected


def n_busy(server: LiveServer) -> int:
    return sum(slot["is_processing"] for slot in server.client.get("/slots").json())


def cancelled(server: LiveServer) -> int:
    return sum("client gone: request cancelled" in line for line in server.log)


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_TO_STOP
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)
