# ruff: noqa: E501 (a row is one line)
"""What schemas accept and reject: rows of (schema, accepted texts, rejected texts), judged by the reference matcher."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from converters import AnyJson, CompileOptions, JsonSchema, compile_constraint
from converters.grammar.match import Matcher
from tests.conformance.schema_judge import Judge

A = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CLOSED = {**A, "additionalProperties": False}

ROWS: dict[str, tuple[Any, list[str], list[str]]] = {
    "anything": (True, ["1", '"x"', "null", '[1,{"a":[]}]', '{"a":1,"b":{"c":2}}'], ["", "1 2", "{a:1}", "tru"]),
    "type list": ({"type": ["string", "null"]}, ['"x"', "null"], ["1", "[]"]),
    "integer": ({"type": "integer"}, ["0", "-7", "1.0", "1e3"], ["1.5", "01", "+1", "1e-3", "1."]),
    "number": ({"type": "number"}, ["0", "-0.5", "1E+100", "1.0e-2"], [".5", "1.", "NaN", "--1"]),
    "huge range": ({"type": "integer", "minimum": -(2**70), "maximum": 2**70}, [str(2**70), str(-(2**70))], [str(2**70 + 1)]),
    "decimal range": ({"minimum": 0.1, "exclusiveMaximum": 0.25}, ["0.1", "0.2499", '"x"'], ["0.25", "0.09", "0", "1"]),
    "multipleOf": ({"type": "number", "multipleOf": 0.01}, ["0.07", "-1", "1.10"], ["0.001", "1.005"]),
    "no endless zeros": ({"type": "integer", "minimum": 0, "maximum": 100}, ["100", "7.0"], ["7.00", "100.00", "0." + "0" * 50]),
    "no endless zeros of a multiple": ({"type": "number", "multipleOf": 0.25}, ["0.50", "1.0"], ["0.500", "1.000"]),
    "multiple in range": ({"type": "integer", "multipleOf": 7, "minimum": 10, "maximum": 30}, ["14", "28"], ["7", "15", "35"]),
    "length": ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"é\U0001f600"', r'"\n\u0041"'], ['"a"', '"abcd"']),
    "long length": ({"type": "string", "maxLength": 2500}, ['"' + "x" * 2500 + '"'], ['"' + "x" * 2501 + '"']),
    "pattern searches": ({"type": "string", "pattern": "[0-9]"}, ['"a7"', r'"\u0037"'], ['"a"', '""']),
    "pattern can't end the string": ({"pattern": "^.*$", "type": "string"}, [r'"say \"hi\""'], ['"x","y":1', '"a\nb"']),
    "pattern and length": ({"type": "string", "pattern": "^[a-z]*$", "minLength": 2, "maxLength": 4}, ['"ab"'], ['"a"', '"abcde"']),
    "enum": ({"enum": ["é", 1, None, [1, {"a": 2}]]}, ['"é"', r'"\u00e9"', "1", "1.0", "null", '[1, {"a":2}]'], ['"\\u00E9"', "2"]),
    "enum keeps the valid": ({"type": "string", "enum": ["a", 1], "minLength": 1}, ['"a"'], ["1"]),
    "const": ({"const": {"a": [1, "x"]}}, ['{"a": [1, "x"]}'], ['{"a": [1]}', '{"a": [1, "x"], "b": 1}']),
    "required": (A, ['{"a":1}', '{"a":1,"b":2}'], ["{}", '{"a":"x"}', '{"a":1,"a":2}']),
    "closed": (CLOSED, ['{"a":1}'], ['{"a":1,"b":2}', "{}"]),
    "undeclared required": (
        {"type": "object", "properties": {"x": {}}, "required": ["b", "c"]},
        ['{"x":0,"b":1,"c":2}', '{"c":1,"y":0,"b":2}'],
        ['{"b":1}', '{"x":1,"c":1}'],
    ),
    "other keys differ": ({"type": "object", "properties": {"ab": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
                          ['{"ab":1,"a":"x","abc":"y"}'], ['{"ab":"x"}', '{"a":1}']),
    "patternProperties": ({"type": "object", "patternProperties": {"^n": {"type": "number"}}, "additionalProperties": False},
                          ['{"n":1,"no":2}', "{}"], ['{"x":1}', '{"n":"x"}']),
    "propertyNames": ({"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}}, ['{"ab":1}', "{}"], ['{"A":1}']),
    "minProperties": ({"type": "object", "minProperties": 1}, ['{"a":1}'], ["{}"]),
    "maxProperties": ({"type": "object", "maxProperties": 1}, ["{}", '{"a":1}'], ['{"a":1,"b":2}']),
    "counted declared": (
        {"type": "object", "properties": {k: {} for k in "abc"}, "additionalProperties": False, "minProperties": 2, "maxProperties": 2},
        ['{"a":1,"c":2}'],
        ['{"a":1}', '{"a":1,"b":1,"c":1}'],
    ),
    "dependentRequired": (
        {"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}},
        ["{}", '{"b":1}', '{"a":1,"b":1}'],
        ['{"a":1}'],
    ),
    "dependentSchemas": (
        {"type": "object", "properties": {"a": {}, "b": {}}, "dependentSchemas": {"a": {"properties": {"b": {"type": "null"}}}}},
        ['{"b":1}', '{"a":1,"b":null}'],
        ['{"a":1,"b":1}'],
    ),
    "if then else": (
        {"properties": {"k": {"enum": [1, 2]}, "v": {}}, "required": ["k"], "type": "object",
         "if": {"properties": {"k": {"const": 1}}}, "then": {"required": ["v"]}, "else": {"properties": {"v": False}}},
        ['{"k":1,"v":0}', '{"k":2}'], ['{"k":1}', '{"k":2,"v":0}'],
    ),
    "anyOf required": (
        {"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": False, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ['{"a":1}', '{"b":1}', '{"a":1,"b":1}'],
        ["{}"],
    ),
    "oneOf overlapping": ({"oneOf": [{"type": "integer"}, {"minimum": 2}], "type": "number"}, ["1", "2.5"], ["3", "1.5"]),
    "oneOf of everything and an enum": ({"oneOf": [True, {"enum": ["a", 1, None, [1]]}]}, ["2", '"b"', "[]", "[1,1]", "{}"], ["null", '"a"', "[1]", "1.0"]),
    "oneOf of enums": ({"oneOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}, {"type": "null"}]}, ['"a"', '"c"', "null"], ['"b"']),
    "oneOf of an enum and a type": ({"oneOf": [{"enum": [1, "x"]}, {"type": "integer"}]}, ['"x"', "2"], ["1", "1.0"]),
    "oneOf required": (
        {"type": "object", "properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ['{"a":1}', '{"b":1,"z":0}'],
        ["{}", '{"a":1,"b":1}'],
    ),
    "not type": ({"not": {"type": ["string", "number"]}}, ["null", "[]", "{}"], ["1", '"x"']),
    "not const": ({"type": "string", "not": {"const": "no"}}, ['"yes"', '"noo"'], ['"no"', r'"\u006eo"']),
    "not object": ({"type": "object", "not": {"properties": {"a": {"type": "string"}}, "required": ["a"]}}, ["{}", '{"a":1}'], ['{"a":"x"}']),
    "allOf closed": ({"allOf": [A, {"properties": {"b": {"type": "null"}}, "required": ["b"]}]}, ['{"a":1,"b":null}'], ['{"a":1}']),
    "recursion": ({"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}, ['{"next":{"next":{}}}'], ['{"next":1}']),
    "recursion through allOf": (
        {"$defs": {"n": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}},
         "allOf": [{"$ref": "#/$defs/n"}, {"required": ["kids"]}]},
        ['{"kids":[{"kids":[{}]}]}'], ["{}", '{"kids":[1]}'],
    ),
    "prefixItems": ({"prefixItems": [{"type": "integer"}, {"type": "null"}], "items": False, "minItems": 1, "type": "array"}, ["[1]", "[1,null]"], ["[]", "[null]", "[1,null,1]"]),
    "older items": ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"type": "integer"}], "additionalItems": {"type": "null"}}, ["[]", "[1,null,null]"], ["[1,1]"]),
    "contains": ({"type": "array", "items": {"type": ["integer", "null"]}, "contains": {"type": "null"}, "maxContains": 1}, ["[1,null,2]"], ["[1]", "[null,null]", "[]"]),
    "uniqueItems": ({"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True}, ["[]", '["b","a"]'], ['["a","a"]']),
    "unevaluatedProperties": (
        {"type": "object", "properties": {"a": {}}, "anyOf": [{"properties": {"b": {"type": "null"}}, "required": ["b"]}, True], "unevaluatedProperties": False},
        ['{"a":1}', '{"a":1,"b":null}'],
        ['{"c":1}', '{"a":1,"b":1}'],
    ),
    "unevaluatedItems": ({"type": "array", "prefixItems": [{}], "unevaluatedItems": {"type": "null"}}, ["[1,null]"], ["[1,2]"]),
    "anchors and ids": (
        {"$id": "http://x/root", "$defs": {"a": {"$id": "a", "$defs": {"b": {"$anchor": "here", "type": "null"}}}}, "$ref": "a#here"},
        ["null"],
        ["1"],
    ),
    "draft 4 bounds": ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "number", "minimum": 1, "exclusiveMinimum": True}, ["1.1"], ["1"]),
    "draft 4 integers": ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}, ["1"], ["1.0"]),
    "siblings of $ref in draft 7": (
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"type": ["string", "null"]}}, "properties": {"x": {"$ref": "#/definitions/a", "type": "null"}}, "type": "object"},
        ['{"x":"y"}'],
        ['{"x":1}'],
    ),
    "unknown words are annotations": ({"type": "null", "instruct": {"type": "object"}, "const0": 1}, ["null"], ["{}"]),
}  # fmt: skip


def accepts(schema: Any, **options: Any) -> Matcher:
    """The matcher of a schema."""
    return Matcher.from_tables(compile_constraint(JsonSchema(schema), CompileOptions(**options)).tables)


@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str) -> None:
    schema, accepted, rejected = ROWS[name]
    matcher = accepts(schema)
    assert [text for text in accepted if not matcher.accepts(text)] == []
    assert [text for text in rejected if matcher.accepts(text)] == []


@pytest.mark.parametrize("name", ROWS)
def test_rows_agree_with_the_judge(name: str) -> None:
    schema, accepted, _ = ROWS[name]
    judge = Judge(schema)
    assert [error for text in accepted for error in judge.errors(text)] == []


def test_keys_come_in_declared_order_through_ref_and_allof() -> None:
    matcher = accepts({
        "$defs": {"base": {"properties": {"x": {}, "y": {}}}},
        "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"z": {}}}],
        "type": "object",
    })  # fmt: skip
    assert matcher.accepts('{"x":1,"y":2,"z":3,"w":4}')
    assert not matcher.accepts('{"y":2,"x":1}')
    assert not matcher.accepts('{"w":4,"x":1}')


@pytest.mark.parametrize(
    ("whitespace", "accepted", "rejected"),
    [
        ("default", ['{"a":1,"b":[1, 2]}', '{"a": 1, "b": []}'], ['{ "a":1}', '{"a":  1}', '{"a" :1}']),
        ("compact", ['{"a":1,"b":[1,2]}'], ['{"a": 1}']),
        ("spaced", ['{"a": 1, "b": [1, 2]}'], ['{"a":1}']),
        ("flexible", ['{\n  "a": 1,\n  "b": [ 1, 2 ]\n}', '{"a":1}'], ['{' + "\n" * 50 + '"a":1}', '{"a":1}\n']),
    ],
)  # fmt: skip
def test_whitespace(whitespace: str, accepted: list[str], rejected: list[str]) -> None:
    matcher = accepts({"type": "object"}, whitespace=whitespace)
    assert [text for text in accepted if not matcher.accepts(text)] == []
    assert [text for text in rejected if matcher.accepts(text)] == []


def test_whitespace_pattern() -> None:
    matcher = accepts({"type": "object"}, whitespace_pattern="[ \\n]?")
    assert matcher.accepts('{ "a" : 1\n}')
    assert not matcher.accepts('{  "a":1}')


def test_closed_objects() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": True}, "b": {"type": "object"}}}
    matcher = accepts(schema, closed_objects=True)
    assert matcher.accepts('{"a":{"x":1},"b":{}}')
    assert not matcher.accepts('{"c":1}')
    assert not matcher.accepts('{"b":{"x":1}}')


_INTS, _TEXTS = {"type": "integer"}, {"type": "string"}

CLOSED_ROWS: dict[str, tuple[Any, list[str], list[str]]] = {
    "keys of a pattern": ({"type": "object", "patternProperties": {"^x": _INTS}}, ["{}", '{"x":1}', '{"x":1,"xy":2}'], ['{"y":1}', '{"x":"a"}']),
    "asked for": ({"type": "object", "patternProperties": {"^x": _INTS}, "minProperties": 1}, ['{"x":1}', '{"x":1,"xy":2}'], ["{}", '{"y":1}']),
    "several patterns": (
        {"type": "object", "patternProperties": {"^x": _INTS, "^y": _TEXTS}},
        ['{"x":1,"y":"a"}', '{"y":"a","x":1}'], ['{"z":1}', '{"x":"a"}', '{"y":1}'],
    ),
    "patterns that overlap": (
        {"type": "object", "patternProperties": {"^x": {"minimum": 2, "type": "integer"}, "y$": {"maximum": 4}}},
        ['{"xy":3,"x":9,"y":-1,"ay":"b"}'], ['{"xy":1}', '{"xy":5}', '{"x":1}', '{"y":5}', '{"z":3}'],
    ),
    "beside declared keys": (
        {"type": "object", "properties": {"a": _TEXTS, "x1": {"minimum": 3}}, "required": ["a"], "patternProperties": {"^x": _INTS}},
        ['{"a":"b"}', '{"a":"b","x1":3,"x2":0}'], ['{"x1":3}', '{"a":"b","x1":2}', '{"a":"b","x1":"c"}', '{"a":"b","b":1}'],
    ),
    "required without a declaration": (
        {"type": "object", "required": ["x1", "k"], "patternProperties": {"^x": _INTS}},
        ['{"x1":1,"k":"v"}', '{"k":null,"x":0,"x1":1}'], ['{"x1":1}', '{"x1":"a","k":1}', '{"x1":1,"k":1,"l":1}'],
    ),
    "nested": (
        {"type": "object", "properties": {"a": {"type": "object", "patternProperties": {"^x": {"type": "object", "patternProperties": {"^y": _INTS}}}}}},
        ['{"a":{"x":{"y":1},"x2":{}}}'], ['{"a":{"y":{}}}', '{"a":{"x":{"x":1}}}', '{"x":{}}'],
    ),
    "in an array": ({"type": "array", "items": {"type": "object", "patternProperties": {"^x": _INTS}}}, ['[{"x":1},{}]'], ['[{"y":1}]']),
    "one node declares, another has the pattern": (
        {"type": "object", "allOf": [{"properties": {"a": _INTS}}, {"patternProperties": {"^x": _INTS}}]},
        ['{"a":1,"x":2}', '{"x":2}'], ['{"b":1}', '{"a":"b"}'],
    ),
    "a pattern with no values": ({"type": "object", "patternProperties": {"^x": False, "^y": True}}, ["{}", '{"y":[1]}'], ['{"x":1}', '{"z":1}']),
    "a pattern and a names' rule": (
        {"type": "object", "patternProperties": {"^x": _INTS}, "propertyNames": {"maxLength": 2}},
        ['{"x":1,"xy":1}'], ['{"xyz":1}', '{"y":1}'],
    ),
    "a names' rule alone": ({"type": "object", "propertyNames": {"pattern": "^x"}}, ["{}"], ['{"x":1}']),
    "some key of the pattern": (
        {"type": "object", "patternProperties": {"^x": _INTS}, "not": {"patternProperties": {"^x": {"minimum": 5}}}},
        ['{"x":4}', '{"x":9,"x2":4}'], ["{}", '{"x":5}', '{"y":4}'],
    ),
    "open by word": ({"type": "object", "patternProperties": {"^x": _INTS}, "additionalProperties": _TEXTS}, ['{"x":1,"y":"a"}'], ['{"y":1}']),
    "closed by word": ({"type": "object", "patternProperties": {"^x": _INTS}, "additionalProperties": False}, ['{"x":1}'], ['{"y":1}']),
    "open by a schema": ({"type": "object", "patternProperties": {"^x": _INTS}, "additionalProperties": True}, ['{"y":1}'], ['{"x":"a"}']),
}  # fmt: skip


def check_row(row: tuple[Any, list[str], list[str]], **options: bool) -> None:
    """A schema with texts that it accepts, which must be valid too, and texts that it rejects."""
    schema, accepted, rejected = row
    matcher, judge = accepts(schema, **options), Judge(schema)
    assert [text for text in accepted if not matcher.accepts(text)] == []
    assert [text for text in rejected if matcher.accepts(text)] == []
    assert [error for text in accepted for error in judge.errors(text)] == []


@pytest.mark.parametrize("name", CLOSED_ROWS)
def test_closed_objects_keep_the_keys_of_patterns(name: str) -> None:
    check_row(CLOSED_ROWS[name], closed_objects=True)


_NUMBERS = {"type": "number"}

PLAIN_INTEGER_ROWS: dict[str, tuple[Any, list[str], list[str]]] = {
    "no type": ({"enum": [1.0, 2.5]}, ["1", "1.0", "2.5"], ["2", "1.00"]),
    "written as integers": ({"enum": [1, -2]}, ["1", "-2"], ["1.0", "-2.0"]),
    "zero": ({"const": 0.0}, ["0", "0.0", "-0.0"], ["0.00"]),
    "integers": ({**_INTS, "enum": [1.0, 2.0]}, ["1", "2"], ["1.0", "2.0"]),
    "an integer as const": ({**_INTS, "const": 7.0}, ["7"], ["7.0"]),
    "integers and others": ({"type": ["integer", "null"], "enum": [3.0, None]}, ["3", "null"], ["3.0"]),
    "numbers": ({**_NUMBERS, "enum": [1.0, 1.5]}, ["1", "1.0", "1.5"], ["2"]),
    "no integers": ({"not": _INTS, "enum": [1.0, 2.5]}, ["2.5"], ["1.0", "1"]),
    "no integers, by a reference": ({"not": {"$ref": "#/$defs/i"}, "enum": [1.0, 2.5], "$defs": {"i": _INTS}}, ["2.5"], ["1.0", "1"]),
    "one of two": ({"oneOf": [_INTS, _NUMBERS], "enum": [1.0, 1.5]}, ["1.5"], ["1.0", "1"]),
    "one of a list and a type": ({"oneOf": [{"enum": [1.0, "x"]}, _INTS]}, ['"x"', "2"], ["1", "1.0", "2.0"]),
    "one of a list and what is no integer": ({"oneOf": [{"enum": [1.0, 2.5]}, {"not": _INTS}]}, ["1", '"x"', "3.5"], ["2.5", "1.0"]),
    "any of two": ({"anyOf": [_INTS, _NUMBERS], "enum": [1.0]}, ["1", "1.0"], []),
    "any of two, in turn": ({"anyOf": [_NUMBERS, _INTS], "enum": [1.0]}, ["1", "1.0"], []),
    "any of an integer and a text": ({"anyOf": [_INTS, _TEXTS], "enum": [1.0, "x"]}, ["1", '"x"'], ["1.0"]),
    "any of the integers and the rest": ({"anyOf": [_INTS, {"not": _INTS}], "enum": [1.0, 1.5]}, ["1", "1.5"], ["1.0"]),
    "a condition": ({"if": _INTS, "then": {"maximum": 2}, "enum": [1.0, 3.0, 3.5]}, ["1", "3.5"], ["1.0", "3.0", "3"]),
    "in an array": ({"items": _INTS, "enum": [[1.0, 2.0], [1.5], []]}, ["[1,2]", "[]"], ["[1.0,2.0]", "[1,2.0]", "[1.5]"]),
    "an array of anything": ({"const": [1.0, [2, 2.5]]}, ["[1,[2,2.5]]", "[1.0,[2,2.5]]"], ["[1,[2.0,2.5]]"]),
    "in an object": (
        {"properties": {"a": _INTS}, "enum": [{"a": 1.0, "b": 2.5}, {"a": 1.5}, {"b": 3.0}]},
        ['{"a":1,"b":2.5}', '{"b":3}', '{"b":3.0}'], ['{"a":1.0,"b":2.5}', '{"a":1.5}'],
    ),
    "no integers in an object": (
        {"properties": {"a": {"not": _INTS}}, "enum": [{"a": 1.0}, {"a": 1.5}]}, ['{"a":1.5}'], ['{"a":1.0}', '{"a":1}'],
    ),
    "some integer in an array": ({"contains": _INTS, "enum": [[1.0, 2.5], [2.5]]}, ["[1,2.5]"], ["[1.0,2.5]", "[2.5]"]),
    "at a key and as an item": (
        {"type": "object", "properties": {"a": {**_INTS, "enum": [1.0]}, "b": {"items": {"enum": [1.0, 1.5]}, "type": "array"}}},
        ['{"a":1,"b":[1,1.0,1.5]}'], ['{"a":1.0}', '{"b":[2]}'],
    ),
    "bounds": ({**_INTS, "minimum": 1, "maximum": 2}, ["1", "2"], ["1.0", "2.0"]),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN_INTEGER_ROWS)
def test_plain_integers(name: str) -> None:
    check_row(PLAIN_INTEGER_ROWS[name], plain_integers=True)


def test_plain_integers_of_exact_numbers() -> None:
    values = [Decimal("1.0"), Decimal("3e1"), Decimal("2.5")]
    for schema, accepted, rejected in (
        ({**_INTS, "enum": values}, ["1", "30"], ["1.0", "30.0", "2.5"]),
        ({"enum": values}, ["1", "1.0", "30", "30.0", "2.5"], ["3e1"]),
    ):
        matcher = accepts(schema, plain_integers=True)
        assert [text for text in accepted if not matcher.accepts(text)] == []
        assert [text for text in rejected if matcher.accepts(text)] == []


@pytest.mark.parametrize("plain_integers", [False, True])
def test_draft_4_tells_listed_integers_by_their_text(plain_integers: bool) -> None:
    rows: list[tuple[Any, list[str], list[str]]] = [
        ({"enum": [1.0, 2]}, ["1.0", "2"], ["1", "2.0"]),
        ({**_INTS, "enum": [1.0, 2]}, ["2"], ["1.0", "1", "2.0"]),
        ({"not": _INTS, "enum": [1.0, 2]}, ["1.0"], ["1", "2"]),
        ({"oneOf": [_INTS, _NUMBERS], "enum": [1.0, 2]}, ["1.0"], ["1", "2"]),
    ]
    for schema, accepted, rejected in rows:
        matcher = accepts({"$schema": "http://json-schema.org/draft-04/schema#", **schema}, plain_integers=plain_integers)
        assert [text for text in accepted if not matcher.accepts(text)] == []
        assert [text for text in rejected if matcher.accepts(text)] == []


def test_any_json_object() -> None:
    matcher = Matcher.from_tables(compile_constraint(AnyJson(object_only=True)).tables)
    assert matcher.accepts('{"a":[1,{"b":null}]}')
    assert not matcher.accepts("[]")
