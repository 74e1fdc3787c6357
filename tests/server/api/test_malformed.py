"""Malformed requests: each is a 4xx in OpenAI's shape that names the field, and the server goes on answering."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.fakes import Served

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": HI, **fields}


def raw(text: str) -> bytes:
    return b'{"messages":[{"role":"user","content":"hi"}],' + text.encode() + b"}"


DEEP_PARENS = "root ::= " + "(" * 5000 + '"a"' + ")" * 5000
BODIES: list[tuple[bytes, str | None]] = [
    (b"", None),
    (b"{", None),
    (b"[]", "the request body"),
    (b"null", "the request body"),
    (b'"text"', "the request body"),
    (b"\xff\xfe", None),
    (b"[" * 100_000, None),
    (b"[" * 100_000 + b"]" * 100_000, None),
    (raw('"temperature":NaN'), None),
    (raw('"temperature":Infinity'), None),
    (raw('"temperature":1e999'), "temperature"),
    (raw('"n":1,"n":2'), None),
    (raw('"user":"\\ud800"'), None),
    (raw('"max_tokens":' + "9" * 5000), None),
]
FIELDS: list[tuple[dict[str, Any], str]] = [
    ({}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [5]}, "messages[0]"),
    ({"messages": [{"content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "wizard", "content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
     "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [*HI, {"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}]},
     "messages[1].tool_calls[0].function.name"),
    (chat(model=5), "model"),
    (chat(model="nope"), "model"),
    (chat(temperature="hot"), "temperature"),
    (chat(temperature=-1), "temperature"),
    (chat(temperature=True), "temperature"),
    (chat(top_p=1.5), "top_p"),
    (chat(n=0), "n"),
    (chat(n=1.5), "n"),
    (chat(n=True), "n"),
    (chat(n=1000), "n"),
    (chat(max_tokens=0), "max_tokens"),
    (chat(max_tokens=-1), "max_tokens"),
    (chat(max_tokens="9"), "max_tokens"),
    (chat(stream="yes"), "stream"),
    (chat(stream=False, stream_options={"include_usage": True}), "stream_options"),
    (chat(stream=True, stream_options=[]), "stream_options"),
    (chat(stream=True, stream_options={"include_usage": 1}), "stream_options.include_usage"),
    (chat(stop=5), "stop"),
    (chat(stop=[""]), "stop"),
    (chat(stop=["x"] * 65), "stop"),
    (chat(logit_bias=[1]), "logit_bias"),
    (chat(logit_bias={"x": 1}), "logit_bias"),
    (chat(logit_bias={"5": 200}), "logit_bias"),
    (chat(logit_bias={"5000": 1}), "logit_bias"),
    (chat(logprobs=5), "logprobs"),
    (chat(top_logprobs=5), "top_logprobs"),
    (chat(logprobs=True, top_logprobs=21), "top_logprobs"),
    (chat(seed="x"), "seed"),
    (chat(mirostat=3), "mirostat"),
    (chat(dry_sequence_breakers=["x"] * 33), "dry_sequence_breakers"),
    (chat(dry_sequence_breakers=["x" * 41]), "dry_sequence_breakers"),
    (chat(on_length="halt"), "on_length"),
    (chat(repeat_penalty=1.1, repetition_penalty=1.2), "repetition_penalty"),
    (chat(add_generation_prompt=True, continue_final_message=True), "add_generation_prompt"),
    (chat(chat_template_kwargs=[]), "chat_template_kwargs"),
    (chat(chat_template_kwargs={"messages": []}), "chat_template_kwargs.messages"),
    (chat(chat_template="{{ x }}"), "chat_template"),
    (chat(modalities=["audio"]), "modalities"),
    (chat(extra_body=5), "extra_body"),
    (chat(extra_body={"top_k": "x"}), "extra_body.top_k"),
    (chat(guided_regex="("), "guided_regex"),
    (chat(guided_regex="a{3,2}"), "guided_regex"),
    (chat(guided_regex=r"(a)\1"), "guided_regex"),
    (chat(guided_regex="(a|b)*a(a|b){17}"), "guided_regex"),
    (chat(guided_regex="a" * 4097), "guided_regex"),
    (chat(grammar="root ::= ("), "grammar"),
    (chat(grammar="root ::= missing"), "grammar"),
    (chat(grammar='thing ::= "a"'), "grammar"),
    (chat(grammar='a ::= "x" root{0,0}'), "grammar"),
    (chat(grammar='root ::= "a"{3,2}'), "grammar"),
    (chat(grammar='root ::= ("q"?) root "a" | root'), "grammar"),
    (chat(grammar=DEEP_PARENS), "grammar"),
    (chat(grammar='root ::= "a\x00"'), "grammar"),
    (chat(grammar="root ::= [z-a]"), "grammar"),
    (chat(grammar='root ::= "\\q"'), "grammar"),
    (chat(guided_grammar="start: ("), "guided_grammar"),
    (chat(guided_json={"type": "strng"}), "guided_json.type"),
    (chat(guided_jsn={}), "guided_jsn"),
    (chat(structured_outputs={}), "structured_outputs"),
    (chat(response_format={"type": "xml"}), "response_format.type"),
    (chat(grammar='root ::= "a"', json_schema={}), "grammar"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "words"), BODIES, ids=range(len(BODIES)))
async def test_bodies_that_are_no_json_object(served: Served, body: bytes, words: str | None) -> None:
    reply = await served.client.post(CHAT, content=body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (words or "request body") in error["message"]
    assert (await served.chat()).status_code == 200


@pytest.mark.parametrize(("body", "param"), FIELDS, ids=[str(entry[0])[:60] for entry in FIELDS])
async def test_fields_that_are_wrong(served: Served, body: dict[str, Any], param: str) -> None:
    for stream in (False, True):
        reply = await served.client.post(CHAT, json={"stream": stream, **body} if body else body)
        assert 400 <= reply.status_code < 500, reply.text
        error = reply.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["param"].startswith(param)
        assert param.split("[")[0].split(".")[-1] in error["message"]
    assert (await served.chat()).status_code == 200
