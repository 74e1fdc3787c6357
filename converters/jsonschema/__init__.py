"""JSON Schema, drafts 4 to 2020-12, to grammar (spec section 5).

build      JSON → typed schema                                       (schema, reference)
algebra    a conjunction of schemas → its cases                      (shape, fact, inhabited, evaluate, keys)
lower      cases → grammar                                           (object, member, array, string, number, formats, layout)
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from converters.constraint import AnyJson, JsonSchema, JsonValue
from converters.errors import LimitExceeded, UnsupportedFeature
from converters.grammar.expr import Expr, Grammar, RuleBook
from converters.jsonschema.algebra import Algebra
from converters.jsonschema.build import build_schema
from converters.jsonschema.fact import term_of
from converters.jsonschema.lower import Lowering
from converters.jsonschema.relax import without_culprit
from converters.jsonschema.space import Space
from converters.limits import Budget
from converters.options import CompileOptions, Relaxation

MAX_RELAXATIONS = 64

Result = tuple[Grammar, tuple[Relaxation, ...], tuple[str, ...]]


def schema_grammar(constraint: JsonSchema | AnyJson, options: CompileOptions, budget: Budget) -> Result:
    """The grammar of a schema's values, what was relaxed, and notes for the caller.

    Raises InvalidSource, UnsupportedFeature, Unsatisfiable (each with a JSON pointer) and LimitExceeded. With
    `options.lenient` a keyword that can't be expressed is left out and listed.
    """
    relaxed: list[Relaxation] = []
    while True:
        book = RuleBook()
        try:
            expr, notes = lower_schema(constraint, book, options, budget)
            return book.build(expr), tuple(relaxed), notes
        except (UnsupportedFeature, LimitExceeded) as error:
            wider = without_culprit(constraint.schema, error.path or "") if isinstance(constraint, JsonSchema) else None
            if not options.lenient or wider is None or len(relaxed) == MAX_RELAXATIONS:
                raise
            assert isinstance(constraint, JsonSchema)
            schema, path = wider
            constraint = replace(constraint, schema=cast(JsonValue, schema))
            relaxed.append(Relaxation(path, error.reason))


def lower_schema(
    constraint: JsonSchema | AnyJson, book: RuleBook, options: CompileOptions, budget: Budget, hint: str = "value"
) -> tuple[Expr, tuple[str, ...]]:
    """The same inside another grammar: rules go into `book`; returns the expression of one value, and notes. Never lenient."""
    if isinstance(constraint, AnyJson):
        constraint = JsonSchema({"type": "object"} if constraint.object_only else True)
    schema = build_schema(constraint, budget)
    lowering = Lowering(Algebra(Space(schema, budget)), options, book)
    return lowering.run(term_of(schema.root), hint), schema.notes
