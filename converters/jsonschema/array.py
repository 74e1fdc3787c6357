"""Arrays as grammar: prefix items, the rest and counts directly; contains and uniqueItems as a small automaton over items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING

from converters.errors import UnsupportedFeature
from converters.grammar.expr import EMPTY, NEVER, Expr, Ref, alt, opt, rep, seq
from converters.jsonschema.shape import ANYTHING, ArrayFacts, Occurs, Shape, Term, Values
from converters.jsonschema.value import canonical_text

if TYPE_CHECKING:
    from converters.jsonschema.lower import Lowering

MAX_STATES = 1500
MAX_DISTINCT = 24


def array_expr(facts: ArrayFacts, lowering: Lowering, hint: str) -> Expr:
    """The JSON texts of the arrays of `facts`. Raises UnsupportedFeature for what has no small automaton."""
    facts = _counted(facts, lowering)
    if facts.max is not None and facts.min > facts.max:
        return NEVER
    needs_values = facts.distinct is not None and not _is_settled(facts, lowering)
    if facts.occurs or needs_values:
        content = _Walk(facts, lowering, hint, needs_values).content()
    else:
        content = _content(facts, lowering, hint) if facts.distinct is not False else NEVER
    return NEVER if content == NEVER else lowering.bracketed("[]", content)


def _counted(facts: ArrayFacts, lowering: Lowering) -> ArrayFacts:
    """Conditions that every item meets are counts: items of {"type": "null"} that contain a null → at least one item."""
    algebra, kept, low, n = lowering.algebra, [], facts.min, n_prefix(facts)
    base = term_at(facts, n, lowering)
    for occurs in facts.occurs:
        others = [algebra.simplify(base | {(node, not positive)}) for node, positive in occurs.item]
        if occurs.max is None and occurs.start >= n and all(algebra.is_empty(other) for other in others):
            low = max(low, occurs.start + occurs.min) if occurs.min else low
        else:
            kept.append(occurs)
    return replace(facts, occurs=tuple(kept), min=low)


def term_at(facts: ArrayFacts, i: int, lowering: Lowering) -> Term:
    """What item i must be."""
    terms = (e.prefix[i] if i < len(e.prefix) else e.rest for e in facts.elements)
    return lowering.algebra.simplify(frozenset().union(ANYTHING, *terms))


def n_prefix(facts: ArrayFacts) -> int:
    """From which item on all are ruled alike."""
    return max((len(elements.prefix) for elements in facts.elements), default=0)


def _is_settled(facts: ArrayFacts, lowering: Lowering) -> bool:
    """True when items differ anyway: there is at most one, or all that there can be exclude each other."""
    longest = facts.max
    if longest is None:
        n = n_prefix(facts)
        longest = n if lowering.algebra.is_empty(term_at(facts, n, lowering)) else None
    if longest is None or longest > 12:
        return False
    terms = [term_at(facts, i, lowering) for i in range(longest)]
    is_empty, simplify = lowering.algebra.is_empty, lowering.algebra.simplify
    return all(is_empty(simplify(a | b)) for i, a in enumerate(terms) for b in terms[:i])


def _content(facts: ArrayFacts, lowering: Lowering, hint: str) -> Expr:
    """Items and commas: the prefix from its end backwards, each item optional from `min` on."""
    comma, n = lowering.layout.comma, n_prefix(facts)
    if facts.max is not None:
        n = min(n, facts.max)
    high = None if facts.max is None else facts.max - n
    rest = NEVER if high == 0 else lowering.value(term_at(facts, n, lowering), f"{hint}-item")
    low = max(0, facts.min - n)
    if n == 0:
        if high == 0:
            return EMPTY if low == 0 else NEVER
        more = rep(seq(comma, rest), max(low - 1, 0), None if high is None else high - 1)
        return opt(seq(rest, more)) if low == 0 else seq(rest, more)
    more = EMPTY if high == 0 else rep(seq(comma, rest), low, high)
    for i in range(n - 1, -1, -1):
        item = lowering.value(term_at(facts, i, lowering), f"{hint}-item")
        more = seq(item, more) if i == 0 else seq(comma, item, more)
        if i >= facts.min:
            more = opt(more)
    return more


@dataclass(frozen=True, slots=True)
class _State:
    """How many items there were (as far as that matters), how many of each `contains`, which values, two equal ones."""

    n_items: int
    counts: tuple[int, ...]
    used: frozenset[str] = frozenset()
    repeated: bool = False


@dataclass(slots=True)
class _Walk:
    facts: ArrayFacts
    lowering: Lowering
    hint: str
    needs_values: bool
    _rests: dict[_State, Ref] = field(default_factory=dict)
    _todo: list[_State] = field(default_factory=list)
    _shared: dict[str, Ref] = field(default_factory=dict)

    def content(self) -> Expr:
        """The items between the brackets."""
        start = _State(0, tuple(0 for _ in self.facts.occurs))
        first = self._choice(start)
        while self._todo:
            state = self._todo.pop()
            some = seq(self.lowering.layout.comma, self._choice(state))
            self.lowering.book.define(self._rests[state], opt(some) if self._may_end(state) else some)
        return opt(first) if self._may_end(start) else first

    def _rest(self, state: _State) -> Ref:
        if state not in self._rests:
            if len(self._rests) >= MAX_STATES:
                raise UnsupportedFeature("contains or uniqueItems with too many combinations", path=self.facts.path)
            self._rests[state] = self.lowering.book.reserve(f"{self.hint}-rest")
            self._todo.append(state)
        return self._rests[state]

    def _may_end(self, state: _State) -> bool:
        enough = all(o.min <= count for o, count in zip(self.facts.occurs, state.counts, strict=True))
        return enough and state.n_items >= self.facts.min and (self.facts.distinct is not False or state.repeated)

    def _choice(self, state: _State) -> Expr:
        """One item and the rest, in every way."""
        facts = self.facts
        if facts.max is not None and state.n_items >= facts.max:
            return NEVER
        options: list[Expr] = []
        base = term_at(facts, min(state.n_items, n_prefix(facts)), self.lowering)
        for marks in product(*(self._marks(o, state, i) for i, o in enumerate(facts.occurs))):
            term = self.lowering.algebra.simplify(base.union(*(added for _, added in marks)))
            if self.lowering.algebra.is_empty(term):
                continue
            counts = tuple(c + is_one for (is_one, _), c in zip(marks, state.counts, strict=True))
            after = _State(self._cap(state.n_items + 1), counts, state.used, state.repeated)
            if self.needs_values:
                options.extend(self._of_values(term, after))
            else:
                options.append(seq(self.lowering.value(term, f"{self.hint}-item"), self._rest(after)))
        return alt(*options)

    def _cap(self, n: int) -> int:
        longest = self.facts.max
        relevant = [self.facts.min, n_prefix(self.facts), *(o.start for o in self.facts.occurs)]
        return n if longest is not None else min(n, max(relevant))

    def _marks(self, occurs: Occurs, state: _State, i: int) -> Iterator[tuple[int, Term]]:
        """The ways in which the next item can count for one `contains`: by how much, and what it must be for that."""
        count = state.counts[i]
        if state.n_items < occurs.start or (occurs.max is None and count >= occurs.min):
            yield 0, ANYTHING
            return
        if occurs.max is None or count < occurs.max:
            yield 1, occurs.item
        if occurs.max is None:
            yield 0, ANYTHING  # whether it counts doesn't matter: a later one may
        else:
            for case in self._outside(occurs.item):
                yield 0, case

    def _outside(self, item: Term) -> Iterator[Term]:
        """The negation of a term, as terms: one literal of it fails."""
        for node, positive in item:
            yield self.lowering.algebra.simplify(frozenset({(node, not positive)}))

    def _of_values(self, term: Term, after: _State) -> Iterator[Expr]:
        """The item as one of finitely many values, each remembered."""
        for text, expr in self._values(term):
            if text not in after.used:
                yield seq(expr, self._rest(_State(after.n_items, after.counts, after.used | {text}, after.repeated)))
            elif self.facts.distinct is False:
                yield seq(expr, self._rest(_State(after.n_items, after.counts, after.used, True)))

    def _values(self, term: Term) -> list[tuple[str, Expr]]:
        found: dict[str, object] = {}
        for case in self.lowering.algebra.cases(term):
            match case:
                case Values(texts, values):
                    found |= zip(texts, values, strict=True)
                case Shape(types, booleans) if types <= {"null", "boolean"}:
                    listed: list[bool | None] = [None] if "null" in types else []
                    listed += sorted(booleans) if "boolean" in types else []
                    found |= {canonical_text(value): value for value in listed}
                case _:
                    raise UnsupportedFeature("uniqueItems of items that aren't finitely many", path=self.facts.path)
        if len(found) > MAX_DISTINCT:
            raise UnsupportedFeature(f"uniqueItems of more than {MAX_DISTINCT} values", path=self.facts.path)
        return [(text, self._value(text, value)) for text, value in found.items()]

    def _value(self, text: str, value: object) -> Expr:
        """A rule for one value, which stands in many states."""
        if text not in self._shared:
            expr = self.lowering.listed({text: value})
            self._shared[text] = self.lowering.book.add(f"{self.hint}-value", expr)
        return self._shared[text]
