"""From cases to grammar: one rule per term, the texts of each JSON type side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction

from converters.automata import JSON, to_expr, union
from converters.automata import NOTHING as NO_TEXT
from converters.errors import LimitExceeded, Unsatisfiable
from converters.grammar.expr import EMPTY, NEVER, Expr, Ref, Rep, RuleBook, alt, lit, opt, seq
from converters.jsonschema import number
from converters.jsonschema import schema as s
from converters.jsonschema.algebra import Algebra
from converters.jsonschema.array import array_expr
from converters.jsonschema.build import in_place
from converters.jsonschema.layout import layout_of
from converters.jsonschema.library import Library
from converters.jsonschema.object import object_expr
from converters.jsonschema.shape import (
    ANY_ARRAY,
    ANY_NUMBER,
    ANY_OBJECT,
    ANY_STRING,
    ArrayFacts,
    Case,
    NumberFacts,
    ObjectFacts,
    Shape,
    StringFacts,
    Term,
    Values,
)
from converters.jsonschema.value import decimal_text, exact, key_texts
from converters.limits import Budget
from converters.options import CompileOptions


class Lowering:
    """Writes terms as rules of one book; equal terms share a rule, which makes recursion free."""

    def __init__(self, algebra: Algebra, options: CompileOptions, book: RuleBook) -> None:
        self.algebra = algebra
        self.options = options
        self.book = book
        self.layout = layout_of(options, book, algebra.space.budget)
        library = Library.of(book, algebra.space.budget)
        self.keys = library.keys
        self._characters = library.characters
        self._scalar_rules = library.scalars
        self._values: dict[Term, Expr] = {}
        self._shared: dict[object, Expr] = {}
        self._todo: list[tuple[Ref, Term, tuple[Case, ...], str]] = []

    def run(self, term: Term, hint: str) -> Expr:
        """The expression of a whole schema, every rule it needs defined. Raises Unsatisfiable when it has no value."""
        expr = self.value(term, hint)
        while self._todo:
            self.algebra.space.budget.tick()
            ref, at, cases, name = self._todo.pop()
            self.book.define(ref, self._composed(at, cases, name))
        if expr == NEVER:
            raise Unsatisfiable("no value is valid", path="")
        return expr

    def value(self, term: Term, hint: str) -> Expr:
        """The texts of a term's values; a rule, defined later, where arrays or objects are among them."""
        term = self.algebra.simplify(term)
        if term not in self._values:
            cases = self.algebra.cases(term)
            if all(isinstance(case, Values) or not case.types & {"array", "object"} for case in cases):
                self._values[term] = self._scalars(cases)
            else:
                ref = self.book.reserve(hint[:40])
                self._values[term] = ref
                self._todo.append((ref, term, cases, ref.name))
        return self._values[term]

    def bracketed(self, brackets: str, content: Expr) -> Expr:
        """`content` in its two brackets, with the whitespace that the layout allows inside them."""
        left, right = map(lit, brackets)
        inside, blank = self.layout.inside, self.layout.blank
        if isinstance(content, Rep) and (content.min, content.max) == (0, 1):
            return seq(left, alt(seq(inside, content.item, inside, right), seq(blank, right)))
        return seq(left, seq(inside, content, inside) if content != EMPTY else blank, right)

    def _composed(self, term: Term, cases: tuple[Case, ...], hint: str) -> Expr:
        shapes = [case for case in cases if isinstance(case, Shape)]
        options: list[Expr] = []
        objects = dict.fromkeys(case.objects for case in shapes if "object" in case.types)
        if len(objects) > 1 and ANY_OBJECT in objects and not self.options.closed_objects:
            objects = {ANY_OBJECT: None}
        rank = self.rank(term) if objects else {}
        options += [self._shared_rule(facts, rank, hint) for facts in objects]
        arrays = dict.fromkeys(case.arrays for case in shapes if "array" in case.types)
        if len(arrays) > 1 and ANY_ARRAY in arrays:
            arrays = {ANY_ARRAY: None}
        options += [self._shared_rule(facts, {}, hint) for facts in arrays]
        return alt(*options, self._scalars(cases))

    def _shared_rule(self, facts: ObjectFacts | ArrayFacts, rank: Mapping[str, int], hint: str) -> Expr:
        """The plain object and array are rules shared by all."""
        if isinstance(facts, ArrayFacts):
            if facts != ANY_ARRAY:
                return array_expr(facts, self, hint)
            if facts not in self._shared:
                self._shared[facts] = self.book.add("array", array_expr(facts, self, "array"))
            return self._shared[facts]
        if facts != ANY_OBJECT:
            return object_expr(facts, rank, self, hint)
        if facts not in self._shared:
            self._shared[facts] = self.book.add("object", object_expr(facts, {}, self, "object"))
        return self._shared[facts]

    def _scalars(self, cases: Iterable[Case]) -> Expr:
        """Strings, numbers, booleans, null, and whatever is listed."""
        strings: dict[StringFacts, None] = {}
        numbers: dict[NumberFacts, None] = {}
        listed: dict[str, object] = {}
        words: set[str] = set()
        for case in cases:
            match case:
                case Values(texts, values):
                    listed |= zip(texts, values, strict=True)
                case Shape(types, booleans):
                    strings |= {case.strings: None} if "string" in types else {}
                    numbers |= {case.numbers: None} if "number" in types else {}
                    words |= {"true" if b else "false" for b in booleans} if "boolean" in types else set()
                    words |= {"null"} if "null" in types else set()
        return alt(self._strings(strings), self._numbers(numbers), self.listed(listed, words))

    def _strings(self, several: Mapping[StringFacts, None]) -> Expr:
        if not several:
            return NEVER
        if len(several) > 1 and ANY_STRING in several:
            several = {ANY_STRING: None}
        structural = [facts for facts in several if not facts.tests and not facts.excluded]
        options = [self._string(facts) for facts in structural]
        others = [facts for facts in several if facts not in structural]
        if len(others) > 1 and (joined := self._joined(others)) is not None:
            return alt(*options, joined)
        return alt(*options, *map(self._string, others))

    def _joined(self, several: Iterable[StringFacts]) -> Expr | None:
        """Several languages as one, so that they are walked once; None when that is too large."""
        dfa = NO_TEXT
        try:
            for facts in several:
                dfa = union(dfa, self.algebra.strings.language(facts), self.algebra.space.budget)
        except LimitExceeded:
            return None
        return seq(lit('"'), to_expr(dfa, self.book, "text", JSON, self.algebra.space.budget), lit('"'))

    def _string(self, facts: StringFacts) -> Expr:
        if facts not in self._scalar_rules:
            expr = self.algebra.strings.expr(facts, self.book, self._characters)
            self._scalar_rules[facts] = self.book.add("string", expr)
        return self._scalar_rules[facts]

    def _numbers(self, several: Mapping[NumberFacts, None]) -> Expr:
        if len(several) > 1 and ANY_NUMBER in several:
            several = {ANY_NUMBER: None}
        return alt(*map(self._number, several))

    def _number(self, facts: NumberFacts) -> Expr:
        integers = self.algebra.space.integers
        key = (facts, integers)
        if key not in self._scalar_rules:
            if number.is_plain(facts):
                hint = "integer" if facts.integral else "number"
                expr = number.plain_expr(hint, bool(facts.integral), integers, self.book)
                self._scalar_rules[key] = self.book.add(hint, expr)
            else:
                dfa = number.number_dfa(facts, integers, self.algebra.space.budget)
                expr = to_expr(dfa, self.book, "number", None, self.algebra.space.budget)
                self._scalar_rules[key] = expr if isinstance(expr, Ref) or expr == NEVER else self.book.add("number", expr)
        return self._scalar_rules[key]

    def listed(self, values: Mapping[str, object], words: Iterable[str] = ()) -> Expr:
        """Single values: one trie of all plain texts; arrays and objects, which have gaps, one by one."""
        texts: dict[str, None] = dict.fromkeys(sorted(words))
        composed: list[Expr] = []
        budget = self.algebra.space.budget
        for value in values.values():
            budget.tick()
            if isinstance(value, (Mapping, list, tuple)):
                composed.append(self._literal(value))
            else:
                texts |= dict.fromkeys(self._texts(value))
        return alt(*composed, _any_of(list(texts), budget))

    def _texts(self, value: object) -> tuple[str, ...]:
        """The spellings of a null, boolean, string or number."""
        match value:
            case None:
                return ("null",)
            case bool():
                return ("true" if value else "false",)
            case str():
                return key_texts(value)
            case int() | float() | Decimal():
                return self._number_texts(exact(value), value)
            case _:
                raise TypeError(type(value).__name__)

    def _number_texts(self, number: Fraction, value: object) -> tuple[str, ...]:
        text = decimal_text(number)
        if number.denominator != 1:
            return (text,)
        integers = self.algebra.space.integers
        if integers != "value" and isinstance(value, int):
            return (text,)
        if integers == "text":
            return (f"{text}.0",)
        return (text, f"{text}.0") if number else ("0", "0.0", "-0", "-0.0")

    def _literal(self, value: object) -> Expr:
        """One value, keys in its own order."""
        comma, colon = self.layout.comma, self.layout.colon
        budget = self.algebra.space.budget
        budget.tick()
        match value:
            case Mapping():
                members = [seq(_any_of(key_texts(key), budget), colon, self._literal(item)) for key, item in value.items()]
                parts, brackets = members, "{}"
            case list() | tuple():
                parts, brackets = [self._literal(item) for item in value], "[]"
            case _:
                return _any_of(self._texts(value), budget)
        content = seq(*(part if i == 0 else seq(comma, part) for i, part in enumerate(parts)))
        return self.bracketed(brackets, content)

    def rank(self, term: Term) -> dict[str, int]:
        """The declared order of keys: a schema's own properties, then in turn those of everything that it combines."""
        order: dict[str, int] = {}
        todo, seen = [node for node, _ in sorted(term, reverse=True)], set()
        while todo:
            node, _ = self.algebra.space.alias((todo.pop(), True))
            if node in seen:
                continue
            seen.add(node)
            for what in self.algebra.space.nodes[node].assertions:
                if isinstance(what, s.Properties):
                    for key, _ in what.declared:
                        order.setdefault(key, len(order))
            todo.extend(reversed(in_place(self.algebra.space.nodes[node])))
        return order


def _any_of(texts: Iterable[str], budget: Budget) -> Expr:
    """One of the texts, some of which may begin others (1 and 1.0)."""
    ends = list(texts)
    return _prefix_tree(ends, budget) if ends else NEVER


def _prefix_tree(texts: list[str], budget: Budget) -> Expr:
    budget.tick()
    groups: dict[str, list[str]] = {}
    for text in texts:
        if text:
            groups.setdefault(text[0], []).append(text)
    options: list[Expr] = []
    for group in groups.values():
        low, high = min(group), max(group)
        n = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
        options.append(
            lit(group[0]) if len(group) == 1 else seq(lit(low[:n]), _prefix_tree([text[n:] for text in group], budget))
        )
    found = alt(*options)
    return opt(found) if "" in texts else found
