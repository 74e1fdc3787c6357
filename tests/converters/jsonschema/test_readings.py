"""Few ways to read a text: alternatives of objects that share keys differ in those keys' values, however deep objects nest.

llama.cpp follows every reading by itself, so two that are open at each level are two to the power of the levels.
"""

from __future__ import annotations

from typing import Any

import pytest

from converters import JsonSchema, compile_constraint
from converters.grammar.gbnf_parser import parse_gbnf
from converters.grammar.match import Matcher
from converters.grammar.match.tables import lower
from converters.limits import Budget
from tests.oracle import Oracle

N_LEVELS = 24
MAX_STACKS = 24

LINK = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"], "additionalProperties": False}
BY_NAME = {
    "type": "object",
    "patternProperties": {"^[a-z]{2}$": {"$ref": "#"}},
    "additionalProperties": False,
    "minProperties": 1,
}
SCHEMAS: dict[str, tuple[dict[str, Any], str, str]] = {
    "one of two that may hold together": ({"oneOf": [{"type": "string"}, LINK, BY_NAME]}, '{"to": ', '{"ab": "x"}'),
    "not a closed object": (
        {"type": ["object", "null"], "additionalProperties": {"$ref": "#"}, "not": LINK},
        '{"to": ',
        "null",
    ),
    "some member that is no string": (
        {
            "type": ["object", "string", "null"],
            "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}},
            "additionalProperties": False,
            "not": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        '{"a": ',
        '{"b": null}',
    ),
}


def most_stacks(gbnf: str, text: str) -> int:
    """The most stacks that are alive after any beginning of `text`."""
    matcher = Matcher(lower(parse_gbnf(gbnf), Budget()), max_stacks=2000)
    state, most = matcher.start, 0
    for char in text:
        following = matcher.advance(state, char)
        assert following is not None, text
        state, most = following, max(most, len(following.cells))
    return most


@pytest.mark.parametrize("kind", SCHEMAS)
def test_readings_dont_multiply_with_depth(oracle: Oracle, kind: str) -> None:
    schema, opened, inside = SCHEMAS[kind]
    gbnf = compile_constraint(JsonSchema(schema)).gbnf
    text = opened * N_LEVELS + inside + "}" * N_LEVELS
    assert most_stacks(gbnf, text) <= MAX_STACKS
    assert oracle.accepts(gbnf, [text]) == [True]


NODE = {"$ref": "#/$defs/node"}


def _recursive(node: dict[str, Any]) -> dict[str, Any]:
    return {"$defs": {"node": node}, **NODE}


def _closed(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    properties = required | (optional or {})
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


LIST = {"type": "array", "items": NODE}
RECURSIVE: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "operators": (
        {"anyOf": [_closed({"l": NODE, "r": NODE, "op": {}}), _closed({"l": NODE, "r": NODE, "cmp": {}}), {"type": "null"}]},
        '{"l": {"l": null, "r": null, "op": 1}, "r": ',
        "null",
        ', "cmp": 1}',
    ),
    "one of two": (
        {"oneOf": [_closed({"l": NODE, "a": {}}), _closed({"l": NODE, "b": {}}), {"type": "null"}]},
        '{"l": ',
        "null",
        ', "a": 1}',
    ),
    "a union in two orders": (
        {
            "anyOf": [
                _closed(
                    {
                        "next": {
                            "anyOf": [{"$ref": "#/$defs/node/anyOf/0"}, {"$ref": "#/$defs/node/anyOf/1"}, {"type": "null"}]
                        },
                        "a": {},
                    }
                ),
                _closed(
                    {
                        "next": {
                            "anyOf": [{"type": "null"}, {"$ref": "#/$defs/node/anyOf/1"}, {"$ref": "#/$defs/node/anyOf/0"}]
                        },
                        "b": {},
                    }
                ),
            ]
        },
        '{"next": ',
        "null",
        ', "b": 1}',
    ),
    "lists of them": ({"anyOf": [_closed({"c": LIST, "a": {}}), _closed({"c": LIST, "b": {}})]}, '{"c": [', "", '], "b": 1}'),
    "open objects": (
        {
            "type": "object",
            "anyOf": [
                {"properties": {"c": LIST, "a": {}}, "required": ["c", "a"]},
                {"properties": {"c": LIST, "b": {}}, "required": ["c", "b"]},
            ],
        },
        '{"c": [',
        "",
        '], "b": 1}',
    ),
    "optional keys": (
        {"anyOf": [_closed({"n": {}}, {"c": LIST, "t": {}}), _closed({"n": {}}, {"c": LIST, "s": {}})]},
        '{"n": 1, "c": [',
        "",
        "]}",
    ),
    "lists of other lengths": (
        {"anyOf": [LIST, LIST | {"minItems": 2}, LIST | {"maxItems": 3}, {"type": "null"}]},
        "[null, ",
        "null",
        "]",
    ),
    "a condition": (
        {"properties": {"k": NODE}, "if": {"required": ["z"]}, "then": {"required": ["a"]}, "else": {"required": ["b"]}},
        '{"k": ',
        "1",
        ', "b": 1}',
    ),
    "a key that wants another": (
        {"properties": {"k": NODE}, "dependentRequired": {"z": ["y"]}, "minProperties": 1},
        '{"k": ',
        "1",
        "}",
    ),
    "keys that are evaluated in one of two ways": (
        {
            "properties": {"k": NODE},
            "anyOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {}}}],
            "unevaluatedProperties": False,
        },
        '{"k": ',
        "1",
        ', "b": 1}',
    ),
}


@pytest.mark.parametrize("kind", RECURSIVE)
def test_readings_of_recursive_alternatives_dont_multiply_with_depth(oracle: Oracle, kind: str) -> None:
    """What they have in common is read once, down to where they differ."""
    node, opened, inside, closed = RECURSIVE[kind]
    gbnf = compile_constraint(JsonSchema(_recursive(node))).gbnf
    text = opened * N_LEVELS + inside + closed * N_LEVELS
    assert most_stacks(gbnf, text) <= MAX_STACKS
    assert oracle.accepts(gbnf, [text, text[:-1], text + "]"]) == [True, False, False]
