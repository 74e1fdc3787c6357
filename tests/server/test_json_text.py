"""Strict JSON: what is taken, what is refused, and that nothing deep or large is slow."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server import json_text
from server.json_text import InvalidJson, dump_json, has_more_values, parse_json
from server.large_json import TooLarge, read_large_json
from tests.draws import draws


@pytest.fixture(params=["small", "large"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both readers, whatever the size: for the tests of `parse_json`, which takes one of them."""
    monkeypatch.setattr(json_text, "LARGE_BYTES", -1 if request.param == "large" else 1 << 40)


with_both_readers = pytest.mark.usefixtures("reader")


def parse(data: bytes, max_depth: int = 200) -> object:
    return parse_json(data, max_depth=max_depth)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@draws(20, 200)
def test_both_readers_say_the_same(n_draws: int) -> None:
    @settings(max_examples=n_draws, deadline=None)
    @given(JSON, st.sampled_from([None, 1]), st.booleans())
    def agree(value: object, indent: int | None, ascii: bool) -> None:
        text = json.dumps(value, indent=indent, ensure_ascii=ascii)
        assert read_large_json(text, 200, 1_000_000) == json.loads(text, parse_float=Decimal)

    agree()


@given(st.text(alphabet='{}[]:,"\\ \n0123456789.eE+-truefalsn', max_size=12))
def test_both_readers_refuse_the_same(text: str) -> None:
    def outcome(read: Callable[[], object]) -> str:
        try:
            return repr(read())
        except (ValueError, ArithmeticError):
            return "refused"

    large = outcome(lambda: read_large_json(text, 200, 1_000_000))
    assert large == outcome(lambda: json_text._DECODER.decode(text))


def test_the_number_of_values_is_bounded() -> None:
    text = '{"a": [1, 2, {"b": []}, "c"]}'
    assert read_large_json(text, 200, 7) == json.loads(text)
    with pytest.raises(TooLarge):
        read_large_json(text, 200, 6)
    value = json.loads(text)
    assert has_more_values(value, 8)
    assert not has_more_values(value, 9)  # two of them keys


@with_both_readers
@pytest.mark.parametrize(("data", "n"), [(b"[1,2,3]", 4), (b'{"a":1}', 2), (b"[[[]]]", 3), (b"[" + b"0," * 99 + b"0]", 101)])
def test_a_small_limit_of_values_holds_for_small_texts(data: bytes, n: int) -> None:
    assert parse_json(data, max_depth=9, max_values=n) == json.loads(data)
    with pytest.raises(InvalidJson, match="json_values"):
        parse_json(data, max_depth=9, max_values=n - 1)


@with_both_readers
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


@with_both_readers
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
        (b"[" * 150 + b'{"a":' * 100, "nested"),
    ],
)
def test_refuses(data: bytes, words: str) -> None:
    with pytest.raises(InvalidJson, match=words):
        parse(data)


@with_both_readers
def test_the_depth_is_inclusive() -> None:
    parse(b"[" * 200 + b"]" * 200)
    with pytest.raises(InvalidJson, match="200 levels deep"):
        parse(b"[" * 201 + b"]" * 201)
    parse(b'["' + b"[" * 300 + b'"]', max_depth=1)


@with_both_readers
@draws(100_000, 500_000)
@pytest.mark.parametrize(
    ("before", "unit", "after"), [(b"[", b"[],", b"[]]"), (b"", b"[[]", b""), (b"", b'"""', b""), (b"", b"\\\\\\", b"")]
)
def test_a_large_body_is_checked_quickly(before: bytes, unit: bytes, after: bytes, n_draws: int) -> None:
    data = before + unit * n_draws + after
    started = time.process_time()
    with contextlib.suppress(InvalidJson):
        parse(data, max_depth=20)
    assert time.process_time() - started < n_draws * 6e-6, "2 seconds a million bytes, and no more where there are more of them"


@with_both_readers
@pytest.mark.parametrize("text", ['{"b":1.10,"a":[1,true,null,"é\\n"]}', "0.1", "[]", '{"n":123456789012345678901234567890}'])
def test_dump_gives_the_same_text_again(text: str) -> None:
    assert dump_json(parse_json(text.encode(), max_depth=9)) == text
