"""Arguments as `<parameter=key>` elements: the schema's object, each declared key in its order, strings without quotes.

A string can't hold the closing tag, in this format nothing can escape it. Where a length bound and the closing tag together
pass the automaton limit, the bound is kept by counting no character after a `<` (`_counted`): fewer texts, all of them valid.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from converters.automata import (
    ANY_CHAR,
    ANY_TEXT,
    Dfa,
    concatenated,
    difference,
    intersection,
    of_charset,
    of_string,
    of_strings,
    repeated,
    to_expr,
    union,
)
from converters.automata import NOTHING as NO_TEXT
from converters.constraint import JsonSchema
from converters.errors import LimitExceeded, Unsatisfiable, UnsupportedFeature
from converters.grammar.charset import ANY, CharSet
from converters.grammar.expr import NEVER, Chars, Expr, RuleBook, alt, lit, opt, rep, seq
from converters.jsonschema.algebra import Algebra
from converters.jsonschema.build import build_schema
from converters.jsonschema.fact import term_of
from converters.jsonschema.keys import declared_keys, term_of_key, undeclared
from converters.jsonschema.lower import Lowering
from converters.jsonschema.shape import NOTHING, ObjectFacts, Shape, StringFacts, Term, Values
from converters.jsonschema.space import Space
from converters.limits import Budget
from converters.options import CompileOptions
from converters.tools.qwen import CLOSING, parameter_expr

_LESS = CharSet.of("<")
_LONGEST_GROUP = 3


def xml_arguments(
    schema: JsonSchema,
    texts: frozenset[str],
    book: RuleBook,
    options: CompileOptions,
    budget: Budget,
    write: Callable[[Expr, Expr], Expr] = parameter_expr,
) -> tuple[Expr, tuple[str, ...]]:
    """The elements of an object of `schema`, each made by `write` of its key and value; values of `texts` have no quotes."""
    built = build_schema(schema, budget)
    algebra = Algebra(Space(built, budget))
    lowering = _Elements(algebra, Lowering(algebra, options, book), texts, options, book, budget, write)
    arguments = lowering.run(term_of(built.root))
    if arguments == NEVER:
        raise Unsatisfiable("no arguments are valid", path="")
    return arguments, (*built.notes, *lowering.notes)


class _Elements:
    def __init__(
        self,
        algebra: Algebra,
        json: Lowering,
        texts: frozenset[str],
        options: CompileOptions,
        book: RuleBook,
        budget: Budget,
        write: Callable[[Expr, Expr], Expr],
    ) -> None:
        self.algebra = algebra
        self.json = json
        self.texts = texts
        self.options = options
        self.book = book
        self.budget = budget
        self.write = write
        self.notes: list[str] = []

    def run(self, term: Term) -> Expr:
        term = self.algebra.simplify(term)
        rank = self.json.rank(term)
        objects: dict[ObjectFacts, None] = {}
        for case in self.algebra.cases(term):
            if isinstance(case, Values):
                raise UnsupportedFeature("listed objects (enum, const) as parameters in this tool-call format", path="")
            if "object" in case.types:
                objects[case.objects] = None
        return alt(*(self.object(facts, rank) for facts in objects))

    def object(self, facts: ObjectFacts, rank: dict[str, int]) -> Expr:
        keys = sorted(declared_keys(facts), key=lambda key: rank.get(key, len(rank)))
        n_required = sum(key in facts.has for key in keys)
        if facts.some or facts.min > n_required:
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
        return seq(*elements, rep(others))

    def element(self, facts: ObjectFacts, key: str) -> Expr:
        """A declared parameter."""
        if not key or set(key) & set(">\n"):
            raise UnsupportedFeature(f"the parameter name {key!r}, which has a '>', a line end or nothing", path=facts.path)
        term = term_of_key(facts, key, self.algebra)
        if term == NOTHING:
            return NEVER
        value = self.text(term, key) if key in self.texts else self.value(term, key)
        return NEVER if value == NEVER else self.write(lit(key), self.book.add(f"value-{key[:24]}", value))

    def value(self, term: Term, hint: str) -> Expr:
        try:
            return self.json.run(term, hint)
        except Unsatisfiable:
            return NEVER

    def others(self, facts: ObjectFacts, declared: list[str]) -> Expr:
        """A parameter with an undeclared name."""
        if self.options.closed_objects and not any(members.explicit for members in facts.members):
            return NEVER
        writable = repeated(of_charset(ANY - CharSet.of(">\n")), 1, None, self.budget)
        unknown = difference(writable, of_strings(declared, self.budget), self.budget) if declared else writable
        options: list[Expr] = []
        for known in undeclared(facts, self.algebra):
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
        try:
            if (facts.min, facts.max) == (0, None):
                return to_expr(without_closing(ANY_TEXT, self.budget), self.book, "text")
            dfa = repeated(ANY_CHAR, facts.min, facts.max, self.budget)
            return to_expr(without_closing(dfa, self.budget), self.book, "text")
        except LimitExceeded as limit:
            if limit.limit != "automaton_bytes":
                raise
        self.notes.append(f"{key}: a text with '<' counts up to {_LONGEST_GROUP} characters as one towards maxLength")
        return _counted(facts)


def _counted(facts: StringFacts) -> Expr:
    """Strings whose length is counted in groups of at most three characters; `</` is in none, and none ends in `<`."""
    plain = Chars(ANY - _LESS)
    if facts.max is not None and facts.max // _LONGEST_GROUP < facts.min:
        return rep(plain, facts.min, facts.max)
    group = seq(rep(lit("<"), 1, _LONGEST_GROUP - 1), Chars(ANY - CharSet.of("</")))
    return rep(alt(plain, group), facts.min, None if facts.max is None else facts.max // _LONGEST_GROUP)


def without_closing(dfa: Dfa, budget: Budget) -> Dfa:
    """The texts of `dfa` that don't contain the closing tag of a parameter."""
    return difference(dfa, _with_closing(), budget, "a string parameter")


@cache
def _with_closing() -> Dfa:
    return concatenated([ANY_TEXT, of_string(CLOSING), ANY_TEXT], Budget())
