"""Which fields make which constraint, which wins, which clash, and how large they may be."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import combinations
from typing import Any

import pytest

from converters.compile import CompileOptions
from converters.constraint import AnyJson, Choice, Constraint, Gbnf, JsonSchema, Lark, Regex, StructuralTag
from server.constraints import CONFLICT, EMPTY_STRUCTURED_OUTPUTS, read_constraint
from server.errors import BadRequest
from server.settings import RequestLimits

LIMITS = RequestLimits()
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
TAG: dict[str, Any] = {"tag": "t", "schema": {}}

FIELDS: list[tuple[dict[str, Any], Constraint, str, str, str]] = [
    # fields, constraint, source, type, param
    ({"guided_choice": ["a", "b"]}, Choice(("a", "b")), "guided_choice", "choice", "guided_choice"),
    ({"guided_regex": "a"}, Regex("a"), "guided_regex", "regex", "guided_regex"),
    ({"guided_regex": ""}, Regex(""), "guided_regex", "regex", "guided_regex"),
    ({"guided_grammar": 'root ::= "a"'}, Gbnf('root ::= "a"'), "guided_grammar", "grammar", "guided_grammar"),
    ({"guided_grammar": 'start: "a"'}, Lark('start: "a"'), "guided_grammar", "grammar", "guided_grammar"),
    ({"guided_json": SCHEMA}, JsonSchema(SCHEMA), "guided_json", "json", "guided_json"),
    ({"guided_json": '{"type":"object"}'}, JsonSchema({"type": "object"}), "guided_json", "json", "guided_json"),
    ({"guided_json": {}}, JsonSchema({}), "guided_json", "json", "guided_json"),
    ({"structured_outputs": {"choice": ["a"]}}, Choice(("a",)), "structured_outputs", "choice", "structured_outputs.choice"),
    ({"structured_outputs": {"regex": "a"}}, Regex("a"), "structured_outputs", "regex", "structured_outputs.regex"),
    ({"structured_outputs": {"json": SCHEMA}}, JsonSchema(SCHEMA), "structured_outputs", "json", "structured_outputs.json"),
    ({"structured_outputs": {"grammar": 'root ::= "a"'}}, Gbnf('root ::= "a"'), "structured_outputs", "grammar",
     "structured_outputs.grammar"),
    ({"structured_outputs": {"grammar": 'start: "a"'}}, Lark('start: "a"'), "structured_outputs", "grammar",
     "structured_outputs.grammar"),
    ({"structured_outputs": {"structural_tag": TAG}}, StructuralTag(TAG), "structured_outputs", "structural_tag",
     "structured_outputs.structural_tag"),
    ({"structured_outputs": {"json_object": True, "regex": None}}, AnyJson(True), "structured_outputs", "json_object",
     "structured_outputs.json_object"),
    ({"response_format": {"type": "json_object"}}, AnyJson(True), "response_format", "json_object", "response_format"),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, JsonSchema(SCHEMA), "response_format", "json_schema",
     "response_format.schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}}},
     JsonSchema(SCHEMA), "response_format", "json_schema", "response_format.json_schema.schema"),
    ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, JsonSchema(SCHEMA), "response_format", "json_schema",
     "response_format.schema"),
    ({"response_format": {"type": "regex", "pattern": "a"}}, Regex("a"), "response_format", "regex", "response_format.pattern"),
    ({"response_format": {"type": "grammar", "grammar": 'root ::= "a"'}}, Gbnf('root ::= "a"'), "response_format", "grammar",
     "response_format.grammar"),
    ({"response_format": {"type": "structural_tag", "format": {"type": "any_text"}}},
     StructuralTag({"type": "structural_tag", "format": {"type": "any_text"}}), "response_format", "structural_tag",
     "response_format"),
    ({"json_schema": SCHEMA}, JsonSchema(SCHEMA), "json_schema", "json_schema", "json_schema"),
    ({"grammar": 'root ::= "a"'}, Gbnf('root ::= "a"'), "grammar", "grammar", "grammar"),
    ({"ebnf": 'root ::= "a"'}, Gbnf('root ::= "a"'), "ebnf", "grammar", "ebnf"),
    ({"regex": "a"}, Regex("a"), "regex", "regex", "regex"),
    ({"constraint": "a"}, Regex("a"), "constraint", "regex", "constraint"),
    ({"constraint": "a", "constraint_type": "regex"}, Regex("a"), "constraint", "regex", "constraint"),
    ({"constraint": 'start: "a"', "constraint_type": "lark"}, Lark('start: "a"'), "constraint", "lark", "constraint"),
    ({"constraint": SCHEMA, "constraint_type": "json_schema"}, JsonSchema(SCHEMA), "constraint", "json_schema", "constraint"),
    ({"constraint": '{"type":"null"}', "constraint_type": "json"}, JsonSchema({"type": "null"}), "constraint", "json",
     "constraint"),
    ({"constraint": 'root ::= "a"', "constraint_type": "gbnf"}, Gbnf('root ::= "a"'), "constraint", "gbnf", "constraint"),
    ({"constraint": ["a"], "constraint_type": "choice"}, Choice(("a",)), "constraint", "choice", "constraint"),
    ({"constraint": '["a", "b"]', "constraint_type": "choice"}, Choice(("a", "b")), "constraint", "choice", "constraint"),
    ({"format": "json"}, AnyJson(True), "format", "json", "format"),
    ({"format": SCHEMA}, JsonSchema(SCHEMA), "format", "json_schema", "format"),
    ({"format": '{"type":"null"}'}, JsonSchema({"type": "null"}), "format", "json_schema", "format"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "constraint", "source", "kind", "param"), FIELDS)
def test_every_field_makes_its_constraint(
    fields: dict[str, Any], constraint: Constraint, source: str, kind: str, param: str
) -> None:
    read = read_constraint(fields, LIMITS)
    assert read is not None
    assert (read.constraint, read.source, read.kind, read.param) == (constraint, source, kind, param)
    nested = read_constraint({"extra_body": fields}, LIMITS)
    assert nested is not None
    assert (nested.constraint, nested.source, nested.kind) == (constraint, source, kind)
    assert nested.param == f"extra_body.{param}"


ABSENT: list[dict[str, Any]] = [
    {},
    *({name: None} for name in (
        "guided_choice", "guided_regex", "guided_grammar", "guided_json", "structured_outputs", "response_format",
        "constraint", "json_schema", "grammar", "regex", "ebnf", "format", "guided_unheard_of", "extra_body",
    )),
    {"grammar": ""},
    {"format": ""},
    {"guided_grammar": ""},
    {"format": {}},
    {"response_format": {"type": "text"}},
    {"temperature": 1, "user": "u", "stop": ["grammar"]},
]  # fmt: skip


@pytest.mark.parametrize("fields", ABSENT)
def test_null_and_empty_are_absent(fields: dict[str, Any]) -> None:
    assert read_constraint(fields, LIMITS) is None


ONE_OF_EACH: dict[str, Any] = {
    "structured_outputs": {"regex": "s"},
    "response_format": {"type": "regex", "regex": "f"},
    "constraint": "c",
    "json_schema": {"type": "integer"},
    "grammar": 'root ::= "g"',
    "regex": "r",
    "ebnf": 'root ::= "e"',
    "format": {"type": "null"},
}
GUIDED: dict[str, Any] = {
    "guided_choice": ["a"],
    "guided_regex": "g",
    "guided_grammar": 'root ::= "h"',
    "guided_json": {"type": "boolean"},
}


@pytest.mark.parametrize(("first", "second"), list(combinations(ONE_OF_EACH, 2)))
def test_two_exclusive_fields_clash(first: str, second: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_constraint({first: ONE_OF_EACH[first], second: ONE_OF_EACH[second]}, LIMITS)
    assert CONFLICT in caught.value.message
    assert first in caught.value.message.removeprefix(CONFLICT)
    assert second in caught.value.message.removeprefix(CONFLICT)


@pytest.mark.parametrize("guided", GUIDED)
@pytest.mark.parametrize("other", [name for name in ONE_OF_EACH if name != "response_format"])
def test_guided_fields_clash_with_all_but_response_format(guided: str, other: str) -> None:
    with pytest.raises(BadRequest, match="only one of structured_outputs, response_format, or constraint may be set"):
        read_constraint({guided: GUIDED[guided], other: ONE_OF_EACH[other]}, LIMITS)


@pytest.mark.parametrize("guided", GUIDED)
def test_guided_fields_win_over_response_format(guided: str) -> None:
    read = read_constraint({guided: GUIDED[guided], "response_format": ONE_OF_EACH["response_format"]}, LIMITS)
    assert read is not None
    assert read.source == guided


@pytest.mark.parametrize(("winner", "loser"), list(combinations(GUIDED, 2)))
def test_guided_fields_win_in_their_order(winner: str, loser: str) -> None:
    read = read_constraint({loser: GUIDED[loser], winner: GUIDED[winner]}, LIMITS)
    assert read is not None
    assert read.source == winner


@pytest.mark.parametrize(
    "fields",
    [
        {"format": SCHEMA, "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        {"json_schema": SCHEMA, "format": '{"type":"object","properties":{"a":{"type":"integer"}}}'},
        {"grammar": 'root ::= "a"', "ebnf": 'root ::= "a"'},
        {"guided_regex": "a", "regex": "a"},
        {"guided_json": SCHEMA, "structured_outputs": {"json": SCHEMA}},
        {"guided_regex": "a", "extra_body": {"guided_regex": "a"}},
    ],
)
def test_equal_constraints_count_as_one(fields: dict[str, Any]) -> None:
    assert read_constraint(fields, LIMITS) is not None


@pytest.mark.parametrize("other", [{"const": True}, {"const": Decimal("1.0")}, {"const": "1"}])
def test_equality_is_that_of_json_not_of_python(other: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="only one of"):
        read_constraint({"json_schema": {"const": 1}, "format": other}, LIMITS)


WRONG: list[tuple[dict[str, Any], str, str]] = [
    # fields, words of the message, param
    ({"structured_outputs": {}}, EMPTY_STRUCTURED_OUTPUTS, "structured_outputs"),
    ({"structured_outputs": {"choice": None}}, EMPTY_STRUCTURED_OUTPUTS, "structured_outputs"),
    ({"structured_outputs": {"json_object": False}}, EMPTY_STRUCTURED_OUTPUTS, "structured_outputs"),
    ({"structured_outputs": {"whitespace_pattern": " "}}, EMPTY_STRUCTURED_OUTPUTS, "structured_outputs"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "only one of", "structured_outputs.choice"),
    ({"structured_outputs": {"jsn": {}}}, "not known", "structured_outputs.jsn"),
    ({"structured_outputs": []}, "must be an object", "structured_outputs"),
    ({"response_format": {"type": "xml"}},
     "response_format type 'xml' is not supported: only json_schema and json_object are supported", "response_format.type"),
    ({"response_format": {}}, "missing", "response_format.type"),
    ({"response_format": "json_object"}, "must be an object", "response_format"),
    ({"response_format": {"type": 1}}, "must be a string", "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "missing", "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "r"}}}, "missing",
     "response_format.json_schema.schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": 7}}}, "must be a JSON Schema",
     "response_format.json_schema.schema"),
    ({"response_format": {"type": "text", "schema": {}}}, "no meaning", "response_format.schema"),
    ({"response_format": {"type": "json_object", "json_schema": {}}}, "no meaning", "response_format.json_schema"),
    ({"response_format": {"type": "regex"}}, "missing", "response_format.regex"),
    ({"guided_choice": []}, "must not be empty", "guided_choice"),
    ({"guided_choice": "a"}, "must be a list of strings", "guided_choice"),
    ({"guided_choice": ["a", 1]}, "must be a string", "guided_choice[1]"),
    ({"guided_regex": 1}, "must be a string, not a number", "guided_regex"),
    ({"guided_grammar": {}}, "must be a string", "guided_grammar"),
    ({"guided_json": 3}, "must be a JSON Schema", "guided_json"),
    ({"guided_json": "{"}, "not valid JSON", "guided_json"),
    ({"guided_json": '{"a":1,"a":2}'}, "repeated", "guided_json"),
    ({"guided_json": '"text"'}, "must be a JSON Schema", "guided_json"),
    ({"constraint": "a", "constraint_type": "xml"}, "must be one of regex, lark", "constraint_type"),
    ({"constraint_type": "regex"}, "constraint is not", "constraint_type"),
    ({"json_schema": []}, "must be a JSON Schema", "json_schema"),
    ({"whitespace": "none", "guided_json": {}}, "must be one of", "whitespace"),
    ({"lenient": "yes", "guided_json": {}}, "must be a boolean", "lenient"),
    ({"inject_schema": "yes", "guided_json": {}}, "must be a boolean", "inject_schema"),
    ({"extra_body": []}, "must be an object", "extra_body"),
    ({"guided_regex": "a", "extra_body": {"guided_regex": "b"}}, "set twice", "extra_body.guided_regex"),
    ({"guided_choice": ["a"], "guided_regex": 5}, "must be a string", "guided_regex"),
    ({"guided_choice": ["a"], "response_format": {"type": "xml"}}, "not supported", "response_format.type"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "words", "param"), WRONG)
def test_wrong_values_are_named(fields: dict[str, Any], words: str, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_constraint(fields, LIMITS)
    assert words in caught.value.message
    assert caught.value.param == param


@pytest.mark.parametrize(
    "name",
    ["guided_xml", "guided_", "structured_output", "my_grammar", "grammars", "schema", "response_schema", "grammar_lazy"],
)
@pytest.mark.parametrize("nested", [False, True])
def test_an_unknown_field_that_looks_like_a_constraint_is_refused(name: str, nested: bool) -> None:
    with pytest.raises(BadRequest, match=name) as caught:
        read_constraint({"extra_body": {name: 1}} if nested else {name: 1}, LIMITS)
    assert caught.value.param == (f"extra_body.{name}" if nested else name)


SMALL = replace(LIMITS, regex_bytes=8, grammar_bytes=12, schema_bytes=16, n_choice_options=3, choice_bytes=6)
SIZED: list[tuple[str, Any, Any]] = [
    # field, the largest value allowed, one more
    ("guided_regex", "é" * 4, "é" * 4 + "a"),
    ("regex", "a" * 8, "a" * 9),
    ("guided_grammar", 'root ::= "a"', 'root ::= "ab"'),
    ("grammar", 'root ::= "a"', 'root ::= "ab"'),
    ("ebnf", 'root ::= "a"', 'root ::= "ab"'),
    ("guided_json", {"type": "array"}, {"type": "object"}),
    ("guided_json", '{"type":"array"}', '{"type": "array"}'),
    ("json_schema", {"type": "array"}, {"type": "object"}),
    ("format", {"type": "array"}, {"type": "object"}),
    ("constraint", "a" * 8, "a" * 9),
    ("guided_choice", ["a", "b", "cccc"], ["a", "b", "ccccc"]),
    ("guided_choice", ["a", "b", "c"], ["a", "b", "c", "d"]),
    ("structured_outputs", {"regex": "a" * 8}, {"regex": "a" * 9}),
    ("structured_outputs", {"choice": ["a"], "whitespace_pattern": " " * 8}, {"choice": ["a"], "whitespace_pattern": " " * 9}),
    ("response_format", {"type": "regex", "regex": "a" * 8}, {"type": "regex", "regex": "a" * 9}),
    ("response_format", {"type": "json_object", "schema": {"type": "array"}},
     {"type": "json_object", "schema": {"type": "object"}}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "largest", "too_large"), SIZED)
def test_limits_are_inclusive_and_named(name: str, largest: Any, too_large: Any) -> None:
    assert read_constraint({name: largest}, SMALL) is not None
    with pytest.raises(BadRequest, match=r"(_bytes|n_choice_options) allows \d+") as caught:
        read_constraint({name: too_large}, SMALL)
    assert caught.value.code == "limit_exceeded"
    with pytest.raises(BadRequest, match="allows"):
        read_constraint({"guided_choice": ["a"], name: too_large}, SMALL)


def test_options() -> None:
    options = read_constraint(
        {"guided_json": {}, "whitespace": "spaced", "whitespace_pattern": "[ ]?", "lenient": True}, LIMITS
    )
    assert options is not None
    assert options.options == CompileOptions(whitespace="spaced", whitespace_pattern="[ ]?", lenient=True)
    inside = read_constraint(
        {"structured_outputs": {"json": {}, "disable_any_whitespace": True, "disable_additional_properties": True}}, LIMITS
    )
    assert inside is not None
    assert inside.options == CompileOptions(whitespace="compact", closed_objects=True)
    draft = read_constraint({"guided_json": {}, "default_draft": "draft4", "formats": "annotation"}, LIMITS)
    assert draft is not None
    assert draft.constraint == JsonSchema({}, "draft4", "annotation")
