"""unevaluatedProperties and unevaluatedItems: the ways in which a scope can hold, each with what it looks at.

Once it is decided which branches hold, the members and items that nothing looked at are known, and the keyword becomes an
ordinary `additionalProperties` or `items` beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from converters.errors import UnsupportedFeature
from converters.jsonschema import schema as s
from converters.jsonschema.fact import Claim, Option, SomeItem, SomeKey, term_of
from converters.jsonschema.shape import Occurs, SomeMember
from converters.jsonschema.space import Space

MAX_WAYS = 256


@dataclass(frozen=True, slots=True)
class Seen:
    """What is looked at: `all`, or these keys and the keys of these patterns, or the first items and those of some nodes."""

    all: bool = False
    keys: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    n_items: int = 0
    items: tuple[s.NodeId, ...] = ()

    def __or__(self, other: Seen) -> Seen:
        return Seen(
            self.all or other.all,
            tuple(dict.fromkeys(self.keys + other.keys)),
            tuple(dict.fromkeys(self.patterns + other.patterns)),
            max(self.n_items, other.n_items),
            tuple(dict.fromkeys(self.items + other.items)),
        )


@dataclass(frozen=True, slots=True)
class Way:
    """One way to hold: what is claimed, and what is looked at then."""

    claims: Option = ()
    seen: Seen = Seen()


_NONE = Seen()


class Scenarios:
    """Works out the ways of scopes, for members (`of_items` False) or for items."""

    def __init__(self, space: Space, of_items: bool, path: str) -> None:
        self._space = space
        self._of_items = of_items
        self._path = path

    def ways(self, node: s.NodeId) -> list[Way]:
        """The ways in which `node` can hold. Raises UnsupportedFeature when there are too many."""
        found = [Way()]
        for assertion in self._space.nodes[node].assertions:
            found = self._joined([found, list(self._of(assertion))])
        return found

    def _joined(self, parts: Iterable[list[Way]]) -> list[Way]:
        """One way of each part, together."""
        out = [Way()]
        for part in parts:
            if len(out) * len(part) > MAX_WAYS:
                raise UnsupportedFeature(f"unevaluated parts beside more than {MAX_WAYS} combinations", path=self._path)
            out = [Way(a.claims + b.claims, a.seen | b.seen) for a, b in product(out, part)]
        return out

    def _of(self, what: s.Assertion) -> Iterator[Way]:
        plain = Way(((what, True),))
        match what:
            case s.AllOf(_, nodes):
                yield from self._joined(map(self.ways, nodes))
            case s.AnyOf(_, nodes):
                yield from self._any(what, nodes)
            case s.OneOf(_, nodes):
                yield from self._one(what, nodes)
            case s.Conditional(_, condition, then, otherwise):
                yield from self._joined([self.ways(condition), self.ways(then)])
                yield from self._joined([[Way(((condition, False),))], self.ways(otherwise)])
            case s.DependentSchema(path, key, node):
                yield Way(((s.Properties(path, ((key, s.NEVER),), explicit=False), True),))
                has: Claim = (s.Required(path, (key,)), True)
                yield from self._joined([[Way(((s.TypeIs(path, frozenset({"object"})), True), has))], self.ways(node)])
            case _:
                yield Way(plain.claims, self._leaf(what))

    def _leaf(self, what: s.Assertion) -> Seen:
        match what:
            case s.Properties(_, declared, patterns, _, explicit) if not self._of_items:
                return Seen(explicit, tuple(key for key, _ in declared), tuple(pattern for pattern, _ in patterns))
            case s.UnevaluatedProperties() if not self._of_items:
                return Seen(all=True)
            case s.Items(_, prefix, _, explicit) if self._of_items:
                return Seen(explicit, n_items=len(prefix))
            case s.UnevaluatedItems() if self._of_items:
                return Seen(all=True)
            case s.Contains(_, item) if self._of_items and self._space.draft == "2020-12":
                return Seen(items=(item,))
            case _:
                return _NONE

    def _any(self, what: s.Assertion, nodes: tuple[s.NodeId, ...]) -> Iterator[Way]:
        ways = [self.ways(node) for node in nodes]
        if all(way.seen == _NONE for part in ways for way in part):
            yield Way(((what, True),))
            return
        decided = [[*part, Way(((node, False),))] for node, part in zip(nodes, ways, strict=True)]
        for way in self._joined(decided):
            if not all(claim in way.claims for claim in ((node, False) for node in nodes)):
                yield way

    def _one(self, what: s.Assertion, nodes: tuple[s.NodeId, ...]) -> Iterator[Way]:
        ways = [self.ways(node) for node in nodes]
        if all(way.seen == _NONE for part in ways for way in part):
            yield Way(((what, True),))
            return
        for i, part in enumerate(ways):
            others = tuple((node, False) for j, node in enumerate(nodes) if j != i)
            yield from (Way(way.claims + others, way.seen) for way in part)


def scenarios(what: s.UnevaluatedProperties | s.UnevaluatedItems, positive: bool, space: Space) -> tuple[Option, ...]:
    """The keyword as alternatives: each way of its scope with the rest ruled by its node, or (`positive` False) with a member
    or item of the rest that breaks it."""
    of_items = isinstance(what, s.UnevaluatedItems)
    options: list[Option] = [] if positive else [((what.scope, False),)]
    for way in Scenarios(space, of_items, what.path).ways(what.scope):
        if way.seen.all:
            if positive:
                options.append(way.claims)
        else:
            rest = _items_rest(what, way.seen, positive, space) if of_items else _members_rest(what, way.seen, positive)
            options.append((*way.claims, (rest, True)))
    return tuple(options)


def _members_rest(what: s.UnevaluatedProperties | s.UnevaluatedItems, seen: Seen, positive: bool) -> s.Assertion:
    path = what.path
    if not positive:
        value = term_of(what.node, False)
        return SomeKey(path, SomeMember(path, value, None, frozenset(seen.keys), frozenset(seen.patterns)))
    declared = tuple((key, s.ALWAYS) for key in seen.keys)
    return s.Properties(path, declared, tuple((pattern, s.ALWAYS) for pattern in seen.patterns), what.node)


def _items_rest(what: s.UnevaluatedProperties | s.UnevaluatedItems, seen: Seen, positive: bool, space: Space) -> s.Assertion:
    path = what.path
    node = space.make(s.AnyOf(path, (*seen.items, what.node))) if seen.items else what.node
    if not positive:
        return SomeItem(path, Occurs(path, term_of(node, False), 1, None, seen.n_items))
    return s.Items(path, (s.ALWAYS,) * seen.n_items, node)
