"""The bug reports that the project starts from (`../shared/cases/reports.jsonl`), asked over HTTP and judged.

`python -m tests.conformance.report_cases [ID…]` asks a real server with the default model; `test_report_cases.py` asks tiny
models inside the test. A reply is judged by the report's own words, never by what this server happens to say. Cases that are
about the compiler alone are judged in `tests/converters/test_reports.py`, Anthropic's by the tests of that API.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx

from tests.conformance.schema_judge import Judge
from tests.default_model import default_model_path
from tests.live_server import LiveServer
from tests.server.api.sse import events
from tests.server.api.test_tools import accumulate

CASES = Path(__file__).parents[3] / "shared" / "cases" / "reports.jsonl"
KINDS = (
    "choice", "whitespace", "tool-calling", "reasoning", "streaming", "sampling-limits", "format-fields", "client-compat",
    "robustness",
)  # fmt: skip
CHAT = "/v1/chat/completions"
HEALTH_S = 1.0  # longest /health beside work; on a machine that does nothing else it is a few milliseconds

Row: TypeAlias = Mapping[str, Any]


class NotServed(Exception):
    """The server has no such endpoint."""


@dataclass(frozen=True)
class Session:
    """Whom to ask. `bound`: max_tokens where a case sets none."""

    client: httpx.AsyncClient
    bound: int

    async def post(self, row: Row, **changes: Any) -> httpx.Response:
        """The case's request; what begins with `_` is a remark, None takes a field away."""
        chat = {**row["request"]["chat"], **changes}
        endpoint = chat.get("endpoint", CHAT)
        body = {key: value for key, value in chat.items() if key not in ("endpoint", "method") and not key.startswith("_")}
        body = {key: value for key, value in {**self._bound(endpoint, body), **body}.items() if value is not None}
        url = str(self.client.base_url).rstrip("/") + endpoint  # joined by hand: `//api` would be a host
        reply = await self.client.post(url, json=body, headers=chat.get("_headers", {}))
        if reply.status_code == 404 and "there is no /" in reply.text:
            raise NotServed(endpoint)
        assert reply.status_code < 500, reply.text
        return reply

    def _bound(self, endpoint: str, body: Row) -> dict[str, Any]:
        if endpoint.endswith("/responses"):
            return {"max_output_tokens": self.bound}
        if "/api/" in endpoint:
            return {"options": {"num_predict": self.bound, "seed": 3}}
        has_own = "max_tokens" in body or "max_completion_tokens" in body
        return {"seed": 3} if has_own else {"seed": 3, "max_tokens": self.bound}

    async def health(self) -> float:
        """Seconds that /health takes."""
        started = time.monotonic()
        assert (await self.client.get("/health")).status_code == 200
        return time.monotonic() - started


Judging: TypeAlias = Callable[[Session, Row], Awaitable[None]]


def cases() -> list[dict[str, Any]]:
    """Every case that is asked over HTTP; none where the file is missing."""
    lines = CASES.read_text(encoding="utf-8").splitlines() if CASES.exists() else []
    rows = [json.loads(line) for line in lines]
    return [row for row in rows if row["kind"] in KINDS and "chat" in row["request"]]


async def judge(session: Session, row: Row) -> None:
    """Raises AssertionError where the server doesn't do what the case expects."""
    await JUDGES.get(row["id"], both_modes)(session, row)


# ---- what a reply must be


def ok(reply: httpx.Response) -> httpx.Response:
    assert reply.status_code == 200, reply.text
    return reply


def refusal(reply: httpx.Response, status: int = 400) -> dict[str, Any]:
    """The error of a refusal."""
    assert reply.status_code == status, reply.text
    error: dict[str, Any] = reply.json()["error"]
    assert error["message"]
    return error


def choices_of(reply: httpx.Response) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ok(reply).json()["choices"]
    return found


def content_of(reply: httpx.Response) -> str:
    (choice,) = choices_of(reply)
    return str(choice["message"]["content"])


def fits(schema: Any, text: str) -> None:
    assert Judge(schema).errors(text) == []


def check_choice(chat: Row, choice: Row) -> None:
    """The answer fits what was asked for."""
    message = choice["message"]
    calls = message.get("tool_calls", [])
    check_calls(chat, calls, is_whole=choice["finish_reason"] in ("tool_calls", "length"))
    if chat.get("tool_choice") not in (None, "auto", "none"):
        assert calls
        assert choice["finish_reason"] in ("tool_calls", "length")
    if chat.get("parallel_tool_calls") is False:
        assert len(calls) <= 1
    form = chat.get("response_format") or {}
    schema = form.get("json_schema", {}).get("schema") or form.get("schema") or chat.get("format") or chat.get("guided_json")
    pattern = chat.get("guided_regex") or (chat.get("structured_outputs") or {}).get("regex")
    if pattern is not None:
        assert re.fullmatch(pattern, message["content"], re.DOTALL)
    elif schema is not None and not calls:
        fits(json.loads(schema) if isinstance(schema, str) else schema, message["content"])
    elif form.get("type") == "json_object":
        assert isinstance(json.loads(message["content"]), dict)
        assert message["content"] == message["content"].rstrip()
    if "guided_choice" in chat and "stop" not in chat:
        assert message["content"] in chat["guided_choice"]


def check_calls(chat: Row, calls: Sequence[Row], *, is_whole: bool) -> None:
    functions = [*(tool["function"] for tool in chat.get("tools", [])), *chat.get("functions", [])]
    schemas = {function["name"]: function.get("parameters") or {} for function in functions}
    for call in calls if is_whole else calls[:-1]:
        schema: Any = {**schemas[call["function"]["name"]]}
        if not schema.get("properties"):  # a list of none is taken for an object of none
            schema.pop("properties", None)
        fits(schema, call["function"]["arguments"])


# ---- the usual: whole and streamed, the same


async def both_modes(session: Session, row: Row) -> None:
    """200, what was asked for, and the same as a stream. OpenAI's shape, or the one of the case's endpoint."""
    chat = row["request"]["chat"]
    if (read := CONTENTS.get(chat.get("endpoint", CHAT))) is not None:
        text = read(ok(await session.post(row)).json())
        schema = chat.get("format") or chat.get("text", {}).get("format", {}).get("schema")
        if schema:
            fits(json.loads(schema) if isinstance(schema, str) else schema, text)
        return
    whole = ok(await session.post(row, stream=False, stream_options=None))
    choices = choices_of(whole)
    for choice in choices:
        check_choice(chat, choice)
    if len(choices) == 1:
        same_as_stream(choices[0], ok(await session.post(row, stream=True, stream_options=None)))


CONTENTS: Mapping[str, Callable[[Any], str]] = {
    "/api/chat": lambda body: str(body["message"]["content"]),
    "/api/generate": lambda body: str(body["response"]),
    "/v1/responses": lambda body: "".join(
        part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"]
    ),
}


def same_as_stream(choice: Row, stream: httpx.Response) -> None:
    """The deltas make the whole answer; `accumulate` holds them to OpenAI's letter."""
    message, reason = accumulate(stream.text)
    assert events(stream.text)[-1] == "[DONE]"
    assert reason == choice["finish_reason"]
    assert message["content"] == (choice["message"]["content"] or "")
    calls = [{key: call[key] for key in call if key != "id"} for call in choice["message"].get("tool_calls", [])]
    assert [{key: call[key] for key in call if key != "id"} for call in message["tool_calls"].values()] == calls


def refused(param: str | None = None, status: int = 400) -> Judging:
    """A refusal, of the field `param`."""

    async def judging(session: Session, row: Row) -> None:
        error = refusal(await session.post(row), status)
        assert param is None or error["param"] == param

    return judging


async def either(session: Session, row: Row) -> None:
    """200 with what was asked for, or a 400 that says what is wrong."""
    reply = await session.post(row)
    if reply.status_code == 400:
        assert refusal(reply)["param"]
    else:
        await both_modes(session, row)


def and_also(check: Callable[[httpx.Response], None], **changes: Any) -> Judging:
    """The usual, and something more of the whole reply."""

    async def judging(session: Session, row: Row) -> None:
        check(ok(await session.post(row, stream=False, stream_options=None, **changes)))
        await both_modes(session, row)

    return judging


def only(check: Callable[[httpx.Response], None], **changes: Any) -> Judging:
    """Something of the reply to the request as it is."""

    async def judging(session: Session, row: Row) -> None:
        check(ok(await session.post(row, **changes)))

    return judging


# ---- tools


def check_empty_arguments(reply: httpx.Response) -> None:
    calls = choices_of(reply)[0]["message"]["tool_calls"]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{}] * len(calls)


def check_one_call(reply: httpx.Response) -> None:
    assert len(choices_of(reply)[0]["message"]["tool_calls"]) == 1


def check_odd_name(reply: httpx.Response) -> None:
    assert {call["function"]["name"] for call in choices_of(reply)[0]["message"]["tool_calls"]} == {"mcp__a.b/c-d:e"}


def check_types(reply: httpx.Response) -> None:
    for call in choices_of(reply)[0]["message"]["tool_calls"]:
        values = json.loads(call["function"]["arguments"])
        assert [type(values["n"]), type(values["b"]), values["e"]] == [int, bool, "a"]


def check_array_stays(reply: httpx.Response) -> None:
    """Told by the grammar: an array, a string and null are arguments, the text of an array isn't the only way to write one."""
    for call in choices_of(reply)[0]["message"]["tool_calls"]:
        assert isinstance(json.loads(call["function"]["arguments"])["target"], list | str | None)


async def empty_call_first(session: Session, row: Row) -> None:
    """The second call keeps its index and its arguments, in every order of calls that seeds give."""
    for seed in range(4):
        await both_modes(session, {**row, "request": {"chat": {**row["request"]["chat"], "seed": seed}}})


async def whole_schema_shown(session: Session, row: Row) -> None:
    chat = {key: row["request"]["chat"][key] for key in ("messages", "tools")}
    prompt = ok(await session.client.post("/apply-template", json=chat)).json()["prompt"]
    for word in ("$defs", "Row", "additionalProperties"):
        assert word in prompt
    await both_modes(session, row)


async def many_tools(session: Session, row: Row) -> None:
    """As it is sent; as the report means it, sixty of them (which need not fit the context); and with a bad one among them."""
    await both_modes(session, row)
    (first, *_) = row["request"]["chat"]["tools"]
    tools = [{**first, "function": {**first["function"], "name": f"t{i}"}} for i in range(60)]
    reply = await session.post(row, tools=tools)
    if reply.status_code == 400:
        assert refusal(reply)["code"] == "context_length_exceeded"
    else:
        check_choice({**row["request"]["chat"], "tools": tools}, choices_of(reply)[0])
    bad = {"type": "function", "function": {"name": "bad", "parameters": {"properties": {"a": {"type": "strng"}}}}}
    for choice in ("required", "auto"):
        reply = await session.post(row, tools=[*tools[:33], bad, *tools[33:]], tool_choice=choice)
        assert refusal(reply)["param"] == "tools[33].function.parameters.properties.a.type"


# ---- limits, logprobs, several choices


async def too_short(session: Session, row: Row) -> None:
    error = refusal(await session.post(row))
    assert error["param"] == "max_tokens"
    assert re.search(r"needs \d+ tokens", error["message"])
    (choice,) = choices_of(await session.post(row, on_length="cut"))
    assert choice["finish_reason"] == "length"
    text = choice["message"]["content"]
    assert text
    assert re.fullmatch(r'\{(" ?(s("(:( ?("[^"]*)?)?)?)?)?)?', text)


def check_stop(reply: httpx.Response) -> None:
    (choice,) = choices_of(reply)
    assert (choice["message"]["content"], choice["finish_reason"]) == ("alpha", "stop")
    assert "stop string" in reply.headers["x-constraint-warnings"]


def check_stops(reply: httpx.Response) -> None:
    assert choices_of(reply)[0]["finish_reason"] == "stop"


def check_logprobs(reply: httpx.Response) -> None:
    (entry, *_) = choices_of(reply)[0]["logprobs"]["content"]
    assert len(entry["top_logprobs"]) == 2
    assert entry["logprob"] <= 0


def check_legacy_logprobs(reply: httpx.Response) -> None:
    assert set(choices_of(reply)[0]["logprobs"]) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}


def check_indexes(reply: httpx.Response) -> None:
    choices = choices_of(reply)
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert all(re.fullmatch("[0-9]{6}", choice["message"]["content"]) for choice in choices)


def check_choices_of_a_stream(reply: httpx.Response) -> None:
    texts = {0: "", 1: ""}
    reasons: dict[int, str | None] = {}
    for event in events(reply.text)[:-1]:
        for choice in event["choices"]:
            texts[choice["index"]] += choice["delta"].get("content") or ""
            reasons[choice["index"]] = choice["finish_reason"] or reasons.get(choice["index"])
    assert set(texts.values()) <= {"a", "b"}
    assert reasons == {0: "stop", 1: "stop"}


def check_batch(reply: httpx.Response) -> None:
    choices = choices_of(reply)
    assert [choice["index"] for choice in choices] == [0, 1]
    assert all(re.fullmatch("[0-9]{1,8}", choice["text"]) for choice in choices)


# ---- streams


def check_usage(reply: httpx.Response) -> None:
    *before, last, done = events(reply.text)
    assert (last["choices"], done) == ([], "[DONE]")
    assert last["usage"]["total_tokens"] > 0
    assert not any(event.get("usage") for event in before)


def check_end(reply: httpx.Response) -> None:
    message, reason = accumulate(reply.text)
    assert reason in ("stop", "length")
    assert message["content"] == message["content"].rstrip()
    assert events(reply.text)[-1] == "[DONE]"


def check_utf8(reply: httpx.Response) -> None:
    assert re.fullmatch("[😀-🙏]{3}", content_of(reply))


def check_whole_characters(reply: httpx.Response) -> None:
    assert "\ufffd" not in accumulate(reply.text)[0]["content"]


# ---- fields


async def regex_then_regex(session: Session, row: Row) -> None:
    """A bad request leaves nothing behind."""
    await both_modes(session, row)
    assert refusal(await session.post(row, **row["request"]["chat"]["_then"]))["param"] == "structured_outputs.regex"
    await both_modes(session, row)


async def schema_in_prompt(session: Session, row: Row) -> None:
    fields = {**row["request"]["chat"], "inject_schema": True}
    prompt = ok(await session.client.post("/apply-template", json=fields)).json()["prompt"]
    assert "steps" in prompt
    await both_modes(session, row)


def check_one_word(reply: httpx.Response) -> None:
    assert json.loads(CONTENTS["/api/chat"](reply.json())) in ("RED", "BLUE")


def check_regex_won(reply: httpx.Response) -> None:
    assert content_of(reply) == "a"


# ---- clients, and many at once


async def preflight(session: Session, row: Row) -> None:
    headers = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "GET"}
    reply = await session.client.options(row["request"]["chat"]["endpoint"], headers=headers)
    assert reply.status_code == 204
    assert reply.headers["access-control-allow-origin"] == "http://localhost:3000"


async def beside_a_stream(session: Session, row: Row) -> None:
    """A request beside a running stream is answered; a client that goes away leaves the server free."""
    stream = asyncio.create_task(session.post(row, stream=True, n=1))
    assert choices_of(await session.post(row))
    assert accumulate((await stream).text)[1] in ("stop", "length")
    leaving = asyncio.create_task(session.post(row))
    await asyncio.sleep(0.05)
    leaving.cancel()
    assert choices_of(await session.post(row))


async def together(session: Session, row: Row) -> None:
    """All at once finish, each held to its constraint, and /health is quick all the while."""
    n = row["request"]["chat"]["_parallel"]
    pending = {asyncio.create_task(session.post(row, seed=i)) for i in range(n)}
    waiting = set(pending)
    while waiting:
        assert await session.health() < HEALTH_S
        _, waiting = await asyncio.wait(waiting, timeout=0.05)
    for task in pending:
        check_choice(row["request"]["chat"], choices_of(task.result())[0])


async def a_long_compile(session: Session, row: Row) -> None:
    """`oneof-nested` of depth 30 beside a short request: /health is quick, both are answered, or the long one is refused."""
    schema: Any = {"type": "integer"}
    for i in range(30):
        schema = {"oneOf": [{"type": "null"}, {"type": "object", "properties": {f"k{i}": schema}, "required": [f"k{i}"]}]}
    long = asyncio.create_task(session.post(row, guided_json=schema, max_tokens=400))
    short = asyncio.create_task(session.post(row, guided_json=None, max_tokens=4))
    waiting: set[asyncio.Task[httpx.Response]] = {long, short}
    while waiting:
        assert await session.health() < HEALTH_S
        _, waiting = await asyncio.wait(waiting, timeout=0.05)
    assert choices_of(short.result())
    if long.result().status_code == 200:
        fits(schema, content_of(long.result()))
    else:
        assert "compile_s" in refusal(long.result())["message"]


async def many_schemas(session: Session, row: Row) -> None:
    """Each of many different schemas is compiled once, and kept or not: the answers stay right. Memory: `test_client.py`."""
    for i in range(200):
        reply = await session.post(row, guided_json={"const": f"x{i}"}, max_tokens=12)
        assert json.loads(content_of(reply)) == f"x{i}"


async def wrong_type(session: Session, row: Row) -> None:
    """JSON text is a schema; other types are a 400 that names the field."""
    await both_modes(session, row)
    for value in (1, [1], "{", "1"):
        assert str(refusal(await session.post(row, guided_json=value))["param"]).startswith("guided_json")


JUDGES: Mapping[str, Judging] = {
    "ws-stream-stop": only(check_end),
    "tc-required-no-tools": refused("tool_choice"),
    "tc-empty-params": and_also(check_empty_arguments),
    "tc-props-list": either,
    "tc-items-kept": whole_schema_shown,
    "tc-union-stringified": and_also(check_array_stays),
    "tc-no-parallel": and_also(check_one_call),
    "tc-after-empty-call": empty_call_first,
    "tc-null-id-history": either,
    "tc-args-object-history": either,
    "tc-odd-names": and_also(check_odd_name),
    "tc-58-tools": many_tools,
    "tc-one-bad-tool": refused("tools[1].function.parameters.properties.a.type"),
    "tc-dup-names": either,
    "tc-bool-int-text": and_also(check_types),
    "st-utf8": and_also(check_utf8),
    "st-utf8-decode": only(check_whole_characters),
    "st-usage": only(check_usage),
    "lm-truncate": too_short,
    "lm-min-tokens": and_also(check_stops),
    "lm-stop-vs-grammar": and_also(check_stop),
    "lm-logprobs": and_also(check_logprobs),
    "lm-logprobs-completions": only(check_legacy_logprobs),
    "lm-n": only(check_indexes),
    "lm-n-stream": only(check_choices_of_a_stream),
    "lm-batch-prompts": only(check_batch),
    "lm-max0": refused("max_tokens"),
    "ff-conflict": and_also(check_regex_won),
    "ff-no-schema": refused("response_format.json_schema.schema"),
    "ff-regex-then-regex": regex_then_regex,
    "ff-enum-bare": only(check_one_word),
    "ff-schema-in-prompt": schema_in_prompt,
    "cc-trailing-slash": only(lambda reply: None, stream=False),
    "cc-cors": preflight,
    "cc-alternation": either,
    "cc-owui-stuck": beside_a_stream,
    "cc-model-404": refused("model", 404),
    "cc-ollama-403": only(lambda reply: None, stream=False),
    "rb-freeze": together,
    "rb-compile-blocks": a_long_compile,
    "rb-grammar-cache": many_schemas,
    "rb-wrong-type": wrong_type,
}
"""How the cases are judged that aren't as usual."""


async def judge_all(url: str, rows: Sequence[Row], bound: int) -> list[str]:
    """Judge and print; the ids of the cases that fail."""
    failed = []
    async with httpx.AsyncClient(base_url=url, timeout=1800) as client:
        for row in rows:
            started = time.monotonic()
            try:
                await judge(Session(client, bound), row)
                outcome = "ok"
            except NotServed as error:
                outcome = f"not served: {error}"
            except AssertionError:
                outcome = "FAILED"
                traceback.print_exc()
            if outcome != "ok":
                failed.append(row["id"])
            print(f"{row['id']:28} {outcome} ({time.monotonic() - started:.1f} s)", flush=True)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--max-tokens", type=int, default=120, help="where a case sets none")
    options = parser.parse_args()
    rows = [row for row in cases() if not options.ids or row["id"] in options.ids]
    with LiveServer(default_model_path(), "--parallel", "4", "--threads", "1") as server:
        failed = asyncio.run(judge_all(server.url, rows, options.max_tokens))
    print(f"{len(rows) - len(failed)} of {len(rows)} cases as expected", *failed)


if __name__ == "__main__":
    main()
