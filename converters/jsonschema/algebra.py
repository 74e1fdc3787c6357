"""From a term (a conjunction of schemas and negated schemas) to its cases: allOf, anyOf, oneOf, not, if, $ref worked out.

The union of a term's cases is exactly the term. Only what can be proved empty is left out, so a weak proof costs size,
never exactness: a oneOf option is "this one and none of the others", and another is dropped only where both together are
proved impossible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from converters.errors import UnsupportedFeature
from converters.jsonschema import schema as s
from converters.jsonschema.evaluate import Evaluator
from converters.jsonschema.fact import Claim, Option, SomeKey, add_fact, negated, negated_node
from converters.jsonschema.inhabited import Inhabited
from converters.jsonschema.keys import is_met, term_of_key
from converters.jsonschema.shape import ANYTHING, NOTHING, Case, Literal, ObjectFacts, Shape, Term, Values, conjunction
from converters.jsonschema.space import Space
from converters.jsonschema.string import Strings
from converters.jsonschema.unevaluated import scenarios
from converters.record import record

MAX_CASES = 400
_MAX_DEPTH = 24


@record
class Branch:
    """One of `options` must hold, each a conjunction. `exclusive`: exactly one node of them (oneOf)."""

    path: str
    options: tuple[Option, ...]
    exclusive: bool = False


@dataclass(slots=True)
class _Partial:
    """A case in the making: the facts so far and the branches still open."""

    shape: Shape = field(default_factory=Shape)
    seen: set[Literal] = field(default_factory=set)
    branches: list[Branch] = field(default_factory=list)
    claims: tuple[Claim, ...] = ()
    finite: s.Finite | None = None

    def copy(self) -> _Partial:
        return _Partial(self.shape, set(self.seen), list(self.branches), self.claims, self.finite)


class Algebra:
    """Works out terms over one space of nodes; every answer is remembered."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.strings = Strings(space.budget)
        self.evaluator = Evaluator(space, self.strings.test)
        self.inhabited = Inhabited(self)
        self._cases: dict[Term, tuple[Case, ...]] = {}
        self._open: set[Term] = set()

    def simplify(self, term: Term) -> Term:
        """The term with nodes that only point to another one replaced by it."""
        return conjunction(frozenset(map(self.space.alias, term)))

    def cases(self, term: Term) -> tuple[Case, ...]:
        """The cases whose union is `term`. Raises UnsupportedFeature when there are too many."""
        if term not in self._cases:
            self._open.add(term)
            try:
                cases = tuple(self._work_out(term))
                self._cases[term] = cases if len(cases) < 2 else tuple(dict.fromkeys(cases))
            finally:
                self._open.discard(term)
        return self._cases[term]

    def is_empty(self, term: Term) -> bool:
        """True when the term is proved to have no value."""
        if term == NOTHING:
            return True
        if term == ANYTHING or term in self._open or len(self._open) > _MAX_DEPTH:
            return False
        return not self.cases(term)

    def _work_out(self, term: Term) -> Iterator[Case]:
        if term == NOTHING:
            return
        partial = _Partial()
        if not self._assume(partial, term):
            return
        for n, case in enumerate(self._explore(partial.copy())):
            if n >= MAX_CASES:
                culprit = min(branch.path for branch in partial.branches) if partial.branches else ""
                raise UnsupportedFeature(f"combinations that come to more than {MAX_CASES} cases", path=culprit)
            yield case

    def _explore(self, partial: _Partial) -> Iterator[Case]:
        self.space.budget.tick()
        if partial.finite:
            if values := self._values(partial):
                yield values
            return
        shape = self.inhabited.narrowed(partial.shape)
        if shape is None:
            return
        partial.shape = shape
        if not partial.branches:
            yield shape
            return
        branch = partial.branches.pop(0)
        if not branch.exclusive and any(self._follows(partial, option) for option in branch.options):
            yield from self._explore(partial)
            return
        options = self._exclusive(partial, branch) if branch.exclusive else self._inclusive(partial, branch)
        for option in options:
            yield from self._explore(option)

    def _follows(self, partial: _Partial, option: Option) -> bool:
        """True when the case so far is proved to meet all of `option`, so that its branch says nothing new."""
        return all(self._claim_follows(partial, what, positive) for what, positive in option)

    def _claim_follows(self, partial: _Partial, what: s.NodeId | s.Assertion, positive: bool) -> bool:
        if isinstance(what, int):
            return self.space.alias((what, positive)) in partial.seen
        shape = partial.shape
        match what:
            case s.TypeIs(_, types, False) if positive:
                return shape.types <= types
            case s.Required(_, keys) if positive:
                return shape.types <= {"object"} and set(keys) <= set(shape.objects.has)
            case s.Properties(_, declared, (), s.ALWAYS) if positive and shape.types <= {"object"}:
                return all(self._has_value(shape.objects, key, (node, True)) for key, node in declared)
            case SomeKey(_, some) if shape.types <= {"object"}:
                return is_met(shape.objects, some, self)
            case _:
                return False

    def _has_value(self, facts: ObjectFacts, key: str, literal: Literal) -> bool:
        """True when a member `key`, if it is there at all, is proved to be of `literal`."""
        node, positive = self.space.alias(literal)
        return self.is_empty(self.simplify(term_of_key(facts, key, self) | {(node, not positive)}))

    def _values(self, partial: _Partial) -> Values | None:
        """The finite values for which all else holds; the evaluator is the judge, so no branch need be explored."""
        assert partial.finite is not None
        kept = self.evaluator.selected(partial.finite, partial.claims)
        return Values(tuple(text for text, _ in kept), tuple(value for _, value in kept)) if kept else None

    def _is_impossible(self, partial: _Partial) -> bool:
        if partial.finite:
            return self._values(partial) is None
        shape = self.inhabited.narrowed(partial.shape)
        partial.shape = shape or partial.shape
        return shape is None

    def _inclusive(self, partial: _Partial, branch: Branch) -> Iterator[_Partial]:
        for option in branch.options:
            extended = partial.copy()
            if self._assume(extended, option):
                yield extended

    def _exclusive(self, partial: _Partial, branch: Branch) -> Iterator[_Partial]:
        """Each option with the negation of every other one that may hold beside it."""
        for i, option in enumerate(branch.options):
            extended = partial.copy()
            if not self._assume(extended, option) or self._is_impossible(extended):
                continue
            others = [claims for j, claims in enumerate(branch.options) if j != i]
            doubtful = [claims for claims in others if self._compatible(extended, option, claims)]
            if self._assume(extended, [(what, not positive) for claims in doubtful for what, positive in claims]):
                yield extended

    def _compatible(self, partial: _Partial, mine: Option, other: Option) -> bool:
        """False when `other` is proved impossible beside `partial`, which claims `mine` already.

        The claims of the whole are left out: that not both hold is among them, and it would prove itself.
        """
        both = partial.copy()
        both.branches, both.claims = [], mine
        if not self._assume(both, other):
            return False
        both.branches = [b for b in both.branches if not b.exclusive][:4]
        both.branches.sort(key=lambda branch: len(branch.options))
        return self._possible(both, 3)

    def _possible(self, partial: _Partial, depth: int) -> bool:
        """False when the partial case, its first few branches explored, is proved empty."""
        self.space.budget.tick()
        if self._is_impossible(partial):
            return False
        if not partial.branches or not depth or partial.finite:
            return True
        branch = partial.branches.pop(0)
        return any(self._possible(option, depth - 1) for option in self._inclusive(partial, branch))

    def _assume(self, partial: _Partial, claims: Iterable[Claim]) -> bool:
        """Add claims and what follows from them at once. False when that is a contradiction."""
        todo = list(claims)[::-1]
        partial.claims += tuple(todo)
        while todo:
            what, positive = todo.pop()
            if isinstance(what, int):
                literal = self.space.alias((what, positive))
                if literal in partial.seen:
                    continue
                if (literal[0], not literal[1]) in partial.seen:
                    return False
                partial.seen.add(literal)
                todo.extend(reversed(self._opened(partial, *literal)))
                continue
            if isinstance(what, s.Finite) and positive:
                if partial.finite is None or len(what.texts) < len(partial.finite.texts):
                    partial.finite = what
                continue
            step = self._step(what, positive)
            if isinstance(step, Branch):
                if len(step.options) == 1:
                    todo.extend(reversed(step.options[0]))
                elif not step.options:
                    return False
                else:
                    partial.branches.append(step)
            elif isinstance(step, list):
                todo.extend(reversed(step))
            else:
                shape = add_fact(partial.shape, step, positive)
                if shape is None:
                    return False
                partial.shape = shape
        return True

    def _opened(self, partial: _Partial, node: s.NodeId, positive: bool) -> list[Claim]:
        """What a node's literal says: all of its assertions, or that one of them fails."""
        if node == s.ALWAYS:
            return [] if positive else [(s.Impossible(""), True)]
        assertions = self.space.nodes[node].assertions
        scoped = [a for a in assertions if isinstance(a, (s.UnevaluatedProperties, s.UnevaluatedItems))]
        if scoped:  # the scope repeats the other assertions
            assertions = tuple(scoped)
        if positive:
            return [(assertion, True) for assertion in assertions]
        if len(assertions) == 1:
            return [(assertions[0], False)]
        options = tuple(negated_node(assertions, self.space))
        if len(options) == 1:
            return list(options[0])
        partial.branches.append(Branch(self.space.nodes[node].path, options))
        return []

    def _step(self, what: s.Assertion, positive: bool) -> Branch | list[Claim] | s.Assertion:
        """A combination taken apart: claims that must all hold, a branch, or the assertion itself when it is a plain fact."""
        match what:
            case s.AllOf(path, nodes):
                return [(n, True) for n in nodes] if positive else Branch(path, tuple(((n, False),) for n in nodes))
            case s.AnyOf(path, nodes):
                return Branch(path, tuple(((n, True),) for n in nodes)) if positive else [(n, False) for n in nodes]
            case s.OneOf(path, nodes):
                if positive:
                    return Branch(path, tuple(((n, True),) for n in nodes), exclusive=True)
                pairs = tuple(((a, True), (b, True)) for i, a in enumerate(nodes) for b in nodes[:i])
                return Branch(path, (tuple((n, False) for n in nodes), *pairs))
            case s.Not(_, node):
                return [(node, not positive)]
            case s.Conditional(_, _, s.ALWAYS, s.ALWAYS) if positive:
                return []
            case s.Conditional(path, condition, then, otherwise):
                return Branch(path, (((condition, True), (then, positive)), ((condition, False), (otherwise, positive))))
            case s.UnevaluatedProperties() | s.UnevaluatedItems():
                return Branch(what.path, scenarios(what, positive, self.space))
            case _:
                options = negated(what, self.space) if not positive else self._presence(what)
                return what if options is None else Branch(what.path, options)

    def _presence(self, what: s.Assertion) -> tuple[Option, ...] | None:
        """Positive facts that are alternatives: a key is absent, or something follows from its presence."""
        match what:
            case s.DependentRequired(path, key, keys):
                then: Claim = (s.Required(path, tuple(dict.fromkeys((key, *keys)))), True)
            case s.DependentSchema(path, key, node):
                return (
                    ((s.Properties(path, ((key, s.NEVER),), explicit=False), True),),
                    ((s.TypeIs(path, frozenset({"object"})), True), (s.Required(path, (key,)), True), (node, True)),
                )
            case _:
                return None
        absent: Claim = (s.Properties(what.path, ((key, s.NEVER),), explicit=False), True)
        return ((absent,), ((s.TypeIs(what.path, frozenset({"object"})), True), then))
