"""Strict JSON: what is taken, what is refused, and that nothing deep or large is slow."""

from __future__ import annotations

import contextlib
import time
from decimal import Decimal

import pytest

from server.json_text import InvalidJson, dump_json, parse_json


def parse(data: bytes, max_depth: int = 200) -> object:
    return parse_json(data, max_depth=max_depth)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": [1, 2.50, "x\\"[{", null]}', {"a": [1, Decimal("2.50"), 'x"[{', None]}),
        ("\ufeff1".encode(), 1),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'["\\\\", "\\\\\\"[", "]"]', ["\\", '\\"[', "]"]),
    ],
)
def test_takes(data: bytes, value: object) -> None:
    assert parse(data) == value


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"NaN", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b"[-Infinity]", "Infinity"),
        (b'{"a":1,"a":1}', "'a' is repeated"),
        (b'"\xff"', "not valid UTF-8"),
        (b'"\\ud800"', "surrogate"),
        (b'{"\\udc00": 1}', "surrogate"),
        (b"[1," + b"9" * 5000 + b"]", "not valid JSON"),
        (b"1e99999999999999999999999", "not valid JSON"),
        (b"[" * 100_000, "nested"),
        (b"[" * 100_000 + b"]" * 100_000, "nested"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested"),
        (b"[" * 150 + b"{" * 100, "nested"),
    ],
)
def test_refuses(data: bytes, words: str) -> None:
    with pytest.raises(InvalidJson, match=words):
        parse(data)


def test_the_depth_is_inclusive() -> None:
    parse(b"[" * 200 + b"]" * 200)
    with pytest.raises(InvalidJson, match="200 levels deep"):
        parse(b"[" * 201 + b"]" * 201)
    parse(b'["' + b"[" * 300 + b'"]', max_depth=1)


@pytest.mark.parametrize("data", [b"[" + b"[]," * 500_000 + b"[]]", b"[[]" * 500_000, b'"' * 1_500_000, b"\\" * 1_500_000])
def test_a_large_body_is_checked_quickly(data: bytes) -> None:
    started = time.process_time()
    with contextlib.suppress(InvalidJson):
        parse(data, max_depth=20)
    assert time.process_time() - started < 3


@pytest.mark.parametrize("text", ['{"b":1.10,"a":[1,true,null,"é\\n"]}', "0.1", "[]", '{"n":123456789012345678901234567890}'])
def test_dump_gives_the_same_text_again(text: str) -> None:
    assert dump_json(parse_json(text.encode(), max_depth=9)) == text
