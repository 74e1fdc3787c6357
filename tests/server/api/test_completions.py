"""/v1/completions over a scripted engine: prompts of all kinds, echo, legacy logprobs, best_of."""

from __future__ import annotations

from typing import Any

import pytest

from server.engine.messages import EngineEvent, EngineRequest, TextChunk
from tests.server.api.sse import events
from tests.server.fakes import FakeEngine, Served, logprob, serve, with_info


async def test_a_whole_answer(served: Served) -> None:
    body = (await served.complete()).json()
    assert body["object"] == "text_completion"
    assert body["choices"] == [{"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop"}]
    assert served.engine.requests[0].max_tokens is None


@pytest.mark.parametrize(
    ("prompt", "sent"),
    [
        ("hi", ["hi"]),
        (["hi"], ["hi"]),
        ([1, 2], [(1, 2)]),
        ([[1, 2], [3]], [(1, 2), (3,)]),
        (["a", "bc"], [(97,), (98, 99)]),
        ("", ["<s>"]),
    ],
)
async def test_prompts(served: Served, prompt: Any, sent: list[Any]) -> None:
    body = (await served.complete(prompt=prompt, n=2)).json()
    assert [request.prompt for request in served.engine.requests] == sent
    assert [choice["index"] for choice in body["choices"]] == list(range(2 * len(sent)))


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        (None, "prompt"), ([], "prompt"), (5, "prompt"), ([1, "a"], "prompt[1]"), (["a", 1], "prompt[1]"), ([[]], "prompt[0]"),
        ([True], "prompt[0]"), ([-1], "prompt[0]"), ([1000], "prompt"), ([["a"]], "prompt[0][0]"),
        (["a", "b" * 300], "prompt[1]"),
    ],
)  # fmt: skip
async def test_wrong_prompts_are_named(served: Served, prompt: Any, param: str) -> None:
    reply = await served.complete(prompt=prompt)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


async def test_echo_and_logprobs(served: Served) -> None:
    choice = (await served.complete(prompt="ab", echo=True, logprobs=1)).json()["choices"][0]
    assert choice["text"] == "abHello"
    assert choice["logprobs"]["tokens"] == ["a", "b", "Hel", "lo"]
    assert choice["logprobs"]["token_logprobs"] == [None, -2.0, -0.5, -0.5]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 5]
    assert choice["logprobs"]["top_logprobs"][0] is None
    assert choice["logprobs"]["top_logprobs"][2]["Hel"] == -0.5


async def test_scoring_a_prompt_alone(served: Served) -> None:
    choice = (await served.complete(prompt="ab", echo=True, logprobs=0, max_tokens=0)).json()["choices"][0]
    assert choice["text"] == "ab"
    assert choice["logprobs"]["token_logprobs"] == [None, -2.0]
    assert (await served.complete(max_tokens=0)).status_code == 400


async def test_echo_of_token_ids(served: Served) -> None:
    assert (await served.complete(prompt=[97, 98], echo=True)).json()["choices"][0]["text"] == "abHello"


async def test_a_stream_joins_to_the_whole(served: Served) -> None:
    fields: dict[str, Any] = {"prompt": ["ab", "cd"], "echo": True, "logprobs": 1, "n": 2}
    whole = (await served.complete(**fields)).json()["choices"]
    chunks = events((await served.complete(**fields, stream=True)).text)
    assert chunks.pop() == "[DONE]"
    for choice in whole:
        own = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == choice["index"]]
        assert "".join(part["text"] for part in own) == choice["text"]
        for key in ("tokens", "token_logprobs", "text_offset"):
            joined = [value for part in own if part["logprobs"] for value in part["logprobs"][key]]
            assert joined == choice["logprobs"][key]
        assert own[-1]["finish_reason"] == "stop"


async def test_every_prompt_carries_the_constraint_and_slots_bound_the_batch() -> None:
    async with serve(FakeEngine(info=with_info(n_slots=3))) as served:
        body = (await served.complete(prompt=list("abcdefgh"), guided_regex="[0-9]{1,8}")).json()
        assert len(body["choices"]) == 8
        assert {request.grammar_key for request in served.engine.requests} == set(served.engine.grammars)
        assert served.engine.n_most_running == 3
        assert body["usage"]["prompt_tokens"] == 8


class _Ranked(FakeEngine):
    """Choice k has the mean log-probability -k, but the last is the best."""

    def _events(self, request: EngineRequest) -> list[EngineEvent]:
        ranks = {request.n - 1: 0.0}
        return [
            TextChunk(0, e.index, f"{e.index}", 1, (logprob("x", ranks.get(e.index, -1.0 - e.index)),))
            if isinstance(e, TextChunk)
            else e
            for e in super()._events(request)
        ]


async def test_best_of() -> None:
    async with serve(_Ranked(pieces=("x",))) as served:
        body = (await served.complete(best_of=4, n=2)).json()
        assert [choice["text"] for choice in body["choices"]] == ["3", "0"]
        assert [choice["index"] for choice in body["choices"]] == [0, 1]
        assert body["choices"][0]["logprobs"] is None
        assert body["usage"]["completion_tokens"] == 4
        assert served.engine.requests[0].n == 4
        assert (await served.complete(best_of=1, n=2)).json()["error"]["param"] == "best_of"
        assert (await served.complete(best_of=2, stream=True)).json()["error"]["param"] == "best_of"


async def test_suffix_is_refused_by_name(served: Served) -> None:
    assert (await served.complete(suffix="x")).json()["error"]["param"] == "suffix"
    assert (await served.complete(suffix="")).status_code == 200


async def test_a_batch_that_cannot_fit_is_refused_by_one_question() -> None:
    """2,000 prompts of 7 KB: nothing is tokenized that is surely too long, and what comes after it isn't looked at."""
    engine = FakeEngine()
    asked: list[int] = []
    original = engine.tokenize

    async def tokenize(text: str, *, add_special: bool = False, parse_special: bool = True) -> tuple[int, ...]:
        asked.append(len(text))
        return await original(text, add_special=add_special, parse_special=parse_special)

    engine.tokenize = tokenize  # type: ignore[method-assign]
    async with serve(engine) as served:
        error = (await served.complete(prompt=["short", *["a" * 7000] * 2000])).json()["error"]
        assert (error["param"], error["code"]) == ("prompt[1]", "context_length_exceeded")
        assert "7000 tokens or more" in error["message"]
        assert asked == [5]
        error = (await served.complete(prompt=["a", [1] * 250, "b"], max_tokens=10)).json()["error"]
        assert error["param"] == "prompt[1]"
        mixed = (await served.complete(prompt=["", [1, 2], "b"])).json()
        assert [choice["index"] for choice in mixed["choices"]] == [0, 1, 2]
        assert [len(request.prompt) for request in engine.requests] == [3, 2, 1]


async def test_an_error_in_one_prompt_ends_the_batch_and_cancels_the_rest() -> None:
    def fail(request: EngineRequest, event: EngineEvent) -> None:
        if request.prompt == (98,) and isinstance(event, TextChunk):
            raise RuntimeError

    async with serve(FakeEngine(before=fail)) as served:
        assert (await served.complete(prompt=["a", "b", "c"])).status_code == 500
        assert served.engine.n_running == 0
