"""What one look at an expression tells, and that it is kept with it without being part of its value."""

from __future__ import annotations

import pytest

from converters.constraint import JsonSchema, JsonValue
from converters.grammar.charset import CharSet
from converters.grammar.expr import EMPTY, NEVER, Alt, Chars, Expr, Grammar, Lit, Ref, Rep, Seq, alt, seq
from converters.grammar.passes.look import MAX_HEIGHT, look_of
from converters.grammar.passes.prefix import factor_prefixes
from converters.jsonschema import schema_grammar
from converters.limits import Budget
from converters.options import CompileOptions

A, X, DIGIT = Lit("a"), Ref("x"), Chars(CharSet.span(48, 57))


def _nested(height: int) -> Expr:
    expr: Expr = A
    for _ in range(height - 1):
        expr = Seq((A, expr))
    return expr


@pytest.mark.parametrize(
    ("expr", "says"),
    [
        (A, {"is_plain"}),
        (Seq((A, Ref("y"), X)), {"is_plain"}),
        (Alt((A, X)), {"is_plain", "branches"}),
        (Rep(A, 0, None), {"is_plain"}),
        (Rep(DIGIT, 0, 39), {"is_plain", "splits"}),
        (Seq((A, Rep(X, 0, None))), {"is_plain", "repeats"}),
        (Rep(Seq((A, X)), 0, None), {"is_plain", "repeats", "splits"}),
        (Seq((A, NEVER)), {"branches"}),
        (Lit("é"), {"is_plain"}),
        (Lit("a\0"), set()),
        (Lit("\ud800"), set()),
        (Chars(CharSet.span(0, 9)), set()),
        (_nested(MAX_HEIGHT), {"is_plain"}),
        (_nested(MAX_HEIGHT + 1), set()),
        (_nested(5000), set()),
    ],
)
def test_a_look(expr: Expr, says: set[str]) -> None:
    look = look_of(expr)
    assert {name for name in ("is_plain", "branches", "repeats", "splits") if getattr(look, name)} == says


def test_the_rules_that_are_referred_to() -> None:
    assert look_of(Seq((X, Alt((Ref("y"), Rep(Ref("z"), 1, 2))), X))).refs == {"x", "y", "z"}
    assert look_of(EMPTY).refs == set()


def test_it_is_kept_and_no_part_of_the_value() -> None:
    seen, fresh = Seq((A, X)), Seq((A, X))
    text = repr(seen)
    assert look_of(seen) is look_of(seen)
    assert seen == fresh
    assert hash(seen) == hash(fresh)
    assert repr(seen) == text


def test_what_factoring_makes_is_made_once() -> None:
    rule = alt(Lit("abc"), Lit("abd"), X)
    grammar = Grammar({"root": rule, "x": Lit("y")})
    first, again = (factor_prefixes(grammar, Budget()).rules["root"] for _ in range(2))
    assert first == alt(seq(Lit("ab"), Chars(CharSet.of("cd"))), X)
    assert again is first


def test_schemas_share_the_rules_of_strings_keys_and_numbers() -> None:
    schemas: list[JsonValue] = [
        {"properties": {name: {"type": ["string", "number"]}, "a": {}}, "required": ["a"]} for name in ("ab", "ac")
    ]
    one, other = (schema_grammar(JsonSchema(schema), CompileOptions(), Budget())[0].rules for schema in schemas)
    shared = {name for name in one.keys() & other.keys() if one[name] is other[name]}
    assert {"chars", "char-escape", "key-chars", "key-char-escape", "number-tail", "number-unsigned"} <= shared
    assert any(name.startswith("key-other") for name in shared)
