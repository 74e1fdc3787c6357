"""Arguments as `<parameter=key>` elements: the schema's object, each declared key in its order, strings without quotes.

A string can't hold the closing tag: nothing in this format can escape it. A long length bound is not held by an automaton that
also knows the closing tag (it would have a dozen states a character), but by counting (`_counted`): fewer texts, all valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from converters.automata import (
    ANY_TEXT,
    Dfa,
    concatenated,
    difference,
    intersection,
    of_charset,
    of_length,
    of_string,
    of_strings,
    repeated,
    to_expr,
    union,
)
from converters.automata import NOTHING as NO_TEXT
from converters.constraint import JsonSchema
from converters.errors import Unsatisfiable, UnsupportedFeature
from converters.grammar.charset import ANY, CharSet
from converters.grammar.expr import NEVER, Chars, Expr, RuleBook, alt, lit, opt, rep, seq
from converters.jsonschema.algebra import Algebra
from converters.jsonschema.build import build_schema
from converters.jsonschema.fact import term_of
from converters.jsonschema.keys import declared_keys, term_of_key
from converters.jsonschema.lower import Lowering
from converters.jsonschema.object import open_classes
from converters.jsonschema.relax import relaxing
from converters.jsonschema.shape import NOTHING, ObjectFacts, Shape, StringFacts, Term, Values
from converters.jsonschema.space import Space
from converters.limits import Budget
from converters.options import CompileOptions
from converters.tools.qwen import CLOSING, parameter_expr

_LESS = CharSet.of("<")
_LONGEST_GROUP = 3
_LONGEST_EXACT = 64


def xml_arguments(
    schema: JsonSchema,
    texts: frozenset[str],
    book: RuleBook,
    options: CompileOptions,
    budget: Budget,
    write: Callable[[Expr, Expr], Expr] = parameter_expr,
) -> tuple[Expr, tuple[str, ...]]:
    """The elements of an object of `schema`, each made by `write` of its key and value; values of `texts` have no quotes."""

    def lower(schema: JsonSchema, book: RuleBook) -> tuple[Expr, tuple[str, ...]]:
        built = build_schema(schema, budget, plain_integers=options.plain_integers)
        algebra = Algebra(Space(built, budget))
        lowering = _Elements(algebra, Lowering(algebra, options, book), texts, book, budget, write)
        arguments = lowering.run(term_of(built.root))
        if arguments == NEVER:
            raise Unsatisfiable("no arguments are valid", path="")
        return arguments, (*built.notes, *lowering.notes)

    return relaxing(schema, book, options, budget, "arguments", lower) if options.lenient else lower(schema, book)


class _Elements:
    def __init__(
        self,
        algebra: Algebra,
        lowering: Lowering,
        texts: frozenset[str],
        book: RuleBook,
        budget: Budget,
        write: Callable[[Expr, Expr], Expr],
    ) -> None:
        self.algebra = algebra
        self.json = lowering
        self.texts = texts
        self.book = book
        self.budget = budget
        self.write = write
        self.notes: list[str] = []

    def run(self, term: Term) -> Expr:
        term = self.algebra.simplify(term)
        rank = self.json.rank(term)
        objects: dict[ObjectFacts, None] = {}
        options: list[Expr] = []
        for case in self.algebra.cases(term):
            match case:
                case Values(_, values):
                    options += [self.listed(value) for value in values if isinstance(value, Mapping)]
                case Shape(types, objects=facts) if "object" in types:
                    objects[facts] = None
        return alt(*options, *(self.object(facts, rank) for facts in objects))

    def listed(self, value: Mapping[str, object]) -> Expr:
        """One object that `enum` or `const` lists."""
        elements: list[Expr] = []
        for key, member in value.items():
            if isinstance(member, str) and key in self.texts:
                text = NEVER if CLOSING in member else lit(member)
            else:
                text = self.json.listed({key: member})
            elements.append(self.write(lit(_writable(key, "")), text))
        return seq(*elements)

    def object(self, facts: ObjectFacts, rank: dict[str, int]) -> Expr:
        keys = sorted(declared_keys(facts), key=lambda key: rank.get(key, len(rank)))
        n_required = sum(key in facts.has for key in keys)
        n_missing = max(0, facts.min - n_required)
        if facts.some or n_missing > (n_required == len(keys)):  # of two without a name, both might be the same
            raise UnsupportedFeature("parameters that must be there without a name, in this tool-call format", path=facts.path)
        others = self.others(facts, keys)
        if facts.max is not None and (facts.max < len(keys) or others != NEVER):
            raise UnsupportedFeature("maxProperties of parameters in this tool-call format", path=facts.path)
        elements: list[Expr] = []
        for key in keys:
            element = self.element(facts, key)
            if element == NEVER and key in facts.has:
                return NEVER
            elements.append(element if key in facts.has else opt(element))
        return seq(*elements, rep(others, n_missing))

    def element(self, facts: ObjectFacts, key: str) -> Expr:
        """A declared parameter."""
        term = term_of_key(facts, key, self.algebra)
        if term == NOTHING:
            return NEVER
        value = self.text(term, key) if key in self.texts else self.value(term, key)
        return (
            NEVER if value == NEVER else self.write(lit(_writable(key, facts.path)), self.book.add(f"value-{key[:24]}", value))
        )

    def value(self, term: Term, hint: str) -> Expr:
        try:
            return self.json.run(term, hint)
        except Unsatisfiable:
            return NEVER

    def others(self, facts: ObjectFacts, declared: list[str]) -> Expr:
        """A parameter with an undeclared name."""
        classes = open_classes(facts, self.json)
        if not classes:
            return NEVER
        writable = repeated(of_charset(ANY - CharSet.of(">\n")), 1, None, self.budget)
        unknown = difference(writable, of_strings(declared, self.budget), self.budget) if declared else writable
        options: list[Expr] = []
        for known in classes:
            keys = unknown if known.keys is None else intersection(known.keys, unknown, self.budget)
            value = self.value(known.value, "more")
            if value != NEVER and not keys.is_empty():
                options.append(self.write(to_expr(keys, self.book, "key"), value))
        return alt(*options)

    # ---- strings without quotes

    def text(self, term: Term, key: str) -> Expr:
        """The strings of `term`, as they are."""
        dfa = NO_TEXT
        options: list[Expr] = []
        for case in self.algebra.cases(self.algebra.simplify(term)):
            match case:
                case Values(_, values) if all(isinstance(value, str) for value in values):
                    dfa = union(dfa, of_strings(map(str, values), self.budget), self.budget)
                case Shape(types, strings=facts) if types == {"string"}:
                    if facts.tests or facts.excluded:
                        dfa = union(dfa, self.algebra.strings.language(facts), self.budget)
                    else:
                        options.append(self.length(facts, key))
                case _:
                    raise UnsupportedFeature(f"the parameter {key!r}, whose values are strings and others", path="")
        return alt(*options, to_expr(without_closing(dfa, self.budget), self.book, "text"))

    def length(self, facts: StringFacts, key: str) -> Expr:
        """Strings that only their length tells."""
        if max(facts.min, facts.max or 0) <= _LONGEST_EXACT:
            dfa = of_length(facts.min, facts.max)
            return to_expr(without_closing(dfa, self.budget), self.book, "text")
        self.notes.append(f"{key}: a text with '<' in it is held to a third of its maxLength")
        return _counted(facts)


def _writable(key: str, path: str) -> str:
    """A key that can stand in a tag. Raises UnsupportedFeature."""
    if not key or set(key) & set(">\n"):
        raise UnsupportedFeature(f"the parameter name {key!r}, which is empty or has a '>' or a line end", path=path)
    return key


def _counted(facts: StringFacts) -> Expr:
    """Strings whose length is counted: those without `<` exactly; others in groups of at most three characters.

    `</` is in no group, and none ends in `<`.
    """
    plain = Chars(ANY - _LESS)
    group = seq(rep(lit("<"), 1, _LONGEST_GROUP - 1), Chars(ANY - CharSet.of("</")))
    if facts.max is None:
        return rep(alt(plain, group), facts.min)
    high = facts.max // _LONGEST_GROUP
    grouped = rep(alt(plain, group), facts.min, high) if high >= facts.min else NEVER
    return alt(rep(plain, facts.min, facts.max), grouped)


def without_closing(dfa: Dfa, budget: Budget) -> Dfa:
    """The texts of `dfa` that don't contain the closing tag of a parameter."""
    return difference(dfa, _with_closing(), budget, "a string parameter")


@cache
def _with_closing() -> Dfa:
    return concatenated([ANY_TEXT, of_string(CLOSING), ANY_TEXT], Budget())
