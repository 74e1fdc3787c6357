"""/v1/responses over a scripted engine: items in and out, streams, kept responses, and what reaches the engine."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from server.engine.messages import EngineEvent, EngineRequest, FinishReason
from server.errors import ContextOverflow, EngineDied
from server.settings import RequestLimits, Settings
from tests.server.api import response_stream
from tests.server.api.test_tools import CALL, CUSTOM_CALL, THINKER, says
from tests.server.fakes import FakeEngine, Served, serve, with_info

PATH = "/v1/responses"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": None,
    "strict": True,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALC = {"type": "custom", "name": "calc", "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9+]+"}}
FILES = {"type": "namespace", "name": "mcp__files__", "description": "files", "tools": [{**WEATHER, "name": "read"}]}
SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": False}
FORMAT = {"format": {"type": "json_schema", "name": "r", "schema": SCHEMA, "strict": True}, "verbosity": "low"}
CALLER = THINKER + "{# <|im_start|> #}"
THOUGHTS = "<think>\nhmm\n</think>\n\n"


async def post(served: Served, **fields: Any) -> httpx.Response:
    return await served.client.post(PATH, json={"input": "hi", **fields})


async def ask(served: Served, **fields: Any) -> dict[str, Any]:
    """The answer, after checking that the streamed one is the same."""
    reply = await post(served, **fields)
    assert reply.status_code == 200, reply.text
    streamed = await post(served, stream=True, **fields)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    response: dict[str, Any] = reply.json()
    assert response_stream.without_ids(response_stream.check(streamed.text)) == response_stream.without_ids(response)
    return response


def prompt_of(served: Served) -> str:
    return str(served.engine.requests[-1].prompt)


# ---- answers


async def test_an_answer(served: Served) -> None:
    response = await ask(served, instructions="Be brief.", metadata={"a": "b"}, temperature=0.5, user="u", text=FORMAT)
    assert response["object"] == "response"
    assert (response["status"], response["error"], response["incomplete_details"]) == ("completed", None, None)
    (message,) = response["output"]
    assert (message["type"], message["role"], message["status"]) == ("message", "assistant", "completed")
    assert message["content"] == [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}]
    n_prompt = response["usage"]["input_tokens"]
    assert response["usage"] == {
        "input_tokens": n_prompt,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0, "forced_tokens": 0},
        "total_tokens": n_prompt + 2,
    }
    repeated = {"instructions": "Be brief.", "metadata": {"a": "b"}, "temperature": 0.5, "user": "u", "text": FORMAT,
                "tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "truncation": "disabled", "store": True,
                "model": "fake", "max_output_tokens": None, "previous_response_id": None}  # fmt: skip
    assert {name: response[name] for name in repeated} == repeated
    prompt = prompt_of(served)
    assert prompt.index("system\nBe brief.") < prompt.index("user\nhi")


async def test_an_empty_answer_is_an_empty_message() -> None:
    async with serve(FakeEngine(pieces=[])) as served:
        (message,) = (await ask(served))["output"]
        assert message["content"][0]["text"] == ""


async def test_a_cut_answer_is_incomplete() -> None:
    async with serve(FakeEngine(reason=FinishReason.LENGTH)) as served:
        response = await ask(served, max_output_tokens=2)
        assert (response["status"], response["completed_at"]) == ("incomplete", None)
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert response["output"][0]["status"] == "incomplete"
        assert served.engine.requests[-1].max_tokens == 2


async def test_logprobs(served: Served) -> None:
    response = await ask(served, include=["message.output_text.logprobs"], top_logprobs=2)
    entries = response["output"][0]["content"][0]["logprobs"]
    assert [entry["token"] for entry in entries] == ["Hel", "lo"]
    assert entries[0]["bytes"] == [72, 101, 108]
    assert entries[0]["top_logprobs"][1]["bytes"] == [0xE2, 0x82]
    assert served.engine.requests[-1].logprobs == 2
    await ask(served, include=["reasoning.encrypted_content"])
    assert served.engine.requests[-1].logprobs is None


async def test_reasoning_text_and_calls_are_items_of_their_own() -> None:
    for size in (1, 4, 1000):
        async with serve(
            says(f"{THOUGHTS}Let me see.\n{CALL}\n{CUSTOM_CALL}", size, info=with_info(chat_template=CALLER))
        ) as served:
            tools = [WEATHER, CALC]
            response = await ask(served, tools=tools, include=["message.output_text.logprobs", "reasoning.encrypted_content"])
            reasoning, message, call, custom = response["output"]
            assert reasoning["content"] == [{"type": "reasoning_text", "text": "hmm"}]
            assert (reasoning["summary"], reasoning["status"]) == ([], "completed")
            assert message["content"][0]["text"] == "Let me see."
            spelled = b"".join(bytes(entry["bytes"]) for entry in message["content"][0]["logprobs"]).decode()
            assert spelled == "Let me see." if size == 1 else "Let me see." in spelled
            assert (call["type"], call["name"], call["status"]) == ("function_call", "get_weather", "completed")
            assert json.loads(call["arguments"]) == {"city": 'Köln "x"'}
            assert (custom["type"], custom["name"], custom["input"]) == ("custom_tool_call", "calc", "1+2")
            assert len({item["id"] for item in response["output"]}) == 4
            assert response["tools"] == tools


async def test_a_cut_call_is_incomplete() -> None:
    async with serve(says(CALL[:-20], reason=FinishReason.LENGTH)) as served:
        response = await ask(served, tools=[WEATHER])
        (call,) = response["output"]
        assert (response["status"], call["status"], call["type"]) == ("incomplete", "incomplete", "function_call")


async def test_tools_of_a_namespace_are_called_by_it() -> None:
    async with serve(says(CALL.replace("get_weather", "mcp__files__read"))) as served:
        (call,) = (await ask(served, tools=[FILES, WEATHER]))["output"]
        assert (call["namespace"], call["name"]) == ("mcp__files__", "read")
        assert "mcp__files__read" in prompt_of(served)
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "text"}
        await ask(served, input=[call, output], tools=[FILES])
        assert "mcp__files__read" in prompt_of(served)


async def test_a_stream_that_fails() -> None:
    def fail(request: EngineRequest, event: EngineEvent) -> None:
        if type(event).__name__ == "Finished":
            raise EngineDied("the model died")

    async with serve(FakeEngine(before=fail)) as served:
        *events, error, failed = response_stream.read((await post(served, stream=True)).text)
        assert events[0]["type"] == "response.created"
        assert (error["type"], error["message"], error["code"]) == ("error", "the model died", "engine_died")
        assert error["error"]["type"] == "server_error"  # what makes the openai package raise
        assert failed["type"] == "response.failed"
        assert failed["response"]["error"] == {"code": "server_error", "message": "the model died"}
        whole = await post(served)
        assert (whole.status_code, whole.json()["error"]["code"]) == (502, "engine_died")
        assert (await served.client.get(f"{PATH}/{failed['response']['id']}")).status_code == 404


async def test_errors_name_the_fields_of_this_api() -> None:
    def overflow(request: EngineRequest, event: EngineEvent) -> None:
        raise ContextOverflow("max_tokens 1000 is over the context of 256", param="max_tokens")

    async with serve(FakeEngine(before=overflow)) as served:
        error = (await post(served, max_output_tokens=1000)).json()["error"]
        assert error["param"] == "max_output_tokens"
        assert "max_output_tokens 1000" in error["message"]
    async with serve(FakeEngine(info=with_info(chat_template="{{ raise_exception('no') }}"))) as served:
        error = (await post(served)).json()["error"]
        assert (error["param"], error["type"]) == ("input", "invalid_request_error")


# ---- constraints and tools


@pytest.mark.parametrize(
    ("fields", "source", "kind"),
    [
        ({"text": FORMAT}, "text.format", "json_schema"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format", "json_object"),
        ({"guided_choice": ["a", "b"], "text": FORMAT}, "guided_choice", "choice"),
        ({"guided_regex": "[0-9]+"}, "guided_regex", "regex"),
        ({"structured_outputs": {"choice": ["a"]}}, "structured_outputs", "choice"),
        ({"grammar": 'root ::= "a"'}, "grammar", "grammar"),
        ({"extra_body": {"guided_choice": ["a"]}}, "guided_choice", "choice"),
        ({"response_format": {"type": "json_object"}}, "response_format", "json_object"),
        ({"tools": [WEATHER, CALC], "tool_choice": "required", "guided_regex": "a"}, "tool_choice", "tool"),
        ({"tools": [WEATHER, CALC], "tool_choice": {"type": "function", "name": "get_weather"}}, "tool_choice", "tool"),
        ({"tools": [WEATHER, CALC], "tool_choice": {"type": "custom", "name": "calc"}}, "tool_choice", "tool"),
        ({"tools": [WEATHER, CALC], "tool_choice": {
            "type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]}},
         "tool_choice", "tool"),
    ],
)  # fmt: skip
async def test_constraints(
    served: Served, caplog: pytest.LogCaptureFixture, fields: dict[str, Any], source: str, kind: str
) -> None:
    caplog.set_level("INFO", "gramserve.constraint")
    assert (await post(served, **fields)).status_code == 200
    assert served.engine.requests[-1].grammar_key is not None
    assert f"source={source} type={kind}" in caplog.text


@pytest.mark.parametrize(
    "fields",
    [{"text": {"format": {"type": "text"}}}, {"text": {}}, {"text": {"verbosity": "high"}}, {"text": None}, {"tools": []},
     {"tools": [WEATHER], "tool_choice": "none"}, {"tools": [WEATHER]}, {"tool_choice": "auto"}],
)  # fmt: skip
async def test_no_constraint(served: Served, fields: dict[str, Any]) -> None:
    await ask(served, **fields)
    assert served.engine.requests[-1].grammar_key is None
    assert ("get_weather" in prompt_of(served)) == (fields == {"tools": [WEATHER]})


async def test_warnings_come_back(served: Served) -> None:
    reply = await post(served, guided_choice=["Hello"], stop=["x"])
    assert "x-constraint-warnings" in reply.headers


# ---- the conversation


async def test_items_become_messages(served: Served) -> None:
    items = [
        {"role": "developer", "content": "Rules."},
        {"type": "message", "role": "user",
         "content": [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "status": None,
         "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Rome"}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "calc", "input": "1+2"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "sunny"}]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "3"},
        {"role": "assistant", "content": "Sunny, and 3."},
        {"role": "user", "content": "Thanks."},
    ]  # fmt: skip
    await ask(served, input=items, tools=[WEATHER, CALC])
    prompt = prompt_of(served)
    for word in ("Rules.", "one\ntwo", "I look.", "Rome", "1+2", "sunny", "Sunny, and 3.", "Thanks."):
        assert word in prompt, word
    assert prompt.count("<|im_start|>assistant") == 3  # one turn with text and two calls, the answer, the one to come


RENDERED = (
    "{% for m in messages %}[{{ m.role }}|{{ m.reasoning_content or '' }}|{{ m.content }}|"
    "{{ m.tool_calls | length if m.tool_calls else 0 }}]{% endfor %}{# tools #}"
)


@pytest.mark.parametrize(
    ("kinds", "rendered"),
    [
        ("rtc", "[assistant|r|t|1]"),
        ("rcc", "[assistant|r||2]"),
        ("tt", "[assistant||t|0][assistant||t|0]"),
        ("ct", "[assistant|||1][assistant||t|0]"),
        ("rr", "[assistant|r\nr||0]"),
        ("ert", "[assistant|r|t|0]"),
        ("et", "[assistant||t|0]"),
        ("ut", "[user||u|0][assistant||t|0]"),
    ],
)
async def test_pieces_of_a_turn_are_one_message(kinds: str, rendered: str) -> None:
    forms: dict[str, dict[str, Any]] = {
        "r": {"type": "reasoning", "summary": [{"type": "summary_text", "text": "r"}]},
        "e": {"type": "reasoning", "encrypted_content": "gAAAAAB-of-another-server"},
        "t": {"role": "assistant", "content": "t"},
        "u": {"role": "user", "content": "u"},
        "c": {"type": "function_call", "name": "f", "arguments": "{}"},
    }
    items = [{**forms[kind], **({"call_id": f"c{i}"} if kind == "c" else {})} for i, kind in enumerate(kinds)]
    async with serve(FakeEngine(info=with_info(chat_template=RENDERED))) as served:
        await ask(served, input=items)
        assert prompt_of(served) == rendered


async def test_sealed_reasoning_comes_back() -> None:
    async with serve(says(f"{THOUGHTS}Yes.", info=with_info(chat_template=RENDERED + THINKER))) as served:
        response = await ask(served, include=["reasoning.encrypted_content"], store=False)
        reasoning = {**response["output"][0], "content": None}
        await ask(served, input=[reasoning, response["output"][1]])
        assert "[assistant|hmm|Yes.|0]" in prompt_of(served)


async def test_a_chain(served: Served) -> None:
    first = await ask(served, input="one", instructions="Only now.")
    second = await ask(served, input=[{"role": "user", "content": "two"}], previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    prompt = prompt_of(served)
    assert "Only now." not in prompt
    assert prompt.index("one") < prompt.index("Hello") < prompt.index("two")
    await served.client.delete(f"{PATH}/{first['id']}")
    await ask(served, input="three", previous_response_id=second["id"])  # it has all that it needs itself
    assert prompt_of(served).index("one") < prompt_of(served).index("three")


async def test_a_call_and_its_output_over_a_chain() -> None:
    async with serve(says(CALL)) as served:
        first = await ask(served, tools=[WEATHER], input="Weather?")
        (call,) = first["output"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "20C"}
        await ask(served, previous_response_id=first["id"], input=[output], tools=[WEATHER])
        assert prompt_of(served).index("Köln") < prompt_of(served).index("20C")


async def test_items_are_referred_to(served: Served) -> None:
    first = await ask(served, input="one")
    await ask(served, input=[{"type": "item_reference", "id": first["output"][0]["id"]}, {"role": "user", "content": "two"}])
    assert prompt_of(served).index("Hello") < prompt_of(served).index("two")
    reply = await post(served, input=[{"id": "msg_nope"}])
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "input[0].id")


async def test_what_is_kept(served: Served) -> None:
    response = await ask(served, input=[{"role": "user", "content": text} for text in ("a", "b", "c")])
    path = f"{PATH}/{response['id']}"
    assert (await served.client.get(path)).json() == response
    newest = (await served.client.get(f"{path}/input_items?limit=2")).json()
    assert [item["content"][0]["text"] for item in newest["data"]] == ["c", "b"]
    assert (newest["has_more"], newest["first_id"], newest["last_id"]) == (
        True,
        newest["data"][0]["id"],
        newest["data"][1]["id"],
    )
    rest = (await served.client.get(f"{path}/input_items", params={"after": newest["last_id"]})).json()
    assert [item["content"][0]["text"] for item in rest["data"]] == ["a"]
    assert not rest["has_more"]
    oldest = (await served.client.get(f"{path}/input_items?order=asc")).json()
    assert [item["content"][0]["text"] for item in oldest["data"]] == ["a", "b", "c"]
    assert (await served.client.post(f"{path}/cancel")).json()["error"]["code"] == "not_cancellable"
    assert (await served.client.delete(path)).json() == {"id": response["id"], "object": "response", "deleted": True}
    for method, suffix in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
        gone = await served.client.request(method, path + suffix)
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not_found")


async def test_tokens_are_counted(served: Served) -> None:
    fields = {"input": "hi", "instructions": "Be brief.", "tools": [WEATHER]}
    counted = (await served.client.post(f"{PATH}/input_tokens", json=fields)).json()
    assert counted == {
        "object": "response.input_tokens",
        "input_tokens": (await ask(served, **fields))["usage"]["input_tokens"],
    }
    assert (await served.client.post(f"{PATH}/input_tokens", json={})).json()["error"]["param"] == "input"


async def test_store_false_keeps_nothing(served: Served) -> None:
    response = await ask(served, store=False)
    assert response["store"] is False
    assert (await served.client.get(f"{PATH}/{response['id']}")).status_code == 404
    reply = await post(served, previous_response_id=response["id"])
    error = reply.json()["error"]
    assert (reply.status_code, error["param"], error["code"]) == (400, "previous_response_id", "previous_response_not_found")


async def test_the_least_recently_used_go_first() -> None:
    async with serve(settings=Settings(request_limits=RequestLimits(kept_responses=2))) as served:
        first, second = [(await post(served)).json()["id"] for _ in range(2)]
        assert (await served.client.get(f"{PATH}/{first}")).status_code == 200
        third = (await post(served)).json()["id"]
        statuses = [(await served.client.get(f"{PATH}/{name}")).status_code for name in (first, second, third)]
        assert statuses == [200, 404, 200]


async def test_bytes_are_bounded() -> None:
    async with serve(settings=Settings(request_limits=RequestLimits(kept_response_bytes=5000))) as served:
        first = (await post(served, input="x" * 3000)).json()["id"]
        second = (await post(served, input="x" * 3000)).json()["id"]
        huge = (await post(served, input="x" * 9000)).json()["id"]
        statuses = [(await served.client.get(f"{PATH}/{name}")).status_code for name in (first, second, huge)]
        assert statuses == [404, 200, 404]


@pytest.mark.parametrize("n_words", [1, 10])
async def test_truncation(n_words: int) -> None:
    items = [{"role": role, "content": f"{role}{i} " * n_words} for i in range(8) for role in ("user", "assistant")]
    items.append({"role": "user", "content": "last"})
    async with serve(FakeEngine(info=with_info(n_ctx_slot=1000))) as served:
        response = await ask(served, input=items, instructions="Rules.", truncation="auto", max_output_tokens=100)
        prompt = prompt_of(served)
        assert response["truncation"] == "auto"
        assert len(prompt) <= 900
        assert "Rules." in prompt
        assert "last" in prompt
        assert ("user0" in prompt) == (n_words == 1)
        assert prompt.index("user") < prompt.index("assistant") < prompt.index("assistant7")


async def test_what_can_not_fit_is_not_tokenized() -> None:
    read: list[int] = []

    class Reading(FakeEngine):
        async def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> tuple[int, ...]:
            read.append(len(text))
            return await super().tokenize(text, add_special=add_special, parse_special=parse_special)

    items = [{"role": "user", "content": f"turn {i} " * 20} for i in range(200)]
    async with serve(Reading(info=with_info(n_ctx_slot=1000))) as served:
        await ask(served, input=items, truncation="auto", max_output_tokens=100)
        assert "turn 199" in prompt_of(served)
    assert max(read) <= 900, "finding the tokens of a long text takes seconds, which others wait"


# ---- odd requests

HI = {"role": "user", "content": "hi"}
FUNCTION_CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "x"}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"input": None}, "input"),
    ({"input": ""}, "input"),
    ({"input": []}, "input"),
    ({"input": [{"type": "reasoning", "summary": []}], "tools": [WEATHER]}, "input"),
    ({"input": 5}, "input"),
    ({"input": {"role": "user"}}, "input"),
    ({"input": ["hi"]}, "input[0]"),
    ({"input": [None]}, "input[0]"),
    ({"input": [{}]}, "input[0].id"),
    ({"input": [{"type": "message", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "wizard", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": ["user"], "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": 5}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": [5]}]}, "input[0].content[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]}, "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
    ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input[0].type"),
    ({"input": [{"type": ["message"]}]}, "input[0].type"),
    ({"input": [{**HI, "id": 5}]}, "input[0].id"),
    ({"input": [{**HI, "id": "m"}, {**HI, "id": "m"}]}, "input[1].id"),
    ({"input": [{"type": "item_reference", "id": "nope"}]}, "input[0].id"),
    ({"input": [HI, OUTPUT]}, "input[1].call_id"),
    ({"input": [OUTPUT, FUNCTION_CALL]}, "input[0].call_id"),
    ({"input": [FUNCTION_CALL, OUTPUT, OUTPUT]}, "input[2].call_id"),
    ({"input": [FUNCTION_CALL, FUNCTION_CALL]}, "input[1].call_id"),
    ({"input": [{**FUNCTION_CALL, "call_id": None}]}, "input[0].call_id"),
    ({"input": [{**FUNCTION_CALL, "name": 5}]}, "input[0].name"),
    ({"input": [{**FUNCTION_CALL, "arguments": {}}]}, "input[0].arguments"),
    ({"input": [{**FUNCTION_CALL, "namespace": 5}]}, "input[0].namespace"),
    ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "f"}]}, "input[0].input"),
    ({"input": [FUNCTION_CALL, {**OUTPUT, "output": None}]}, "input[1].output"),
    ({"input": [FUNCTION_CALL, {**OUTPUT, "output": [{"type": "input_image"}]}]}, "input[1].output[0].type"),
    ({"input": [{"type": "reasoning", "summary": 5}]}, "input[0].summary"),
    ({"input": [{"type": "reasoning", "content": [{"type": "reasoning_text"}]}]}, "input[0].content[0].text"),
    ({"input": [{"type": "reasoning", "encrypted_content": 5}]}, "input[0].encrypted_content"),
    ({"instructions": ["x"]}, "instructions"),
    ({"previous_response_id": "resp_nope"}, "previous_response_id"),
    ({"previous_response_id": 5}, "previous_response_id"),
    ({"model": "nope"}, "model"),
    ({"store": "yes"}, "store"),
    ({"stream": 1}, "stream"),
    ({"include": "message.output_text.logprobs"}, "include"),
    ({"include": ["everything"]}, "include"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"max_output_tokens": "9"}, "max_output_tokens"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"truncation": "some"}, "truncation"),
    ({"metadata": "x"}, "metadata"),
    ({"metadata": {"a": 1}}, "metadata.a"),
    ({"reasoning": "high"}, "reasoning"),
    ({"reasoning": {"effort": "much"}}, "reasoning.effort"),
    ({"reasoning": {"effort": 5}}, "reasoning.effort"),
    ({"reasoning_effort": "much"}, "reasoning_effort"),
    ({"background": True}, "background"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"context_management": [{"type": "compaction"}]}, "context_management"),
    ({"n": 2}, "n"),
    ({"text": "x"}, "text"),
    ({"text": {"format": "json"}}, "text.format"),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ({"text": {"format": {"type": "json_schema", "name": "r"}}}, "text.format"),
    ({"text": {"format": {"type": "json_schema", "schema": {"type": "strng"}}}}, "text.format.schema.type"),
    ({"text": FORMAT, "grammar": 'root ::= "a"'}, "text.format"),
    ({"guided_regex": "("}, "guided_regex"),
    ({"guided_jsn": {}}, "guided_jsn"),
    ({"tools": {}}, "tools"),
    ({"tools": [5]}, "tools[0]"),
    ({"tools": [{"type": "function"}]}, "tools[0].name"),
    ({"tools": [{**WEATHER, "parameters": "x"}]}, "tools[0].parameters"),
    ({"tools": [{**WEATHER, "parameters": {"type": "strng"}}], "tool_choice": "required"}, "tools[0].parameters.type"),
    ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
    ({"tools": [FILES, {**WEATHER, "name": "mcp__files__read"}]}, "tools[1].name"),
    ({"tools": [{**FILES, "tools": 5}]}, "tools[0].tools"),
    ({"tools": [{**FILES, "tools": [{"type": "web_search"}]}]}, "tools[0].tools[0].name"),
    ({"tools": [{**CALC, "format": {"type": "grammar", "syntax": "ebnf", "definition": "x"}}]}, "tools[0].format.syntax"),
    ({"tools": [{**CALC, "format": {"type": "grammar", "syntax": "regex", "definition": "("}}], "tool_choice": "required"},
     "tools[0].format"),
    *(({"tools": [WEATHER, {"type": kind}]}, "tools[1].type") for kind in (
        "web_search", "web_search_preview", "file_search", "computer_use_preview", "mcp", "code_interpreter",
        "image_generation", "local_shell", "shell", "apply_patch", "tool_search", None, 5)),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": "maybe"}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "file_search"}}, "tool_choice.type"),
    ({"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice"),
    ({"chat_template_kwargs": 5}, "chat_template_kwargs"),
    ({"template": "nope"}, "template"),
]  # fmt: skip


async def test_what_is_wrong_is_named(served: Served) -> None:
    for number, (fields, param) in enumerate(WRONG):
        reply = await post(served, **{"stream": number % 2 == 0, **fields})
        assert reply.status_code == (404 if param == "model" else 400), (fields, reply.text)
        error = reply.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["param"].startswith(param), (fields, error)
        assert param.split("[")[0].split(".")[-1] in error["message"], (fields, error)
    assert (await post(served)).status_code == 200


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "after=nope"])
async def test_odd_pages(served: Served, query: str) -> None:
    path = f"{PATH}/{(await post(served)).json()['id']}"
    reply = await served.client.get(f"{path}/input_items?{query}")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, query.split("=")[0])
    assert (await served.client.get(f"{path}?stream=true")).json()["error"]["param"] == "stream"


@pytest.mark.parametrize(
    "fields",
    [
        {"instructions": "Only this.", "input": []},
        {"input": [{**HI, "id": None, "status": None, "type": None}]},
        {"background": False, "conversation": None, "prompt": None, "n": 1, "service_tier": "auto", "safety_identifier": "s"},
        {
            "reasoning": {"effort": None, "summary": "auto"},
            "max_tool_calls": 3,
            "prompt_cache_key": "k",
            "context_management": [],
        },
        {"reasoning": None, "tools": None, "tool_choice": None, "text": None, "include": None, "metadata": None},
        {"stream_options": {"include_obfuscation": False}},
        {"top_k": 1, "min_p": 0.1, "seed": 3, "stop": ["x"], "repeat_penalty": 1.1},
    ],
)
async def test_what_is_let_pass(served: Served, fields: dict[str, Any]) -> None:
    await ask(served, **fields)
