"""Every pair of constraint fields, in both orders, against the rules of the spec: which one rules, or which 400 with what text.

What should come is worked out from the table and from the rules as they are written, not from the code that reads the fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import Any

import pytest

from server.api.openai.chat import decode_request as decode_chat
from server.api.openai.completions import decode_request as decode_completion
from server.chat.types import RequestedConstraint
from server.errors import BadRequest
from server.settings import RequestLimits

LIMITS = RequestLimits()
CONFLICT = "only one of structured_outputs, response_format, or constraint may be set"
TOOL = {"type": "function", "function": {"name": "get_it", "parameters": {"type": "object", "properties": {}}}}
NAMED = {"type": "function", "function": {"name": "get_it"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
GBNF = 'root ::= "a"'
LARK = 'start: "a"'


@dataclass(frozen=True)
class Row:
    """One way of asking for a constraint: the field, its value, what it means (equal for equal constraints; None: nothing),
    and the type in the server's log."""

    field: str
    value: Any
    meaning: str | None
    kind: str = ""
    beside: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.field}={str(self.value)[:40]}"

    @property
    def fields(self) -> dict[str, Any]:
        return {self.field: self.value, **dict(self.beside)}

    @property
    def source(self) -> str:
        """The field's name in the log and in errors."""
        return f"{self.field}.format" if self.field in ("output_config", "text") else self.field

    @property
    def is_call(self) -> bool:
        return self.field == "tool_choice"


def structured(name: str, value: Any, meaning: str) -> Row:
    return Row("structured_outputs", {name: value}, meaning, name)


def response_format(kind: str, meaning: str | None, logged: str = "", **contents: Any) -> Row:
    return Row("response_format", {"type": kind, **contents}, meaning, logged or kind)


def wrapped(field: str, kind: str, meaning: str | None, **contents: Any) -> Row:
    return Row(field, {"format": {"type": kind, **contents}, "other": 1}, meaning, kind)


def legacy(kind: str, value: Any, meaning: str) -> Row:
    return Row("constraint", value, meaning, kind, (("constraint_type", kind),))


WITH_TOOL = (("tools", [TOOL]),)
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}
ROWS = [
    Row("tool_choice", "required", "call", "tool", WITH_TOOL),
    Row("tool_choice", NAMED, "call", "tool", WITH_TOOL),
    Row("tool_choice", ALLOWED, "call", "tool", WITH_TOOL),
    Row("tool_choice", "auto", None, "", WITH_TOOL),
    Row("tool_choice", "none", None, "", WITH_TOOL),
    Row("guided_choice", ["a", "b"], "choice a b", "choice"),
    Row("guided_regex", "a", "regex a", "regex"),
    Row("guided_regex", "", "regex", "regex"),
    Row("guided_grammar", GBNF, "gbnf", "grammar"),
    Row("guided_grammar", LARK, "lark", "grammar"),
    Row("guided_grammar", "", None),
    Row("guided_json", SCHEMA, "schema a", "json"),
    Row("guided_json", "{}", "schema", "json"),
    structured("choice", ["a", "b"], "choice a b"),
    structured("regex", "a", "regex a"),
    structured("json", SCHEMA, "schema a"),
    structured("grammar", GBNF, "gbnf"),
    structured("structural_tag", {"tag": "t", "schema": {}}, "tag t"),
    structured("json_object", True, "object"),
    response_format("text", None),
    response_format("json_object", "object"),
    response_format("json_object", "schema a", "json_schema", schema=SCHEMA),
    response_format("json_schema", "schema a", json_schema={"name": "n", "strict": True, "schema": SCHEMA}),
    response_format("structural_tag", "tag any", format={"type": "any_text"}),
    response_format("grammar", "gbnf", grammar=GBNF),
    response_format("regex", "regex a", pattern="a"),
    Row("json_schema", SCHEMA, "schema a", "json_schema"),
    Row("json_schema", {}, "schema", "json_schema"),
    Row("grammar", GBNF, "gbnf", "grammar"),
    Row("grammar", "", None),
    Row("constraint", "a", "regex a", "regex"),
    legacy("regex", "a", "regex a"),
    legacy("lark", LARK, "lark"),
    legacy("json_schema", SCHEMA, "schema a"),
    legacy("json", '{"type": "object", "properties": {"a": {"type": "integer"}}}', "schema a"),
    legacy("gbnf", GBNF, "gbnf"),
    legacy("choice", '["a", "b"]', "choice a b"),
    Row("regex", "a", "regex a", "regex"),
    Row("ebnf", GBNF, "gbnf", "grammar"),
    Row("format", "json", "object", "json"),
    Row("format", SCHEMA, "schema a", "json_schema"),
    Row("format", {}, None),
    Row("format", "", None),
    wrapped("output_config", "json_schema", "schema a", schema=SCHEMA),
    Row("output_config", {"effort": "low"}, None),
    Row("output_format", {"type": "json_schema", "schema": SCHEMA}, "schema a", "json_schema"),
    wrapped("text", "json_schema", "schema a", name="n", strict=True, schema=SCHEMA),
    wrapped("text", "json_object", "object"),
    wrapped("text", "regex", "regex a", pattern="a"),
    wrapped("text", "text", None),
    Row("text", {"verbosity": "low", "format": None}, None),
]  # fmt: skip
RESPONSE_FORMATS = ("response_format", "output_config", "output_format", "text")  # of the four APIs
GUIDED = ("guided_choice", "guided_regex", "guided_grammar", "guided_json")  # in the order in which they win
PAIRS = [(first, second) for first, second in permutations(ROWS, 2) if first.field != second.field]
NULLS = [(row, name) for row in ROWS for name in sorted({other.field for other in ROWS} - {row.field})]


def expected(*rows: Row) -> Row | set[str] | None:
    """What rules, None if nothing does; or the fields that a 400 names."""
    set_ones = [row for row in rows if row.meaning is not None and not row.is_call]
    guided = sorted((row for row in set_ones if row.field in GUIDED), key=lambda row: GUIDED.index(row.field))
    others = [row for row in set_ones if row.field not in GUIDED]
    if guided:
        others = [row for row in others if row.field not in RESPONSE_FORMATS]  # rule 2: they win over it
    rivals = guided[:1] + others
    if len({row.meaning for row in rivals}) > 1:  # rule 3
        return {row.source for row in rivals}
    call = [row for row in rows if row.is_call and row.meaning is not None]
    return next(iter(call + rivals), None)  # rule 1, and the last sentence of rule 3


def ruling(body: dict[str, Any]) -> tuple[bool, RequestedConstraint | None]:
    """Whether a call is forced, and the constraint beside it."""
    request, _ = decode_chat({"messages": [{"role": "user", "content": "hi"}], **body}, LIMITS)
    return request.tools is not None and request.tools.is_forced, request.constraint


def check(body: dict[str, Any], *rows: Row) -> None:
    outcome = expected(*rows)
    if isinstance(outcome, set):
        with pytest.raises(BadRequest) as caught:
            ruling(body)
        assert caught.value.message.startswith(CONFLICT)
        assert caught.value.code == "conflicting_constraints"
        named = caught.value.message.removeprefix(CONFLICT)
        assert {field for field in {row.source for row in ROWS} if f" {field} " in named.replace(",", " ") + " "} == outcome
        assert str(caught.value.param).removeprefix("extra_body.").startswith(tuple(outcome))
        return
    is_forced, constraint = ruling(body)
    assert is_forced == (outcome is not None and outcome.is_call)
    if outcome is None:
        assert constraint is None
    elif not outcome.is_call:
        assert constraint is not None
        alike = [(row.source, row.kind) for row in rows if row.meaning == outcome.meaning]
        assert (constraint.source, constraint.kind) in alike
        if outcome.field in GUIDED:
            assert constraint.source == outcome.field
        alone = ruling(outcome.fields)[1]
        assert alone is not None
        assert constraint.constraint == alone.constraint


@pytest.mark.parametrize("first", ROWS, ids=str)
def test_a_field_alone(first: Row) -> None:
    check(first.fields, first)
    check({"extra_body": first.fields}, first)


def test_every_pair() -> None:
    assert len(PAIRS) > 1500
    for first, second in PAIRS:
        check({**first.fields, **second.fields}, first, second)


every_tenth_or_all = pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.conformance)])


@every_tenth_or_all
def test_every_pair_split_over_extra_body(step: int) -> None:
    for first, second in PAIRS[::step]:
        check({**first.fields, "extra_body": second.fields}, first, second)


def test_null_is_absent_beside_every_field() -> None:
    for row, name in NULLS:
        check({**row.fields, name: None}, row)
        check({name: None, "extra_body": row.fields}, row)


@every_tenth_or_all
def test_completions_read_the_same(step: int) -> None:
    for first, second in PAIRS[::step]:
        if first.is_call or second.is_call:
            continue
        body = {"prompt": "hi", **first.fields, **second.fields}
        outcome = expected(first, second)
        if isinstance(outcome, set):
            with pytest.raises(BadRequest, match=CONFLICT):
                decode_completion(body, LIMITS)
        else:
            constraint = decode_completion(body, LIMITS)[0].constraint
            assert constraint == ruling({**first.fields, **second.fields})[1]
            assert (constraint is None) == (outcome is None)


WRONG: dict[str, Any] = {
    "guided_choice": [1], "guided_regex": 1, "guided_grammar": 1, "guided_json": 1, "structured_outputs": 1,
    "response_format": 1, "constraint": 1, "json_schema": 1, "grammar": 1, "regex": 1, "ebnf": 1, "format": 1,
    "output_config": {"format": 1}, "output_format": 1, "text": {"format": 1},
}  # fmt: skip
LARGE: dict[str, Any] = {
    "guided_choice": ["a"] * 10_001,
    "guided_regex": "a" * 4097,
    "guided_grammar": GBNF + " " * (16384 - len(GBNF) + 1),
    "guided_json": {"title": "a" * 16384},
    "structured_outputs": {"regex": "a" * 4097},
    "response_format": {"type": "json_schema", "json_schema": {"schema": {"title": "a" * 16384}}},
    "constraint": "a" * 4097,
    "json_schema": {"title": "a" * 16384},
    "grammar": GBNF + " " * (16384 - len(GBNF) + 1),
    "regex": "a" * 4097,
    "ebnf": GBNF + " " * (16384 - len(GBNF) + 1),
    "format": {"title": "a" * 16384},
    "output_config": {"format": {"type": "json_schema", "schema": {"title": "a" * 16384}}},
    "output_format": {"type": "json_schema", "schema": {"title": "a" * 16384}},
    "text": {"format": {"type": "json_schema", "schema": {"title": "a" * 16384}}},
}


@pytest.mark.parametrize(("name", "value"), [*WRONG.items(), *LARGE.items()], ids=lambda value: str(value)[:20])
def test_a_field_that_loses_is_still_checked(name: str, value: Any) -> None:
    """Beside every other field, a forced call too, a value of a wrong type or size is a 400 that names it."""
    for row in ROWS:
        if row.field != name:
            with pytest.raises(BadRequest) as caught:
                ruling({**row.fields, name: value})
            assert str(caught.value.param).startswith(name)
            assert CONFLICT not in caught.value.message


def test_a_field_that_loses_is_not_compiled() -> None:
    """Rule 2: `(` is no regex, but only the winner meets the compiler."""
    read = ruling({"guided_choice": ["a"], "guided_regex": "(", "response_format": {"type": "regex", "regex": "("}})[1]
    assert read is not None
    assert read.source == "guided_choice"
