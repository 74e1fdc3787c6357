"""Refusals are errors with the JSON pointer of the culprit, never a looser grammar."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from converters import (
    CompileOptions,
    ConversionError,
    InvalidSource,
    JsonSchema,
    LimitExceeded,
    Unsatisfiable,
    UnsupportedFeature,
    compile_constraint,
)
from converters.grammar.match import Matcher

ROWS: list[tuple[Any, type[ConversionError], str | None]] = [
    ("object", InvalidSource, ""),
    ([{}], InvalidSource, ""),
    ({"type": "strng"}, InvalidSource, "/type"),
    ({"properties": ["a"]}, InvalidSource, "/properties"),
    ({"properties": {"a/b": {"items": "string"}}}, InvalidSource, "/properties/a~1b/items"),
    ({"required": "a"}, InvalidSource, "/required"),
    ({"minLength": -1}, InvalidSource, "/minLength"),
    ({"multipleOf": 0}, InvalidSource, "/multipleOf"),
    ({"anyOf": []}, InvalidSource, "/anyOf"),
    ({"minimum": "1"}, InvalidSource, "/minimum"),
    ({"type": "string", "pattern": "("}, InvalidSource, "/pattern"),
    ({"type": "object", "patternProperties": {"a": {}, "(/": {}}}, InvalidSource, "/patternProperties/(~1"),
    ({"type": "object", "patternProperties": {"(": {}}, "additionalProperties": False}, InvalidSource, "/patternProperties/("),
    ({"type": "object", "patternProperties": {"(": {}}, "minProperties": 2}, InvalidSource, "/patternProperties/("),
    ({"enum": [{"a": 1}], "patternProperties": {"(": {}}}, InvalidSource, "/patternProperties/("),
    ({"type": "object", "not": {"patternProperties": {"(": False}}}, InvalidSource, "/not/patternProperties/("),
    (
        {"type": "object", "allOf": [{"patternProperties": {"(": {}}}], "unevaluatedProperties": False},
        InvalidSource,
        "/allOf/0/patternProperties/(",
    ),
    ({"$ref": "#/nowhere"}, InvalidSource, "/$ref"),
    ({"$ref": "#/allOf/01", "allOf": [True, True]}, InvalidSource, "/$ref"),
    ({"$ref": "#/allOf/00", "allOf": [True, True]}, InvalidSource, "/$ref"),
    ({"$ref": "#/allOf/%C2%B2", "allOf": [True, True]}, InvalidSource, "/$ref"),  # a small 2
    ({"$ref": "#/allOf/%D9%A1", "allOf": [True, True]}, InvalidSource, "/$ref"),  # an Arabic 1
    ({"$ref": "#/allOf/" + "9" * 5000, "allOf": [True, True]}, InvalidSource, "/$ref"),
    ({"$ref": "#"}, InvalidSource, ""),
    ({"anyOf": [{"type": "null"}, {"$ref": "#"}]}, InvalidSource, None),
    ({"$schema": "http://json-schema.org/draft-04/schema#", "enum": []}, InvalidSource, "/enum"),
    ({"$ref": "https://example.invalid/s.json"}, UnsupportedFeature, "/$ref"),
    ({"$schema": "https://example.invalid/meta"}, UnsupportedFeature, "/$schema"),
    ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, UnsupportedFeature, "/uniqueItems"),
    ({"type": "object", "minProperties": 3}, UnsupportedFeature, "/minProperties"),
    ({"type": "string", "pattern": r"^(a)\1$"}, UnsupportedFeature, "/pattern"),
    ({"properties": {"a": {"format": "regex"}}}, UnsupportedFeature, "/properties/a/format"),
    ({"$id": "http://[", "properties": {"a": {"$ref": "y"}}}, InvalidSource, "/$id"),
    ({"$id": "http://[", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {}}}, InvalidSource, "/$id"),
    ({"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://[", "not": {"$ref": "y"}}, InvalidSource, "/id"),
    ({"$id": "http://a/", "$defs": {"b": {"$id": "http://[b#c"}}}, InvalidSource, "/$defs/b/$id"),
    ({"$id": "http://a/", "items": {"$id": "http://[", "not": {"$id": "c"}}}, InvalidSource, "/items/$id"),
    ({"$id": "http://a/", "items": {"$ref": "http://["}}, InvalidSource, "/items/$ref"),
    ({"items": {"$ref": "http://[#a"}}, InvalidSource, "/items/$ref"),
    ({"items": {"$dynamicRef": "http://[#a"}}, InvalidSource, "/items/$dynamicRef"),
    ({"items": {"$ref": "#/allOf/²"}, "allOf": [{}]}, InvalidSource, "/items/$ref"),
    (False, Unsatisfiable, ""),
    ({"not": {}}, Unsatisfiable, ""),
    ({"type": "string", "minLength": 4, "maxLength": 3}, Unsatisfiable, ""),
    ({"type": "string", "enum": [1]}, Unsatisfiable, ""),
    ({"type": "object", "required": ["a"], "properties": {"a": False}}, Unsatisfiable, None),
    ({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}, Unsatisfiable, None),
    ({"type": "string", "pattern": r"^(?:\S+\s+){0,99}\S+$", "maxLength": 5000}, LimitExceeded, None),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "error", "path"), ROWS, ids=lambda row: str(row)[:60])
def test_refusals(schema: Any, error: type[ConversionError], path: str | None) -> None:
    with pytest.raises(error) as caught:
        compile_constraint(JsonSchema(schema))
    if path is not None:
        assert (caught.value.path or "") == path


def test_an_impossible_optional_property_is_only_absent() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"not": {}}, "b": {}}, "additionalProperties": False}
    assert compile_constraint(JsonSchema(schema)).gbnf


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def test_schemas_nest_a_thousand_deep() -> None:
    compiled = compile_constraint(JsonSchema(nested(1000)))
    matcher = Matcher.from_tables(compiled.tables)
    assert matcher.accepts("[" * 1000 + "null" + "]" * 1000)
    assert not matcher.accepts("[" * 1001 + "]" * 1001)


@pytest.mark.parametrize(
    ("schema", "begin"), [(nested(1001), ""), ({"$ref": "#/elsewhere", "elsewhere": nested(3000)}, "/elsewhere")]
)
def test_schemas_that_nest_deeper_are_refused(schema: dict[str, Any], begin: str) -> None:
    for lenient in (False, True):
        with pytest.raises(LimitExceeded) as caught:
            compile_constraint(JsonSchema(schema), CompileOptions(lenient=lenient))
        assert (caught.value.limit, caught.value.value) == ("nesting", 1000)
        path = caught.value.path or ""
        assert path.startswith(f"{begin}/items/items")
        assert path.count("/items") == 1001


def test_names_at_every_level_cost_no_memory() -> None:
    """Pointers of 20,000 levels would be gigabytes."""
    schema: dict[str, Any] = {"type": "null"}
    for n in range(20_000):
        schema = {"$id": f"x{n}", "type": "object", "properties": {"a": schema}}
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded):
            compile_constraint(JsonSchema(schema))
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_reference_goes_as_deep_as_schemas_nest() -> None:
    deep: dict[str, Any] = {"type": "null"}
    for _ in range(600):
        deep = {"properties": {"a": deep}, "type": "object", "additionalProperties": False}
    root: dict[str, Any] = {
        "type": "object",
        "properties": {"a": deep, "b": {"$ref": "#/properties/a" + "/properties/a" * 600}},
    }
    accepts = Matcher.from_tables(compile_constraint(JsonSchema(root)).tables).accepts
    assert accepts('{"b": null}')
    assert not accepts('{"b": {}}')


def test_ignored_siblings_are_told() -> None:
    schema: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {"type": "string"}},
        "$ref": "#/definitions/a",
        "minLength": 3,
    }
    assert "$ref" in " ".join(compile_constraint(JsonSchema(schema)).notes)


@pytest.mark.parametrize(
    ("schema", "paths", "accepted"),
    [
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, ["/uniqueItems"], '["a","a"]'),
        ({"properties": {"a": {"$ref": "http://x/y", "type": "null"}}, "type": "object"}, ["/properties/a/$ref"], '{"a":null}'),
        ({"type": "string", "not": {"pattern": r"(a)\1"}}, ["/not"], '"aa"'),
        ({"type": "string", "pattern": r"(a)\1", "minLength": 1}, ["/pattern"], '"b"'),
        (
            {"type": "object", "patternProperties": {r"(a)\1": {}}, "additionalProperties": False},
            ["/patternProperties", "/additionalProperties"],
            '{"aa": 1}',
        ),
        (
            {"type": "object", "properties": {"b": {}}, "patternProperties": {r"(a)\1": {"type": "null"}}},
            ["/patternProperties"],
            '{"aa": 1}',
        ),
        ({"properties": {"a b": {"type": "string", "pattern": r"(a)\1"}}}, ["/properties/a b/pattern"], '{"a b": "c"}'),
        (
            {"prefixItems": [{}, {"$ref": "http://x/y"}, {}], "items": False, "type": "array"},
            ["/prefixItems/1/$ref"],
            "[1, 2, 3]",
        ),
        (
            {"allOf": [{"$ref": "http://x/y"}], "properties": {"a": {}}, "type": "object", "unevaluatedProperties": False},
            ["/allOf/0/$ref", "/unevaluatedProperties"],
            '{"b": 1}',
        ),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "http://x/y"}}, "type": "object", "unevaluatedProperties": False},
            ["/$defs/a/$ref", "/unevaluatedProperties"],
            '{"b": 1}',
        ),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"$ref": "http://x/y"}},
                "not": {"unevaluatedProperties": False, "required": ["b"]},
                "type": "object",
            },
            ["/$defs/a/$ref", "/not"],
            '{"b": 1}',
        ),
    ],
)  # fmt: skip
def test_a_lenient_compile_lists_what_it_leaves_out(schema: Any, paths: list[str], accepted: str) -> None:
    compiled = compile_constraint(JsonSchema(schema), CompileOptions(lenient=True))
    assert [relaxation.path for relaxation in compiled.relaxed] == paths
    assert Matcher.from_tables(compiled.tables).accepts(accepted)


@pytest.mark.parametrize(
    ("schema", "accepted"),
    [
        ({"type": "object", "patternProperties": {r"(a)\1": {"type": "null"}}}, '{"aa": null}'),
        ({"type": "object", "patternProperties": {r"(a)\1": {}}, "additionalProperties": False}, '{"aa": 1}'),
        ({"items": {"allOf": [{"patternProperties": {r"(a)\1": {}}}], "properties": {"b": {}}}}, '[{"b": 1, "aa": 1}]'),
        ({"type": "object", "allOf": [{"$ref": "http://x/y"}]}, '{"aa": 1}'),
        ({"type": "object", "oneOf": [{"properties": {"a": {"pattern": r"(a)\1"}}}, {"required": ["b"]}]}, '{"a": "aa"}'),
        ({"type": "object", "patternProperties": {r"(a)\1": {}}, "unevaluatedProperties": False}, '{"aa": 1}'),
    ],
)
def test_what_a_lenient_compile_leaves_out_closes_no_object(schema: Any, accepted: str) -> None:
    compiled = compile_constraint(JsonSchema(schema), CompileOptions(lenient=True, closed_objects=True))
    assert compiled.relaxed
    assert Matcher.from_tables(compiled.tables).accepts(accepted)


def test_many_members_may_stand_beside_declared_ones() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {}, "b": {}}, "maxProperties": 100_000}
    accepts = Matcher.from_tables(compile_constraint(JsonSchema(schema)).tables).accepts
    assert accepts('{"a": 1, "b": 2, "c": 3, "d": 4}')
    schema = {"type": "object", "properties": {f"k{i}": {} for i in range(60)}, "maxProperties": 100_000}
    with pytest.raises(UnsupportedFeature, match="maxProperties beside 60 declared properties") as info:
        compile_constraint(JsonSchema(schema))
    assert info.value.path == "/maxProperties"
