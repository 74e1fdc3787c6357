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
