"""/v1/chat/completions over a scripted engine: shapes, streams, and what reaches the engine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from server.engine.messages import EngineEvent, EngineRequest, Failed, FailureKind, Finished, FinishReason, TextChunk
from server.errors import ContextOverflow, EngineDied
from server.settings import Settings
from tests.server.api.sse import events
from tests.server.fakes import FakeEngine, Served, serve, with_info


async def test_a_whole_answer(served: Served) -> None:
    reply = await served.chat(n=2, logprobs=True, top_logprobs=2)
    assert reply.status_code == 200
    body = reply.json()
    assert body["object"] == "chat.completion"
    assert body["model"] == "fake"
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    first = body["choices"][0]
    assert first["message"] == {"role": "assistant", "content": "Hello", "refusal": None}
    assert first["finish_reason"] == "stop"
    entry = first["logprobs"]["content"][0]
    assert (entry["token"], entry["bytes"], entry["logprob"]) == ("Hel", [72, 101, 108], -0.5)
    assert entry["top_logprobs"][1]["bytes"] == [0xE2, 0x82]
    prompt_tokens = body["usage"]["prompt_tokens"]
    assert body["usage"] == {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 4,
        "total_tokens": prompt_tokens + 4,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 0, "forced_tokens": 0},
    }


async def test_logprobs_are_null_unless_asked_for(served: Served) -> None:
    assert (await served.chat()).json()["choices"][0]["logprobs"] is None


async def test_a_stream(served: Served) -> None:
    reply = await served.chat(stream=True, n=2, stream_options={"include_usage": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    *chunks, usage, done = events(reply.text)
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 4
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in [*chunks, usage]}) == 1
    assert all("usage" not in chunk for chunk in chunks)
    for index in (0, 1):
        own = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(choice["delta"].get("content", "") for choice in own) == "Hello"
        assert [choice["finish_reason"] for choice in own] == [None, None, None, "stop"]
        assert own[-1]["delta"] == {}


async def test_a_stream_without_usage_has_no_usage_chunk(served: Served) -> None:
    chunks = events((await served.chat(stream=True)).text)
    assert all(chunk == "[DONE]" or chunk["choices"] for chunk in chunks)


async def test_a_streams_logprobs_join_to_those_of_the_whole(served: Served) -> None:
    whole = (await served.chat(logprobs=True)).json()["choices"][0]["logprobs"]["content"]
    chunks = events((await served.chat(logprobs=True, stream=True)).text)[:-1]
    streamed = [entry for chunk in chunks for entry in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert streamed == whole


async def test_line_ends_of_unicode_end_no_line() -> None:
    text = "a\x85b\u2028c\u2029d\ne\x0bf"
    async with serve(FakeEngine(pieces=[text])) as served:
        reply = await served.chat(stream=True)
        lines = [line for line in reply.text.splitlines() if line]
        deltas = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines[:-1]]
        assert "".join(delta.get("content", "") for delta in deltas) == text


async def test_length_is_told() -> None:
    async with serve(FakeEngine(reason=FinishReason.LENGTH)) as served:
        assert (await served.chat()).json()["choices"][0]["finish_reason"] == "length"


async def test_what_reaches_the_engine(served: Served) -> None:
    reply = await served.chat(
        n=3, max_tokens=9, max_completion_tokens=5.0, stop="END", temperature=0, top_p=0.5, top_k=-1, min_p=0.1, seed=-1,
        typical_p=0.9, repetition_penalty=1.1, presence_penalty=1, frequency_penalty=-1, mirostat=2, mirostat_tau=3,
        dry_multiplier=0.5, dry_sequence_breakers=["x"], xtc_probability=0.2, dynatemp_range=0.1, min_tokens=2,
        ignore_eos=True, logit_bias={"5": -100, "7": 1.5}, grammar_first=True, top_n_sigma=1,
        user="u", metadata={"a": "b"}, store=False, service_tier="auto", prompt_cache_key="k", tools=None, stream=None,
    )  # fmt: skip
    assert reply.status_code == 200
    (request,) = served.engine.requests
    assert (request.n, request.max_tokens, request.stop) == (3, 5, ("END",))
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0, 0.5, 0, 0.1)
    assert (sampling.seed, sampling.typical_p, sampling.repeat_penalty) == (None, 0.9, 1.1)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1, -1)
    assert (sampling.mirostat, sampling.mirostat_tau, sampling.dry_multiplier) == (2, 3, 0.5)
    assert (sampling.dry_sequence_breakers, sampling.xtc_probability) == (("x",), 0.2)
    assert (sampling.dynatemp_range, sampling.top_n_sigma, sampling.min_tokens) == (0.1, 1, 2)
    assert (sampling.ignore_eos, sampling.grammar_first) == (True, True)
    assert sampling.logit_bias == ((5, -100.0), (7, 1.5))


async def test_fields_in_extra_body_count(served: Served) -> None:
    await served.chat(extra_body={"top_k": 3, "guided_choice": ["a"]})
    (request,) = served.engine.requests
    assert request.sampling.top_k == 3
    assert request.grammar_key in served.engine.grammars


@pytest.mark.parametrize("stream", [False, True])
async def test_every_choice_carries_the_constraint(served: Served, stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gramserve.constraint")
    reply = await served.chat(
        n=3, stream=stream, response_format={"type": "json_schema", "json_schema": {"schema": {"enum": ["a"]}}}
    )
    assert reply.status_code == 200
    (request,) = served.engine.requests
    assert request.n == 3
    assert request.grammar_key is not None
    assert request.grammar_key in served.engine.grammars
    assert "source=response_format type=json_schema compile_ms=" in caplog.text
    assert "cache=miss" in caplog.text
    await served.chat(json_schema={"enum": ["a"]})
    assert "source=json_schema type=json_schema" in caplog.text
    assert "cache=hit" in caplog.text


async def test_stop_strings_beside_a_constraint_are_warned_about(served: Served) -> None:
    for stream in (False, True):
        reply = await served.chat(guided_choice=["alpha beta"], stop=[" "], stream=stream)
        warnings = json.loads(reply.headers["x-constraint-warnings"])
        assert "stop string" in warnings[0]["message"]
    assert "x-constraint-warnings" not in (await served.chat(stop=[" "])).headers


async def test_a_rejected_constraint_is_named(served: Served) -> None:
    reply = await served.chat(guided_regex="a)")
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == "guided_regex"
    assert error["message"].startswith("guided_regex")
    assert not served.engine.requests


async def test_an_error_before_the_first_event_is_a_status() -> None:
    def overflow(request: EngineRequest, event: EngineEvent) -> None:
        raise ContextOverflow("the prompt has 300 tokens", param="messages")

    for stream in (False, True):
        async with serve(FakeEngine(before=overflow)) as served:
            reply = await served.chat(stream=stream)
            assert reply.status_code == 400
            assert reply.json()["error"]["code"] == "context_length_exceeded"


async def test_an_error_in_mid_stream_is_the_last_event() -> None:
    def die(request: EngineRequest, event: EngineEvent) -> None:
        if isinstance(event, TextChunk) and event.text == "lo":
            raise EngineDied("the model's process died")

    async with serve(FakeEngine(before=die)) as served:
        reply = await served.chat(stream=True)
        assert reply.status_code == 200
        *chunks, last = events(reply.text)
        assert last["error"]["code"] == "engine_died"
        assert "choices" not in last
        assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Hel"
        assert (await served.chat()).status_code == 502


async def test_a_bug_is_an_error_in_shape() -> None:
    def crash(request: EngineRequest, event: EngineEvent) -> None:
        raise KeyError("secret")

    async with serve(FakeEngine(before=crash)) as served:
        for stream in (False, True):
            reply = await served.chat(stream=stream)
            assert reply.status_code == 500
            assert reply.json()["error"]["code"] == "internal_error"
            assert "secret" not in reply.text


class _FailsOneChoice(FakeEngine):
    def _events(self, request: EngineRequest) -> list[EngineEvent]:
        failed = Failed(0, FailureKind.GENERATION_FAILED, "the grammar is stuck", index=1)
        kept = [event for event in super()._events(request) if getattr(event, "index", None) != 1]
        return [*kept[:1], failed, *kept[1:]]


async def test_a_choice_that_fails_lets_the_others_end() -> None:
    async with serve(_FailsOneChoice()) as served:
        reply = await served.chat(n=2, stream=True)
        *chunks, last = events(reply.text)
        assert last["error"]["message"] == "choice 1: the grammar is stuck"
        finished = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["finish_reason"]]
        assert [choice["index"] for choice in finished] == [0]
        assert (await served.chat(n=2)).status_code == 500


@pytest.mark.parametrize(
    ("failures", "message"),
    [
        ({0: "stuck", 2: "stuck"}, "choices 0, 2: stuck"),
        ({1: "stuck", 2: "out of memory"}, "choice 1: stuck; choice 2: out of memory"),
        ({0: "stuck", 1: "stuck", 2: "stuck"}, "stuck"),
    ],
)
async def test_all_that_failed_is_told(failures: dict[int, str], message: str) -> None:
    class Failing(FakeEngine):
        def _events(self, request: EngineRequest) -> list[EngineEvent]:
            kept = [e for e in super()._events(request) if not isinstance(e, TextChunk | Finished) or e.index not in failures]
            return [*kept, *(Failed(0, FailureKind.GENERATION_FAILED, text, index=k) for k, text in failures.items())]

    async with serve(Failing()) as served:
        reply = await served.chat(n=3)
        assert reply.status_code == 500
        assert reply.json()["error"]["message"] == message


async def test_unconstrained_on_failure_is_a_setting() -> None:
    for setting, expected in (("error", False), ("unconstrained", True)):
        async with serve(settings=Settings(constraint_failure=setting)) as served:  # type: ignore[arg-type]
            await served.chat(guided_choice=["a"])
            assert served.engine.requests[0].unconstrained_on_failure is expected


@pytest.mark.parametrize("model", [None, "", "default", "fake", "dir/other"])
async def test_names_of_the_model(served: Served, model: str | None) -> None:
    assert (await served.chat(model=model)).status_code == 200


async def test_an_unknown_model_is_a_404(served: Served) -> None:
    reply = await served.chat(model="gpt-4")
    assert reply.status_code == 404
    assert reply.json()["error"] == {
        "message": "model 'gpt-4' not found", "type": "invalid_request_error", "param": "model", "code": "model_not_found",
    }  # fmt: skip


# ---- messages


async def prompt_of(served: Served, messages: list[dict[str, Any]], **fields: Any) -> str:
    reply = await served.client.post("/v1/chat/completions", json={"messages": messages, **fields})
    assert reply.status_code == 200, reply.text
    prompt = served.engine.requests[-1].prompt
    assert isinstance(prompt, str)
    return prompt


async def test_messages_become_the_templates_text(served: Served) -> None:
    prompt = await prompt_of(
        served,
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "bob"},
            {"role": "assistant", "content": "c", "reasoning_content": "hmm"},
            {"role": "user", "content": "d"},
        ],
    )
    assert prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n"
        "<|im_start|>assistant\nc<|im_end|>\n<|im_start|>user\nd<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_continue_final_message(served: Served) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "The answer is"}]
    prompt = await prompt_of(served, messages, continue_final_message=True, add_generation_prompt=False)
    assert prompt.endswith("<|im_start|>assistant\nThe answer is")
    prompt = await prompt_of(served, messages, add_generation_prompt=False)
    assert prompt.endswith("The answer is<|im_end|>\n")


async def test_a_builtin_template_by_name(served: Served) -> None:
    prompt = await prompt_of(served, [{"role": "user", "content": "hi"}], template="llama3")
    assert prompt.startswith("<s><|start_header_id|>user")
    assert served.engine.requests[-1].add_special is False
    reply = await served.chat(template="nope")
    assert reply.status_code == 400
    assert "chatml" in reply.json()["error"]["message"]
    assert reply.json()["error"]["param"] == "template"


TOOLS = [{"type": "function", "function": {"name": "get", "parameters": {"type": "object", "properties": {}}}}]
HISTORY: list[list[dict[str, Any]]] = [
    [{"role": "assistant", "content": None, "tool_calls": [
        {"id": None, "type": "function", "function": {"name": "get", "arguments": "{}"}}]},
     {"role": "tool", "tool_call_id": None, "content": "ok"}],
    [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "get", "arguments": {"a": 1}}}]},
     {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "20C"}]}],
    [{"role": "assistant", "content": "let me look", "reasoning_content": "hmm", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "get", "arguments": "not json"}}]},
     {"role": "tool", "tool_call_id": "c", "content": "ok"}],
    [{"role": "assistant", "content": None, "function_call": {"name": "get", "arguments": "{}"}},
     {"role": "function", "name": "get", "content": "ok"}],
    [{"role": "assistant", "content": None, "refusal": "no"}, {"role": "user", "content": "why"}],
]  # fmt: skip


@pytest.mark.parametrize("history", HISTORY)
@pytest.mark.parametrize("stream", [False, True])
async def test_histories_with_tools_are_taken(served: Served, history: list[dict[str, Any]], stream: bool) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}, *history], "tools": TOOLS, "stream": stream}
    assert (await served.client.post("/v1/chat/completions", json=body)).status_code == 200


TOOL_TEMPLATE = "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}{{ messages[0].content }}"


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"tools": TOOLS}, "[get]hi"),
        ({"tools": TOOLS, "tool_choice": "auto"}, "[get]hi"),
        ({"tools": TOOLS, "tool_choice": "none"}, "hi"),
        ({"functions": [TOOLS[0]["function"]], "function_call": "auto"}, "[get]hi"),
        ({"functions": [TOOLS[0]["function"]], "function_call": "none"}, "hi"),
    ],
)
async def test_tools_are_shown_to_the_template(fields: dict[str, Any], shown: str) -> None:
    async with serve(FakeEngine(info=with_info(chat_template=TOOL_TEMPLATE))) as served:
        assert await prompt_of(served, [{"role": "user", "content": "hi"}], **fields) == shown


class DraftingEngine(FakeEngine):
    """Has drafted 8 tokens of each choice, of which 6 were right; those that were predicted are `predicted`."""

    predicted = (5, 4)

    def _events(self, request: EngineRequest) -> list[EngineEvent]:
        *events, end = super()._events(request)
        assert isinstance(end, Finished)
        n_predicted, n_fulfilled = self.predicted if request.prediction else (0, 0)
        drafted = replace(end, n_drafted_tokens=8, n_accepted_tokens=6)
        return [*events, replace(drafted, n_predicted_tokens=n_predicted, n_fulfilled_tokens=n_fulfilled)]


async def test_a_prediction_reaches_the_engine_and_is_told_in_the_usage() -> None:
    engine = DraftingEngine()
    async with serve(engine) as served:
        for content in ("Hello there", [{"type": "text", "text": "Hello there"}]):
            reply = await served.chat(prediction={"type": "content", "content": content})
            details = reply.json()["usage"]["completion_tokens_details"]
            assert (details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]) == (4, 1)
            assert engine.requests[-1].prediction == "Hello there"
        engine.predicted = (0, 0)
        reply = await served.chat(prediction={"type": "content", "content": "Something else"})
        assert reply.json()["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] == 0
        details = (await served.chat(prediction=None)).json()["usage"]["completion_tokens_details"]
        assert set(details) == {"reasoning_tokens", "forced_tokens"}
        assert engine.requests[-1].prediction == ""


@pytest.mark.parametrize(
    ("prediction", "param"),
    [
        ("text", "prediction"),
        ({"content": "text"}, "prediction.type"),
        ({"type": "draft", "content": "text"}, "prediction.type"),
        ({"type": "content"}, "prediction.content"),
        ({"type": "content", "content": [{"type": "image_url"}]}, "prediction.content[0].type"),
    ],
)
async def test_a_prediction_of_another_shape(served: Served, prediction: object, param: str) -> None:
    reply = await served.chat(prediction=prediction)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
