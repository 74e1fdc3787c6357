"""The values of `enum` and `const`: which numbers they may hold, and what long lists cost."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any

import pytest

from converters import (
    CompileOptions,
    InvalidSource,
    JsonSchema,
    LimitExceeded,
    UnsupportedFeature,
    compile_constraint,
)
from converters.grammar.match import Matcher
from converters.limits import Limits

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (json.loads('{"const": 1e400}'), "/const"),
        ({"const": -INF}, "/const"),
        ({"const": NAN}, "/const"),
        ({"const": Decimal("Infinity")}, "/const"),
        ({"const": Decimal("sNaN")}, "/const"),
        ({"const": [1, {"a": [NAN]}]}, "/const"),
        ({"enum": [INF, 1]}, "/enum/0"),
        ({"enum": ["a", {"b": -INF}]}, "/enum/1"),
        ({"properties": {"a": {"items": {"enum": [1, (2, NAN)]}}}}, "/properties/a/items/enum/1"),
        ({"minimum": INF}, "/minimum"),
        ({"maximum": Decimal("sNaN")}, "/maximum"),
        ({"maxLength": NAN}, "/maxLength"),
    ],
    ids=str,
)
def test_numbers_are_finite(schema: Any, path: str) -> None:
    for lenient in (False, True):
        with pytest.raises(InvalidSource, match="finite number") as caught:
            compile_constraint(JsonSchema(schema), CompileOptions(lenient=lenient))
        assert caught.value.path == path


@pytest.mark.parametrize(
    ("keyword", "value", "path"),
    [
        ("const", Decimal("1e9999999"), "/const"),
        ("const", Decimal("-1e-9999999"), "/const"),
        ("const", Decimal("1e401"), "/const"),
        ("const", Decimal("1e-401"), "/const"),
        ("const", Decimal("1." + 5000 * "1"), "/const"),
        ("const", -(10**5000), "/const"),
        ("const", {"a": [10**401]}, "/const"),
        ("enum", [1, 10**5000], "/enum/1"),
        ("enum", [None, True, [Decimal("1e4300")]], "/enum/2"),
        ("minimum", 10**401, "/minimum"),
        ("maximum", Decimal("1e9999999"), "/maximum"),
        ("multipleOf", Decimal("1e-99999"), "/multipleOf"),
        ("minLength", 10**401, "/minLength"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_numbers_of_too_many_digits_are_refused_by_name(keyword: str, value: Any, path: str) -> None:
    started = time.thread_time()
    with pytest.raises(UnsupportedFeature, match=rf"^{keyword} with a number of more than 40[01] digits") as caught:
        compile_constraint(JsonSchema({"type": ["number", "string"], keyword: value}))
    assert caught.value.path == path
    assert time.thread_time() - started < 1
    compiled = compile_constraint(JsonSchema({"type": "number", keyword: value}), CompileOptions(lenient=True))
    assert [relaxation.path for relaxation in compiled.relaxed] == [f"/{keyword}"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (10**401 - 1, "9" * 401),
        (Decimal("1e400"), "1" + "0" * 400),
        (Decimal("-1e-400"), "-0." + "0" * 399 + "1"),
        (1e308, "1" + "0" * 308),
        (5e-324, "0." + "0" * 323 + "5"),
        (Decimal("0e-9999999"), "0"),
        (Decimal("0e9999999"), "0"),
    ],
    ids=lambda value: str(value)[:12] if isinstance(value, float) else "",
)
def test_numbers_of_many_digits_are_written_out(value: Any, text: str) -> None:
    accepts = Matcher.from_tables(compile_constraint(JsonSchema({"enum": [value, "other"]})).tables).accepts
    assert accepts(text)
    assert accepts('"other"')
    assert not accepts(text[:-1])


LISTS: dict[str, dict[str, Any]] = {
    "strings": {"enum": [f"w{i}" for i in range(30_000)]},
    "typed strings": {"type": "string", "enum": [f"w{i}" for i in range(30_000)]},
    "integers": {"enum": list(range(0, 45_000, 3))},
    "a property": {
        "type": "object",
        "properties": {"a": {"enum": [f"w{i}" for i in range(30_000)]}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "twice the same": {"allOf": [{"enum": [f"w{i}" for i in range(20_000)]}] * 2},
}


@pytest.mark.parametrize("name", LISTS)
def test_a_long_list_takes_time_by_its_length(name: str) -> None:
    started = time.thread_time()
    gbnf = compile_constraint(JsonSchema(LISTS[name])).gbnf
    assert time.thread_time() - started < 2
    assert len(gbnf) > 100_000


@pytest.mark.parametrize("schema", [{"const": [0] * 1_000_000}, {"enum": [[i] for i in range(300_000)]}], ids=["one", "many"])
def test_reading_values_ends_at_the_deadline(schema: Any) -> None:
    started = time.thread_time()
    with pytest.raises(LimitExceeded, match=r"longer than 0\.2 s"):
        compile_constraint(JsonSchema(schema), CompileOptions(limits=Limits(compile_s=0.2)))
    assert time.thread_time() - started < 0.4


TOO_LONG: dict[str, dict[str, Any]] = {
    "integers": {"enum": list(range(150_000))},
    "arrays": {"enum": [[i, i + 1] for i in range(60_000)]},
    "objects": {"enum": [{"a": i, "b": str(i)} for i in range(40_000)]},
    "one array": {"const": list(range(200_000))},
    "against many": {"enum": [f"w{i}" for i in range(20_000)], "anyOf": [{"const": f"w{i}"} for i in range(300)]},
    "one of many lists": {"oneOf": [{"enum": [f"{k}-{i}" for i in range(500)]} for k in range(40)]},
}


@pytest.mark.parametrize("name", TOO_LONG)
def test_a_list_too_long_is_given_up_in_time(name: str) -> None:
    started = time.thread_time()
    with pytest.raises(LimitExceeded, match="longer than 1 s"):
        compile_constraint(JsonSchema(TOO_LONG[name]), CompileOptions(limits=Limits(compile_s=1)))
    assert time.thread_time() - started < 1.1
