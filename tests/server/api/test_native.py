"""Health, models, tokens, templates, and the constraint's report."""

from __future__ import annotations

import re

import pytest

from server.settings import RequestLimits
from tests.server.fakes import FakeEngine, Served, serve


@pytest.mark.parametrize(
    ("state", "status", "word"), [("ready", 200, "ok"), ("loading", 503, "loading model"), ("restarting", 503, "restarting")]
)
async def test_health(state: str, status: int, word: str) -> None:
    async with serve(FakeEngine(state=state)) as served:  # type: ignore[arg-type]
        reply = await served.client.get("/health")
        assert (reply.status_code, reply.json()) == (status, {"status": word})


async def test_models(served: Served) -> None:
    body = (await served.client.get("/v1/models")).json()
    assert [entry["id"] for entry in body["data"]] == ["fake", "dir/other"]
    assert all(isinstance(entry["created"], int) and entry["object"] == "model" for entry in body["data"])
    assert (await served.client.get("/v1/models/dir/other")).json()["id"] == "dir/other"
    missing = await served.client.get("/v1/models/nope")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_tokens_there_and_back(served: Served) -> None:
    tokens = (await served.client.post("/tokenize", json={"content": "ab"})).json()["tokens"]
    assert tokens == [97, 98]
    pieces = (await served.client.post("/tokenize", json={"content": "ab", "with_pieces": True})).json()["tokens"]
    assert pieces == [{"id": 97, "piece": "a"}, {"id": 98, "piece": "b"}]
    assert (await served.client.post("/detokenize", json={"tokens": tokens})).json() == {"content": "ab"}
    for path, body, param in (
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": "a", "add_special": 1}, "add_special"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": [5000]}, "tokens[0]"),
        ("/detokenize", {"tokens": [1] * (RequestLimits().tokenize_bytes // 4 + 1)}, "tokens"),
    ):
        reply = await served.client.post(path, json=body)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("grammar", ['root ::= "a" <[1000]>', 'root ::= "a" <nope>'])
async def test_tokens_that_the_loaded_model_does_not_have(served: Served, grammar: str) -> None:
    reply = await served.client.post("/v1/constraints/compile", json={"grammar": grammar})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["param"], error["code"]) == ("grammar", "invalid_constraint")
    assert "vocabulary" in error["message"]
    known = await served.client.post("/v1/constraints/compile", json={"grammar": 'root ::= "a" <[999]>'})
    assert known.status_code == 200


async def test_without_a_loaded_model_a_report_asks_none() -> None:
    async with serve(FakeEngine(state="loading")) as served:
        reply = await served.client.post("/v1/constraints/compile", json={"grammar": 'root ::= "a" <[1000]>'})
        assert reply.status_code == 200
        assert served.engine.grammars == {}


async def test_apply_template(served: Served) -> None:
    reply = await served.client.post("/apply-template", json={"messages": [{"role": "user", "content": "hi"}]})
    assert reply.json() == {"prompt": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"}


async def test_the_report_of_a_constraint(served: Served) -> None:
    reply = await served.client.post("/v1/constraints/compile", json={"guided_regex": "[0-9]{3,5}"})
    assert reply.status_code == 200
    body = reply.json()
    assert (body["source"], body["kind"], body["cache"]) == ("guided_regex", "regex", "miss")
    assert "root ::=" in body["gbnf"]
    assert body["n_rules"] >= 1
    assert body["compile_ms"] >= 0
    assert body["relaxed"] == []
    assert len(body["shortest"]) == 3
    assert all(re.fullmatch("[0-9]{3,5}", text) for text in [body["shortest"], *body["random"]])
    again = await served.client.post("/v1/constraints/compile", json={"guided_regex": "[0-9]{3,5}"})
    assert again.json()["cache"] == "hit"
    for wrong in ({}, {"guided_regex": "("}, {"guided_regex": "a", "grammar": 'root ::= "a"'}):
        assert (await served.client.post("/v1/constraints/compile", json=wrong)).status_code == 400


async def test_models_are_loaded_and_unloaded(served: Served) -> None:
    for path in ("/models/load", "/models/unload"):
        reply = await served.client.post(path, json={"model": "dir/other"})
        assert (reply.status_code, reply.json()) == (200, {"success": True})
        assert (await served.client.post(path, json={"model": "nobody"})).status_code == 404
        for wrong in ({}, {"model": 5}):
            reply = await served.client.post(path, json=wrong)
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, "model")
    assert [name for name, _ in served.app.state.manager.touched] == ["dir/other", "dir/other"]
