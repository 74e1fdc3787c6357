"""Ollama's dialect over a fake engine: what reaches the engine, lines and whole answers, models, and what is refused."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any

import httpx
import pytest

from converters.grammar.gbnf_parser import parse_gbnf
from converters.grammar.match import Matcher, build_tables
from server.api.duration import parse_duration_s
from server.engine.messages import EngineEvent, EngineRequest, FinishReason
from server.errors import ContextOverflow, GenerationFailed
from server.settings import Settings
from tests.server.api.test_tools import CALL, CLOCK, CLOCK_CALL, WEATHER, says
from tests.server.fakes import FakeEngine, Served, serve, with_info

HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": False}
TIMES = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
THINKS = "{% for m in messages %}{{ m.content }}{% endfor %}<think></think>{{ enable_thinking }}"


async def post(served: Served, path: str = "chat", **fields: Any) -> httpx.Response:
    body = {"messages": HI, **fields} if path == "chat" else fields
    return await served.client.post(f"/api/{path}", json=body)


async def whole(served: Served, path: str = "chat", **fields: Any) -> dict[str, Any]:
    """A whole answer, checked."""
    reply = await post(served, path, stream=False, **fields)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json"), reply.text
    answer: dict[str, Any] = reply.json()
    check_last(answer)
    return answer


async def lines(served: Served, path: str = "chat", **fields: Any) -> list[dict[str, Any]]:
    """A streamed answer, checked: `stream` is left out, and lines are cut at whatever Python takes for a line's end."""
    reply = await post(served, path, **fields)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/x-ndjson"), reply.text
    found = [json.loads(line) for line in reply.text.splitlines()]
    assert [line["done"] for line in found] == [False] * (len(found) - 1) + [True]
    check_last(found[-1])
    return found


def check_last(line: dict[str, Any]) -> None:
    assert line["done"] is True
    for name in (*TIMES, "prompt_eval_count", "eval_count"):
        assert type(line[name]) is int, name
    assert line["total_duration"] >= line["load_duration"] >= 0
    assert datetime.fromisoformat(line["created_at"].replace("Z", "+00:00")).tzinfo


def matcher(served: Served) -> Matcher:
    """The grammar that holds the last request."""
    key = served.engine.requests[-1].grammar_key
    assert key is not None
    return Matcher.from_tables(build_tables(parse_gbnf(served.engine.grammars[key])))


# ---- answers


@pytest.mark.parametrize("path", ["chat", "generate"])
async def test_a_stream_and_a_whole_answer_say_the_same(path: str) -> None:
    text = "Zürich\u2028\x85 \U0001f600"
    async with serve(says(text)) as served:
        prompt = {} if path == "chat" else {"prompt": "hi"}
        streamed, answer = await lines(served, path, model="fake", **prompt), await whole(served, path, model="fake", **prompt)

        def content(line: dict[str, Any]) -> str:
            return str(line["message"]["content"] if path == "chat" else line["response"])

        assert "".join(map(content, streamed)) == content(answer) == text
        assert len(streamed) > 2
        assert answer["done_reason"] == streamed[-1]["done_reason"] == "stop"
        assert {line["model"] for line in (*streamed, answer)} == {"fake"}
        assert set(streamed[-1]) == set(answer)
        assert answer["eval_count"] == len(served.engine.pieces)
        assert ("context" in answer) == (path == "generate")
        if path == "chat":
            assert all(line["message"]["role"] == "assistant" for line in streamed)


async def test_the_end_of_tokens(served: Served) -> None:
    served.engine.reason = FinishReason.LENGTH
    assert (await whole(served, options={"num_predict": 1}))["done_reason"] == "length"
    assert (await lines(served, options={"num_predict": 1}))[-1]["done_reason"] == "length"


async def test_the_model_is_called_as_the_request_calls_it(served: Served) -> None:
    names = {"fake": "fake", "fake:latest": "fake:latest", "": "fake:latest", None: "fake:latest", "default": "default"}
    for asked, told in names.items():
        assert (await whole(served, model=asked))["model"] == told
    assert (await whole(served, name="fake"))["model"] == "fake"


async def test_log_probabilities(served: Served) -> None:
    answer = await whole(served, logprobs=True, top_logprobs=2)
    streamed = await lines(served, logprobs=True, top_logprobs=2)
    assert [entry["token"] for entry in answer["logprobs"]] == ["Hel", "lo"]
    assert [entry for line in streamed for entry in line.get("logprobs", ())] == answer["logprobs"]
    assert answer["logprobs"][0]["top_logprobs"][0]["logprob"] == -0.5
    assert "logprobs" not in await whole(served)


async def test_an_error_after_the_first_byte_is_a_line() -> None:
    def fail(request: EngineRequest, event: EngineEvent) -> None:
        if type(event).__name__ == "Finished":
            raise GenerationFailed("late")

    async with serve(FakeEngine(pieces=["x"], before=fail)) as served:
        reply = await post(served)
        assert json.loads(reply.text.splitlines()[-1]) == {"error": "late"}
        assert (await post(served, stream=False)).status_code == 500


# ---- what reaches the engine


async def test_options(served: Served) -> None:
    options = {
        "num_predict": 7, "temperature": 0.5, "top_k": 3, "top_p": 0.25, "min_p": 0, "typical_p": 0.5, "repeat_penalty": 1.5,
        "repeat_last_n": -1, "presence_penalty": 1, "frequency_penalty": -1, "mirostat": 2, "mirostat_tau": 3,
        "mirostat_eta": 0.5, "seed": 5, "stop": ["a", "b"], "num_ctx": 4096, "num_gpu": 99, "use_mmap": True,
        "unknown": {"a": 1}, "num_thread": None,
    }  # fmt: skip
    await whole(served, options=options)
    request = served.engine.requests[-1]
    assert (request.max_tokens, request.stop) == (7, ("a", "b"))
    for name in options.keys() - {"num_predict", "stop", "num_ctx", "num_gpu", "use_mmap", "unknown", "num_thread"}:
        assert getattr(request.sampling, name) == options[name], name


@pytest.mark.parametrize("n", [-1, -2, 0, None])
async def test_no_bound_on_tokens(served: Served, n: int | None) -> None:
    await whole(served, options={"num_predict": n})
    assert served.engine.requests[-1].max_tokens is None


async def test_more_tokens_than_the_context_has_is_no_error(served: Served) -> None:
    await whole(served, options={"num_predict": 100_000})


async def test_null_is_absent(served: Served) -> None:
    names = ("options", "format", "tools", "think", "keep_alive", "model", "template", "images", "logprobs", "truncate", "raw")
    fields: dict[str, Any] = dict.fromkeys((*names, "stream"))
    await lines(served, **fields)


async def test_messages(served: Served) -> None:
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U", "images": []},
        {"role": "assistant", "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Köln"}}}]},
        {"role": "tool", "content": "rainy", "tool_name": "get_weather"},
    ]
    await whole(served, messages=messages, tools=[WEATHER])
    prompt = served.engine.requests[-1].prompt
    assert isinstance(prompt, str)
    assert prompt.index("S") < prompt.index("U") < prompt.index("Köln") < prompt.index("rainy")
    assert prompt.endswith("<|im_start|>assistant\n")


async def test_a_last_message_of_the_assistant_is_gone_on_from(served: Served) -> None:
    await whole(served, messages=[*HI, {"role": "assistant", "content": "It is"}])
    assert str(served.engine.requests[-1].prompt).endswith("<|im_start|>assistant\nIt is")


async def test_the_oldest_messages_go_where_there_are_too_many(served: Served) -> None:
    turns = [{"role": role, "content": f"{i}" * 20} for i in range(1, 8) for role in ("user", "assistant")]
    messages = [{"role": "system", "content": "S"}, *turns, *HI]

    def overflow(request: EngineRequest, event: EngineEvent) -> None:
        if len(request.prompt) >= served.engine.info.n_ctx_slot:
            raise ContextOverflow("the prompt is too long")

    served.engine.before = overflow
    await whole(served, messages=messages)
    prompt = str(served.engine.requests[-1].prompt)
    assert "S" in prompt
    assert "hi" in prompt
    assert "1" * 20 not in prompt
    refused = await post(served, messages=messages, truncate=False)
    assert refused.status_code == 400
    assert refused.json()["error"].startswith("messages")


async def test_generate_makes_a_chat_of_the_prompt_unless_it_is_raw(served: Served) -> None:
    await whole(served, "generate", prompt="hi", system="S")
    assert served.engine.requests[-1].prompt == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    answer = await whole(served, "generate", prompt="<b>hi", raw=True)
    assert served.engine.requests[-1].prompt == "<b>hi"
    assert "context" not in answer
    await whole(served, "generate", prompt="hi", template="llama2")
    assert "[INST]" in str(served.engine.requests[-1].prompt)


async def test_generate_goes_on_from_a_context(served: Served) -> None:
    first = await whole(served, "generate", prompt="hi")
    earlier = str(served.engine.requests[-1].prompt)
    assert "".join(map(chr, first["context"])) == f"{earlier}Hello</s>"
    second = await whole(served, "generate", prompt="more", context=first["context"])
    prompt = str(served.engine.requests[-1].prompt)
    assert prompt.startswith(f"{earlier}Hello</s><|im_start|>user\nmore")
    assert second["context"][: len(first["context"])] == first["context"]


# ---- constraints


@pytest.mark.parametrize(
    ("fields", "good", "bad"),
    [
        ({"format": "json"}, '{"a":1}', "[1]"),
        ({"format": SCHEMA}, '{"x":"a"}', '{"y":"a"}'),
        ({"format": json.dumps(SCHEMA)}, '{"x":"a"}', '{"y":"a"}'),
        ({"guided_choice": ["yes", "no"]}, "no", "maybe"),
        ({"guided_regex": "[0-9]{3}"}, "123", "12"),
        ({"structured_outputs": {"json": SCHEMA}}, '{"x":"a"}', "{}"),
        ({"grammar": 'root ::= "a"+'}, "aaa", "b"),
        ({"response_format": {"type": "json_object"}}, "{}", "[]"),
        ({"options": {"guided_choice": ["yes", "no"], "seed": 1}, "seed": 2}, "yes", "maybe"),
        ({"extra_body": {"regex": "a|b"}}, "b", "c"),
    ],
)
@pytest.mark.parametrize("path", ["chat", "generate"])
async def test_constraints(served: Served, path: str, fields: dict[str, Any], good: str, bad: str) -> None:
    await whole(served, path, **({} if path == "chat" else {"prompt": "hi"}), **fields)
    grammar = matcher(served)
    assert grammar.accepts(good)
    assert not grammar.accepts(bad)


@pytest.mark.parametrize("value", ["", {}, None])
async def test_no_format(served: Served, value: object) -> None:
    await whole(served, format=value)
    assert served.engine.requests[-1].grammar_key is None


# ---- thinking


async def test_thinking_comes_back_apart() -> None:
    engine = says("<think>Hmm, so.</think>\n\nHello", info=with_info(chat_template=THINKS))
    async with serve(engine) as served:
        for path, fields in (("chat", {}), ("generate", {"prompt": "hi"})):
            answer = await whole(served, path, think=True, **fields)
            parts = answer["message"] if path == "chat" else answer
            assert (parts["thinking"].strip(), parts["content" if path == "chat" else "response"].strip()) == (
                "Hmm, so.",
                "Hello",
            )
        assert str(engine.requests[-1].prompt).endswith("True")
        streamed = await lines(served, think="low")
        assert "".join(line["message"].get("thinking", "") for line in streamed).strip() == "Hmm, so."
        assert "".join(line["message"]["content"] for line in streamed).strip() == "Hello"
        await whole(served, think=False)
        assert str(engine.requests[-1].prompt).endswith("False")


# ---- tools


@pytest.mark.parametrize("fields", [{}, {"logprobs": True}], ids=["plain", "logprobs"])
async def test_calls_have_objects_as_arguments(fields: dict[str, Any]) -> None:
    """Log-probabilities come between the pieces of a call too."""
    async with serve(says(f"Well.{CALL}\n{CLOCK_CALL}")) as served:
        tools = [WEATHER, {"function": CLOCK["function"]}]
        answer = await whole(served, tools=tools, **fields)
        calls = answer["message"]["tool_calls"]
        assert [call["function"] for call in calls] == [
            {"index": 0, "name": "get_weather", "arguments": {"city": 'Köln "x"'}},
            {"index": 1, "name": "mcp__a.b/c-d:e", "arguments": {}},
        ]
        assert all(call["id"] for call in calls)
        assert answer["message"]["content"].strip() == "Well."
        streamed = await lines(served, tools=tools, **fields)
        found = [line["message"]["tool_calls"] for line in streamed if "tool_calls" in line["message"]]
        assert [[call["function"] for call in entry] for entry in found] == [[call["function"]] for call in calls]


async def test_a_call_that_breaks_off_is_text() -> None:
    cut = CALL[: CALL.index("Köln")]
    async with serve(says(cut, reason=FinishReason.LENGTH)) as served:
        answer = await whole(served, tools=[WEATHER])
        assert "tool_calls" not in answer["message"]
        assert "city" in answer["message"]["content"]
        assert "city" in "".join(line["message"]["content"] for line in await lines(served, tools=[WEATHER]))


@pytest.mark.parametrize("place", ["body", "options"])
async def test_a_forced_call(served: Served, place: str) -> None:
    choice: dict[str, Any] = {"tool_choice": "required"}
    await post(served, tools=[WEATHER, CLOCK], stream=False, **(choice if place == "body" else {"options": choice}))
    assert matcher(served).accepts(CALL)


async def test_a_turn_of_open_webui_with_a_call(served: Served) -> None:
    """As its Ollama connection sends it: ids and indexes in the history, custom parameters among the options."""
    call = {"index": 0, "id": "call_1", "function": {"name": "get_weather", "arguments": {"city": "Köln"}}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "rainy", "tool_call_id": "call_1"},
    ]
    options = {"temperature": 0.1, "num_ctx": 4096, "num_predict": 9, "guided_choice": ["a", "b"], "reasoning_effort": "low"}
    await lines(served, model="fake:latest", messages=messages, tools=[WEATHER], options=options, keep_alive="5m", stream=True)
    prompt = str(served.engine.requests[-1].prompt)
    assert prompt.index("Köln") < prompt.index("rainy")
    assert matcher(served).accepts("b")
    assert matcher(served).accepts(CALL)


async def test_a_task_of_open_webui(served: Served) -> None:
    """A title, say: not streamed, max_tokens as its converter writes it, a system beside the chat."""
    fields: dict[str, Any] = {
        "format": None,
        "options": {"num_predict": 1000, "stop": []},
        "system": "S",
        "metadata": {"task": "title"},
    }
    assert (await whole(served, model="fake:latest", **fields))["message"]["content"] == "Hello"


# ---- models


@pytest.mark.parametrize(
    ("path", "empty"),
    [("chat", {"messages": []}), ("chat", {"messages": None}), ("generate", {}), ("generate", {"prompt": ""})],
)
async def test_loading_and_unloading(served: Served, path: str, empty: dict[str, Any]) -> None:
    touched = served.app.state.manager.touched
    loaded = (await post(served, path, model="fake", **empty)).json()
    assert (loaded["done"], loaded["done_reason"], touched) == (True, "load", [])
    await post(served, path, model="fake", keep_alive="1h30m", **empty)
    unloaded = (await post(served, path, model="fake", keep_alive=0, **empty)).json()
    assert (unloaded["done_reason"], touched) == ("unload", [("fake", 5400.0), ("fake", 0.0)])
    assert served.engine.requests == []


async def test_how_long_a_model_stays(served: Served) -> None:
    for value in (0, "0", 300, "5m", -1, "-1", "-5m"):
        await whole(served, keep_alive=value)
    seconds = [seconds for _, seconds in served.app.state.manager.touched]
    assert seconds == [0, 0, 300, 300, math.inf, math.inf, math.inf]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h2m3.5s", 3723.5), ("300ms", 0.3), ("10us", 1e-5), (" 2m ", 120), ("-1", -1), ("+5s", 5), ("1.5", 1.5), ("", None),
     ("5 m", None), ("m", None), ("1d", None), ("1e3", None), ("9" * 99, None), ("٣s", None)],
)  # fmt: skip
def test_durations(text: str, seconds: float | None) -> None:
    assert parse_duration_s(text) == (seconds if seconds is None else pytest.approx(seconds))


async def test_lists(served: Served) -> None:
    (model,) = (await served.client.get("/api/tags")).json()["models"]
    assert model["name"] == model["model"] == "fake:latest"
    assert model["size"] > 0
    assert model["details"]["format"] == "gguf"
    (running,) = (await served.client.get("/api/ps")).json()["models"]
    assert (running["name"], running["context_length"]) == ("fake:latest", 256)
    assert datetime.fromisoformat(running["expires_at"].replace("Z", "+00:00")).year > 2200
    for path in ("/api/tags", "/api/ps", "/api/version", "/"):
        assert (await served.client.head(path)).status_code == 200


async def test_show(served: Served) -> None:
    for body in ({"model": "fake"}, {"name": "fake:latest"}, {}):
        shown = (await served.client.post("/api/show", json=body)).json()
        assert shown["model_info"]["general.architecture"] == "llama"
        assert "tokenizer.chat_template" not in shown["model_info"]
        assert shown["template"]
        assert "completion" in shown["capabilities"]
    missing = await served.client.post("/api/show", json={"model": "dir/other"})
    assert missing.status_code == 404


async def test_pull_and_delete(served: Served) -> None:
    reply = await served.client.post("/api/pull", json={"model": "dir/other", "insecure": True})
    assert reply.headers["content-type"] == "application/x-ndjson"
    steps = [json.loads(line) for line in reply.text.splitlines()]
    assert [step["status"] for step in steps] == [
        "pulling manifest", *["pulling other.gguf"] * 3, "verifying sha256 digest", "writing manifest", "success",
    ]  # fmt: skip
    assert [(step["completed"], step["total"]) for step in steps if "total" in step] == [(0, 10), (5, 10), (10, 10)]
    assert len({step["digest"] for step in steps if "digest" in step}) == 1
    whole = await served.client.post("/api/pull", json={"name": "dir/other:latest", "stream": False})
    assert whole.json() == {"status": "success"}
    for body, status in (({"model": "fake"}, 200), ({"name": "dir/other"}, 404)):
        assert (await served.client.request("DELETE", "/api/delete", json=body)).status_code == status


async def test_a_pull_that_fails() -> None:
    async with serve() as served:
        served.app.state.manager.failure = "no such host"
        reply = await served.client.post("/api/pull", json={"model": "fake"})
        assert json.loads(reply.text.splitlines()[-1]) == {"error": "no such host"}
        assert (await served.client.post("/api/pull", json={"model": "fake", "stream": False})).status_code == 500


@pytest.mark.parametrize("path", ["chat", "generate", "show", "pull", "delete", "embed", "embeddings"])
async def test_an_unknown_model(served: Served, path: str) -> None:
    body = {"model": "nope", "prompt": "hi", "input": "hi", "messages": HI}
    reply = await served.client.request("DELETE" if path == "delete" else "POST", f"/api/{path}", json=body)
    assert reply.status_code == 404
    assert reply.json()["error"].startswith("model 'nope' not found")


@pytest.mark.parametrize("path", ["create", "copy", "push", "blobs/sha256:00"])
async def test_what_is_no_part_of_this_server(served: Served, path: str) -> None:
    reply = await served.client.post(f"/api/{path}", json={"model": "x"})
    assert reply.status_code == 400
    assert path in reply.json()["error"]


async def test_what_clients_look_for() -> None:
    async with serve(settings=Settings(api_key="sesame")) as served:
        assert (await served.client.get("/api/version")).status_code == 401
    async with serve() as served:
        assert (await served.client.get("/")).text == "Ollama is running"
        assert (await served.client.get("/api/version")).json()["version"].count(".") == 2
        assert (await served.client.get("/api/nothing")).json() == {"error": "there is no /api/nothing"}
        assert (await served.client.get("/api/chat")).status_code == 405
        assert (
            await served.client.post("http://127.0.0.1:8080//api/chat/", json={"messages": HI, "stream": False})
        ).status_code == 200


# ---- vectors


async def test_embeddings(served: Served) -> None:
    answer = (await post(served, "embed", model="fake", input=["a", "bc"], keep_alive="1m")).json()
    assert (answer["model"], len(answer["embeddings"]), answer["prompt_eval_count"]) == ("fake", 2, 3)
    assert all(type(number) is float for vector in answer["embeddings"] for number in vector)
    assert answer["total_duration"] >= answer["load_duration"] >= 0
    one = (await post(served, "embed", input="a")).json()
    assert one["embeddings"] == answer["embeddings"][:1]
    assert (await post(served, "embeddings", prompt="a")).json() == {"embedding": one["embeddings"][0]}
    assert served.app.state.manager.touched == [("fake", 60.0)]


async def test_nothing_to_embed_loads_the_model(served: Served) -> None:
    values: tuple[object, ...] = ("", [], None)
    for value in values:
        assert (await post(served, "embed", input=value)).json()["embeddings"] == []
    assert (await post(served, "embeddings")).json() == {"embedding": []}
    assert served.engine.embedded == []


async def test_inputs_that_are_too_long_are_cut_unless_the_request_says_no(served: Served) -> None:
    assert (await post(served, "embed", input="x" * 999)).json()["prompt_eval_count"] == served.engine.info.n_ctx_embed
    check_refusal(await post(served, "embed", input=["a", "x" * 999], truncate=False), "input[1]")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": 5}, "input"),
        ({"input": ["a", 5]}, "input[1]"),
        ({"input": "a", "dimensions": 5}, "dimensions"),
        ({"input": "a", "dimensions": "x"}, "dimensions"),
        ({"input": "a", "keep_alive": "x"}, "keep_alive"),
        ({"input": "a", "truncate": 1}, "truncate"),
    ],
)
async def test_refusals_of_inputs(served: Served, fields: dict[str, Any], param: str) -> None:
    check_refusal(await post(served, "embed", **fields), param)


# ---- what is refused

CALLS = [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": 5}, "model"),
    ({"messages": "hi"}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [{"content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "wizard", "content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "hi", "images": ["aGk="]}]}, "messages[0].images"),
    ({"messages": [{"role": "user", "content": "hi", "thinking": 1}]}, "messages[0].thinking"),
    ({"messages": CALLS}, "messages[0].tool_calls[0].function.arguments"),
    ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function"),
    ({"stream": "yes"}, "stream"),
    ({"options": []}, "options"),
    ({"options": ""}, "options"),
    ({"options": {"temperature": "hot"}}, "options.temperature"),
    ({"options": {"temperature": True}}, "options.temperature"),
    ({"options": {"top_p": 2}}, "options.top_p"),
    ({"options": {"num_predict": "many"}}, "options.num_predict"),
    ({"options": {"num_predict": 1.5}}, "options.num_predict"),
    ({"options": {"num_ctx": "big"}}, "options.num_ctx"),
    ({"options": {"use_mmap": 1}}, "options.use_mmap"),
    ({"options": {"stop": [1]}}, "options.stop"),
    ({"options": {"seed": "x"}}, "options.seed"),
    ({"options": {"guided_regex": "("}}, "options.guided_regex"),
    ({"options": {"guided_thing": 1}}, "options.guided_thing"),
    ({"options": {"reasoning_effort": "huge"}}, "reasoning_effort"),
    ({"keep_alive": "soon"}, "keep_alive"),
    ({"keep_alive": True}, "keep_alive"),
    ({"keep_alive": {}}, "keep_alive"),
    ({"think": "hard"}, "think"),
    ({"think": 1}, "think"),
    ({"format": "yaml"}, "format"),
    ({"format": 5}, "format"),
    ({"format": ["json"]}, "format"),
    ({"format": {"type": "nonsense"}}, "format"),
    ({"format": "json", "guided_regex": "a"}, "format"),
    ({"grammar": "root ::= ("}, "grammar"),
    ({"logprobs": 5}, "logprobs"),
    ({"top_logprobs": 5}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 50}, "top_logprobs"),
    ({"tools": {}}, "tools"),
    ({"tools": [{"type": "function"}]}, "tools[0]"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}]}, "tools[0].function.parameters"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
    ({"tools": [WEATHER], "parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ({"template": "nonsense"}, "template"),
    ({"truncate": "x"}, "truncate"),
]  # fmt: skip
REFUSED_PROMPTS: list[tuple[dict[str, Any], str]] = [
    ({"raw": True, "guided_regex": "a", "inject_schema": True}, "inject_schema"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": ["hi"]}, "prompt"),
    ({"system": {}}, "system"),
    ({"suffix": "end"}, "suffix"),
    ({"images": ["aGk="]}, "images"),
    ({"images": "aGk="}, "images"),
    ({"raw": "yes"}, "raw"),
    ({"raw": True, "system": "S"}, "system"),
    ({"raw": True, "context": [1]}, "context"),
    ({"context": "abc"}, "context"),
    ({"context": [1, "a"]}, "context"),
    ({"context": [True]}, "context"),
    ({"context": [99999]}, "context"),
    ({"template": "{{ .Prompt }}"}, "template"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=[f"{param} {i}" for i, (_, param) in enumerate(REFUSED)])
async def test_refusals(served: Served, fields: dict[str, Any], param: str) -> None:
    for stream in (True, False):
        reply = await served.client.post("/api/chat", json={"messages": HI, "stream": stream, **fields})
        check_refusal(reply, param)
    if "messages" not in fields and "tools" not in fields:
        check_refusal(await served.client.post("/api/generate", json={"prompt": "hi", **fields}), param)


@pytest.mark.parametrize(
    ("fields", "param"), REFUSED_PROMPTS, ids=[f"{param} {i}" for i, (_, param) in enumerate(REFUSED_PROMPTS)]
)
async def test_refusals_of_prompts(served: Served, fields: dict[str, Any], param: str) -> None:
    check_refusal(await served.client.post("/api/generate", json={"prompt": "hi", **fields}), param)


def check_refusal(reply: httpx.Response, param: str) -> None:
    assert reply.status_code == 400, reply.text
    assert set(reply.json()) == {"error"}
    assert param in reply.json()["error"]
