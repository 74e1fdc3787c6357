"""JSON Schema, drafts 4 to 2020-12, to grammar (spec section 5).

build      JSON → typed schema                                       (schema, reference)
algebra    a conjunction of schemas → its cases                      (shape, fact, inhabited, evaluate, keys)
lower      cases → grammar                                           (object, member, array, string, number, formats, layout)
"""

from __future__ import annotations

from converters.constraint import AnyJson, JsonSchema
from converters.grammar.expr import Expr, Grammar, RuleBook
from converters.jsonschema.algebra import Algebra
from converters.jsonschema.build import build_schema
from converters.jsonschema.fact import term_of
from converters.jsonschema.lower import Lowering
from converters.jsonschema.relax import relaxing
from converters.jsonschema.space import Space
from converters.limits import Budget
from converters.options import CompileOptions


def schema_grammar(
    constraint: JsonSchema | AnyJson, options: CompileOptions, budget: Budget
) -> tuple[Grammar, tuple[str, ...]]:
    """The grammar of a schema's values, and notes for the caller.

    Raises InvalidSource, UnsupportedFeature, Unsatisfiable (each with a JSON pointer) and LimitExceeded. With
    `options.lenient` a keyword that can't be expressed is left out and listed in `budget.relaxed`.
    """
    book = RuleBook()
    expr, notes = lower_schema(constraint, book, options, budget)
    return book.build(expr), notes


def lower_schema(
    constraint: JsonSchema | AnyJson, book: RuleBook, options: CompileOptions, budget: Budget, hint: str = "value"
) -> tuple[Expr, tuple[str, ...]]:
    """The same inside another grammar: rules go into `book`; returns the expression of one value, and notes."""
    if isinstance(constraint, AnyJson):
        constraint = JsonSchema({"type": "object"} if constraint.object_only else True)

    def lower(schema: JsonSchema, book: RuleBook) -> tuple[Expr, tuple[str, ...]]:
        built = build_schema(schema, budget, plain_integers=options.plain_integers)
        lowering = Lowering(Algebra(Space(built, budget)), options, book)
        return lowering.run(term_of(built.root), hint), built.notes

    return relaxing(constraint, book, options, budget, hint, lower) if options.lenient else lower(constraint, book)
