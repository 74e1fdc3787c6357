"""Chat cases of the bug reports that the project starts from, through HTTP: the real engine and compiler, a tiny model.

Each runs whole and streamed with one seed: statuses as the report says, both modes the same, every constraint held.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.engine.llama import LlamaBackend
from server.engine.messages import ModelSpec
from tests.conformance.schema_judge import Judge
from tests.server.api.test_tools import accumulate
from tests.server.chat.test_reasoning import serving
from tests.server.fakes import Served
from tests.tiny_models import TinyModel, write_tiny_model

CASES = Path(__file__).parents[3] / "shared" / "cases" / "reports.jsonl"
KINDS = ("choice", "whitespace", "tool-calling", "reasoning", "streaming", "sampling-limits", "format-fields", "client-compat")
ENDPOINTS = ("/v1/chat/completions", "/v1/completions")
REFUSED = {"tc-required-no-tools": 400, "tc-one-bad-tool": 400, "ff-no-schema": 400, "lm-truncate": 400, "lm-max0": 400,
           "cc-model-404": 404}  # fmt: skip
EITHER = ("tc-props-list", "tc-null-id-history", "tc-args-object-history", "tc-dup-names", "cc-alternation")

pytestmark = [pytest.mark.conformance, pytest.mark.skipif(not CASES.exists(), reason="the cases aren't here")]


def cases() -> list[dict[str, Any]]:
    if not CASES.exists():
        return []
    rows = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    return [
        row for row in rows if row["kind"] in KINDS and endpoint(row) in ENDPOINTS and "_note" not in row["request"]["chat"]
    ]


def endpoint(row: Mapping[str, Any]) -> str | None:
    chat = row["request"].get("chat")
    return None if chat is None else chat.get("endpoint", ENDPOINTS[0])


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> LlamaBackend:
    controls = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
    path = write_tiny_model(tmp_path_factory.mktemp("reports") / "tiny.gguf", TinyModel(controls=controls, n_ctx_train=8192))
    return LlamaBackend(ModelSpec(str(path), n_ctx=32768, n_threads=1))


async def post(served: Served, row: Mapping[str, Any], **changes: Any) -> httpx.Response:
    chat = {key: value for key, value in row["request"]["chat"].items() if key != "endpoint" and not key.startswith("_")}
    bound = {} if "max_tokens" in chat or "max_completion_tokens" in chat else {"max_tokens": 600}
    return await served.client.post(str(endpoint(row)), json={"seed": 3, **bound, **chat, **changes})


@pytest.mark.parametrize("row", cases(), ids=lambda row: row["id"])
async def test_case(backend: LlamaBackend, row: dict[str, Any]) -> None:
    async with serving(backend) as served:
        await check_case(served, row)


async def check_case(served: Served, row: dict[str, Any]) -> None:
    whole = await post(served, row, stream=False, stream_options=None)
    if row["id"] in EITHER:
        assert whole.status_code in (200, 400), whole.text
    else:
        assert whole.status_code == REFUSED.get(row["id"], 200), whole.text
    if whole.status_code != 200:
        assert whole.json()["error"]["message"]
    elif endpoint(row) == ENDPOINTS[0]:
        await check_both_modes(served, row, whole)
    if (check := CHECKS.get(row["id"])) is not None:
        check(whole)


async def check_both_modes(served: Served, row: dict[str, Any], whole: httpx.Response) -> None:
    chat = row["request"]["chat"]
    choices = whole.json()["choices"]
    for choice in choices:
        check_choice(chat, choice)
    if len(choices) > 1 or chat.get("stream_options"):
        return
    streamed = await post(served, row, stream=True)
    message, reason = accumulate(streamed.text)
    assert reason == choices[0]["finish_reason"]
    assert message["content"] == (choices[0]["message"]["content"] or "")
    calls = [{key: call[key] for key in call if key != "id"} for call in choices[0]["message"].get("tool_calls", [])]
    assert [{key: call[key] for key in call if key != "id"} for call in message["tool_calls"].values()] == calls


def check_choice(chat: Mapping[str, Any], choice: Mapping[str, Any]) -> None:
    """The answer fits what was asked for."""
    message = choice["message"]
    calls = message.get("tool_calls", [])
    functions = [*(tool["function"] for tool in chat.get("tools", [])), *chat.get("functions", [])]
    schemas = {function["name"]: function.get("parameters") or {} for function in functions}
    for call in calls:
        if choice["finish_reason"] in ("tool_calls", "length"):
            schema: Any = {**schemas[call["function"]["name"]]}
            if not schema.get("properties"):  # a list of none is taken for an object of none
                schema.pop("properties", None)
            assert Judge(schema).errors(call["function"]["arguments"]) == []
    if chat.get("tool_choice") not in (None, "auto", "none"):
        assert calls
    if chat.get("parallel_tool_calls") is False:
        assert len(calls) <= 1
    form = chat.get("response_format") or {}
    schema = form.get("json_schema", {}).get("schema") or form.get("schema") or chat.get("format")
    if schema is not None and not calls and "guided_regex" not in chat:
        assert Judge(schema).errors(message["content"]) == []
    elif form.get("type") == "json_object":
        assert isinstance(json.loads(message["content"]), dict)
    if "guided_choice" in chat and "stop" not in chat:
        assert message["content"] in chat["guided_choice"]
    pattern = chat.get("guided_regex") or (chat.get("structured_outputs") or {}).get("regex")
    if pattern is not None:
        assert re.fullmatch(pattern, message["content"], re.DOTALL)


def check_needed(reply: httpx.Response) -> None:
    error = reply.json()["error"]
    assert error["param"] == "max_tokens"
    assert re.search(r"needs \d+ tokens", error["message"])


def check_stop(reply: httpx.Response) -> None:
    (choice,) = reply.json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("alpha", "stop")
    assert "stop string" in reply.headers["x-constraint-warnings"]


def check_logprobs(reply: httpx.Response) -> None:
    (choice,) = reply.json()["choices"]
    assert len(choice["logprobs"]["content"][0]["top_logprobs"]) == 2


def check_legacy_logprobs(reply: httpx.Response) -> None:
    assert set(reply.json()["choices"][0]["logprobs"]) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}


def check_indexes(reply: httpx.Response) -> None:
    assert [choice["index"] for choice in reply.json()["choices"]] == [0, 1, 2]


def check_batch(reply: httpx.Response) -> None:
    assert all(re.fullmatch("[0-9]{1,8}", choice["text"]) for choice in reply.json()["choices"])


def check_bad_tool(reply: httpx.Response) -> None:
    assert reply.json()["error"]["param"] == "tools[1].function.parameters.properties.a.type"


def check_utf8(reply: httpx.Response) -> None:
    assert re.fullmatch("[😀-🙏]{3}", reply.json()["choices"][0]["message"]["content"])


def check_empty_arguments(reply: httpx.Response) -> None:
    calls = reply.json()["choices"][0]["message"]["tool_calls"]
    assert all(json.loads(call["function"]["arguments"]) == {} for call in calls)


def check_stops(reply: httpx.Response) -> None:
    assert reply.json()["choices"][0]["finish_reason"] == "stop"


CHECKS: dict[str, Callable[[httpx.Response], None]] = {
    "lm-truncate": check_needed,
    "lm-stop-vs-grammar": check_stop,
    "lm-logprobs": check_logprobs,
    "lm-logprobs-completions": check_legacy_logprobs,
    "lm-n": check_indexes,
    "lm-batch-prompts": check_batch,
    "lm-min-tokens": check_stops,
    "tc-one-bad-tool": check_bad_tool,
    "tc-empty-params": check_empty_arguments,
    "st-utf8": check_utf8,
}
