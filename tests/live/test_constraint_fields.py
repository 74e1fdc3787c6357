"""Every constraint field holds a real model's output, 20 of 20 at temperature 1.5, streamed and not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from tests.live_server import LiveServer

pytestmark = pytest.mark.live

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
GRAMMAR = 'root ::= ("ja" | "nein") " " [0-9]{1,3}'
LARK = 'start: ("ja" | "nein") " " /[0-9]{1,3}/'


def fits_schema(text: str) -> bool:
    jsonschema.validate(json.loads(text), SCHEMA)
    return True


def matches(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text) is not None


SENTENCE = matches("(ja|nein) [0-9]{1,3}")
FIELDS: list[tuple[dict[str, Any], Callable[[str], bool]]] = [
    ({"guided_choice": ["yes", "no", "naïve 👍"]}, lambda text: text in ("yes", "no", "naïve 👍")),
    ({"guided_regex": DATE}, matches(DATE)),
    ({"guided_grammar": GRAMMAR}, SENTENCE),
    ({"guided_grammar": LARK}, SENTENCE),
    ({"guided_json": SCHEMA}, fits_schema),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}}, fits_schema),
    ({"json_schema": SCHEMA}, fits_schema),
    ({"grammar": GRAMMAR}, SENTENCE),
    ({"structured_outputs": {"regex": DATE}}, matches(DATE)),
    ({"structured_outputs": {"choice": ["alpha", "beta"]}}, lambda text: text in ("alpha", "beta")),
    ({"structured_outputs": {"json": SCHEMA}}, fits_schema),
    ({"constraint": DATE}, matches(DATE)),
    ({"constraint": LARK, "constraint_type": "lark"}, SENTENCE),
    ({"regex": DATE}, matches(DATE)),
    ({"ebnf": GRAMMAR}, SENTENCE),
    ({"format": SCHEMA}, fits_schema),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("fields", "fits"), FIELDS, ids=[str(fields)[:50] for fields, _ in FIELDS])
def test_20_of_20_conform(live_server: LiveServer, fields: dict[str, Any], fits: Callable[[str], bool], stream: bool) -> None:
    replies = [
        reply
        for seed in (1, 100)
        for reply in live_server.contents(
            prompt="Tell me about someone.", stream=stream, n=10, temperature=1.5, seed=seed, **fields
        )
    ]
    assert len(replies) == 20
    assert {reason for _, reason in replies} == {"stop"}
    assert [text for text, _ in replies if not fits(text)] == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_json_object_is_an_object_whatever_max_tokens_is(live_server: LiveServer, stream: bool) -> None:
    reasons = set()
    for max_tokens in (2, 5, 17, 60):
        replies = live_server.contents(
            prompt="Describe a cat in JSON.", stream=stream, n=6, temperature=1.5, seed=5, max_tokens=max_tokens,
            response_format={"type": "json_object"},
        )  # fmt: skip
        for text, reason in replies:
            assert isinstance(json.loads(text), dict)
            reasons.add(reason)
    assert "length" in reasons


def test_what_a_reply_without_room_is_called(live_server: LiveServer) -> None:
    fields: dict[str, Any] = {"prompt": "Tell me about someone.", "guided_json": SCHEMA, "temperature": 1.5, "seed": 2}
    refused = live_server.client.post(
        "/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}], "guided_json": SCHEMA, "max_tokens": 1}
    )
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["param"], error["code"]) == ("max_tokens", "max_tokens_too_small")
    least = int(re.findall(r"needs (\d+) tokens", error["message"])[0])
    for on_length, reasons in (("complete", {"length"}), ("stop", {"stop"})):
        replies = live_server.contents(**fields, stream=False, n=2, max_tokens=least, on_length=on_length)
        assert all(fits_schema(text) for text, _ in replies)
        assert {reason for _, reason in replies} <= reasons | {"stop"}
    cut = live_server.contents(**fields, stream=False, n=2, max_tokens=least - 1, on_length="cut")
    assert {reason for _, reason in cut} == {"length"}


def test_streamed_and_whole_are_the_same_text(live_server: LiveServer) -> None:
    fields: dict[str, Any] = {"n": 2, "temperature": 1.5, "seed": 7, "guided_json": SCHEMA}
    assert live_server.contents(stream=True, **fields) == live_server.contents(stream=False, **fields)


def test_completions_carry_the_constraint_in_every_prompt(live_server: LiveServer) -> None:
    reply = live_server.client.post(
        "/v1/completions", json={"prompt": ["a", "b", [5, 6]], "n": 2, "guided_regex": "[0-9]{1,8}", "temperature": 1.5}
    )
    choices = reply.json()["choices"]
    assert [choice["index"] for choice in choices] == list(range(6))
    assert all(re.fullmatch("[0-9]{1,8}", choice["text"]) for choice in choices)
