"""Bug reports about Anthropic's dialect that the project starts from, through HTTP: the real engine, a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.engine.llama import LlamaBackend
from server.engine.messages import ModelSpec
from tests.server.api.test_anthropic import read_stream
from tests.server.chat.test_reasoning import CONTROLS, OPENING, THINKERS, serving
from tests.server.fakes import Served
from tests.tiny_models import TinyModel, write_tiny_model

CASES = Path(__file__).parents[3] / "shared" / "cases" / "reports.jsonl"
STREAMED = ("streaming", "choice", "gbnf", "regex")  # kinds whose chats hold in this dialect just as well

pytestmark = [pytest.mark.conformance, pytest.mark.skipif(not CASES.exists(), reason="the cases aren't here")]


def cases(*kinds: str) -> list[dict[str, Any]]:
    if not CASES.exists():
        return []
    rows = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["kind"] in kinds and "chat" in row["request"]]


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> LlamaBackend:
    controls = (*CONTROLS, "<think>", "</think>")
    model = TinyModel(vocabulary="sentencepiece", controls=controls, chat_template=OPENING, n_ctx_train=4096)
    path = write_tiny_model(tmp_path_factory.mktemp("reports") / "thinker.gguf", model)
    return LlamaBackend(ModelSpec(str(path), n_ctx=16384, n_threads=1))


def body_of(row: dict[str, Any], **changes: Any) -> dict[str, Any]:
    chat = {name: value for name, value in row["request"]["chat"].items() if name != "endpoint"}
    return {"max_tokens": 300, "seed": 5, **chat, **changes}


def message_of(reply: httpx.Response) -> dict[str, Any]:
    assert reply.status_code == 200, reply.text
    if reply.headers["content-type"].startswith("text/event-stream"):
        return read_stream(reply.text)  # which checks the order of all events
    message: dict[str, Any] = reply.json()
    return message


def kinds_of(reply: httpx.Response) -> list[str]:
    return [block["type"] for block in message_of(reply)["content"]]


def check_thinking(reply: httpx.Response) -> None:
    first = message_of(reply)["content"][0]
    assert first["type"] == "thinking"
    assert first["thinking"]
    assert first["signature"]


def check_call(reply: httpx.Response) -> None:
    message = message_of(reply)
    calls = [block for block in message["content"] if block["type"] == "tool_use"]
    assert calls
    assert all(isinstance(call["input"], dict) for call in calls)
    assert message["stop_reason"] in ("tool_use", "max_tokens")


def check_refusal(reply: httpx.Response) -> None:
    assert reply.status_code == 400
    assert "web_search_20250305" in reply.json()["error"]["message"]


CHECKS: dict[str, Callable[[httpx.Response], None]] = {
    "an-think-stream": check_thinking,
    "an-think-lost": check_thinking,
    "an-block-types": check_call,
    "an-partial-json": check_call,
    "an-tool-shapes": lambda reply: (
        None if set(kinds_of(reply)) <= {"thinking", "text", "tool_use"} else pytest.fail(reply.text)
    ),
    "an-server-tools": check_refusal,
    "an-count": lambda reply: None if reply.json()["input_tokens"] > 3 else pytest.fail(reply.text),
}


def test_every_case_has_its_check() -> None:
    assert {row["id"] for row in cases("anthropic")} == set(CHECKS)


@pytest.mark.parametrize("row", cases("anthropic"), ids=lambda row: row["id"])
async def test_case(thinker: LlamaBackend, row: dict[str, Any]) -> None:
    async with serving(thinker) as served:
        CHECKS[row["id"]](await served.client.post(row["request"]["chat"]["endpoint"], json=body_of(row)))


async def test_a_call_that_the_model_ends_itself(thinker: LlamaBackend) -> None:
    """Of the report about partial_json: a quotation mark that the model likes ends the code before max_tokens do."""
    (row,) = [row for row in cases("anthropic") if row["id"] == "an-partial-json"]
    async with serving(thinker) as served:
        *_, quote = await served.engine.tokenize('"', add_special=False)
        reply = await served.client.post("/v1/messages", json=body_of(row, logit_bias={str(quote): 30}, thinking=False))
        message = message_of(reply)
        assert message["stop_reason"] == "tool_use"
        assert set(message["content"][-1]["input"]) == {"code"}


@pytest.mark.parametrize("row", cases(*STREAMED), ids=lambda row: row["id"])
async def test_chats_of_other_reports(thinker: LlamaBackend, row: dict[str, Any]) -> None:
    """Whole and streamed the same, without broken characters."""
    async with serving(thinker) as served:
        await _check_both(served, body_of(row, temperature=1.0, thinking=False))


async def _check_both(served: Served, body: dict[str, Any]) -> None:
    whole, streamed = [await served.client.post("/v1/messages", json={**body, "stream": flag}) for flag in (False, True)]
    texts = ["".join(block["text"] for block in message_of(reply)["content"]) for reply in (whole, streamed)]
    assert texts[0] == texts[1]
    constrained = {name for name in body if name.startswith(("guided_", "grammar"))}
    assert not constrained or "\ufffd" not in texts[0]


PREFILL = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well, "}]
TOOL = {"name": "f", "description": "Does it.", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
COUNTED: list[dict[str, Any]] = [
    {},
    {"system": "Be brief. Zürich, 日本."},
    {"tools": [TOOL]},
    {"tools": [TOOL], "tool_choice": {"type": "any"}},
    {"tools": [TOOL], "tool_choice": {"type": "none"}},
    {"tools": [TOOL], "guided_choice": ["a", "b"]},
    {"thinking": {"type": "disabled"}},
    {"thinking": {"type": "enabled", "budget_tokens": 9}},
    {"output_config": {"format": {"type": "json_schema", "schema": {"enum": [1, 2]}}, "effort": "low"}, "inject_schema": True},
    {"messages": PREFILL},
]


@pytest.mark.parametrize("name", ["opened", "control", "text"])
async def test_tokens_are_counted_as_they_are_read(tmp_path: Path, name: str) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", THINKERS[name])
    async with serving(LlamaBackend(ModelSpec(str(path), n_ctx=4096, n_threads=1))) as served:
        for number, fields in enumerate(COUNTED):
            body = {"messages": [{"role": "user", "content": f"Number {number}."}], **fields}
            counted = await served.client.post("/v1/messages/count_tokens", json=body)
            usage = message_of(await served.client.post("/v1/messages", json={**body, "max_tokens": 60}))["usage"]
            assert counted.json()["input_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"], fields
