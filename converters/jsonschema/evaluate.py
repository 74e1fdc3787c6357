"""Does a value satisfy a schema? For the finite values of `enum` and `const`, which need no grammar of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TypeGuard

from converters.jsonschema import schema as s
from converters.jsonschema.fact import SomeItem, SomeKey
from converters.jsonschema.space import Space
from converters.jsonschema.value import canonical_text, exact

Test = Callable[["s.Pattern | s.Format"], Callable[[str], bool]]


class _Ambiguous(Exception):
    """An integer to one reading and none to the other."""


class Evaluator:
    """Judges values over one space of nodes. `test` makes the predicate of a pattern or format."""

    def __init__(self, space: Space, test: Test) -> None:
        self._space = space
        self._test = test

    def selected(self, finite: s.Finite, claims: Sequence[tuple[s.NodeId | s.Assertion, bool]]) -> list[tuple[str, object]]:
        """The values of `finite` for which `claims` hold, with their canonical texts.

        Where integers are to be such by value and by text, 1.0 may be written so only if no claim asks what it is; else as 1.
        """
        kept: list[tuple[str, object]] = []
        for text, value in zip(finite.texts, finite.values, strict=True):
            written = value
            try:
                holds = self.satisfies(value, claims)
            except _Ambiguous:
                written = _with_integers(value)
                holds = self.satisfies(written, claims)
            if holds:
                kept.append((text, written))
        return kept

    def satisfies(self, value: object, claims: Iterable[tuple[s.NodeId | s.Assertion, bool]]) -> bool:
        """True when every node or assertion of `claims` holds for `value` (with False: fails)."""
        return all((self.holds(value, what) if isinstance(what, int) else self._check(value, what)) is p for what, p in claims)

    def holds(self, value: object, node: s.NodeId) -> bool:
        """True when `value` is a value of `node`."""
        self._space.budget.tick()
        return all(self._check(value, assertion) for assertion in self._space.nodes[node].assertions)

    def _check(self, value: object, what: s.Assertion) -> bool:
        match what:
            case s.Impossible():
                return False
            case s.TypeIs(_, types, integers_only):
                kind = type_of(value)
                return kind in types and (kind != "number" or not integers_only or self.is_integer(value))
            case s.Finite(_, texts):
                return canonical_text(value) in texts
            case s.AllOf(_, nodes):
                return all(self.holds(value, node) for node in nodes)
            case s.AnyOf(_, nodes):
                return self._holds_any(value, nodes)
            case s.OneOf(_, nodes):
                return sum(self.holds(value, node) for node in nodes) == 1
            case s.Not(_, node):
                return not self.holds(value, node)
            case s.Conditional(_, condition, then, otherwise):
                return self.holds(value, then if self.holds(value, condition) else otherwise)
            case s.AtLeast() | s.AtMost() | s.Multiple():
                return not is_number(value) or _check_number(exact(value), what)
            case s.Length(_, low, high):
                return not isinstance(value, str) or _within(len(value), low, high)
            case s.Pattern() | s.Format():
                return not isinstance(value, str) or self._test(what)(value)
            case _:
                if isinstance(value, Mapping):
                    return self._check_object(value, what)
                return not isinstance(value, (list, tuple)) or self._check_array(value, what)

    def _holds_any(self, value: object, nodes: Iterable[s.NodeId]) -> bool:
        """Where one node can't be told, another may settle it, in whatever order they stand."""
        is_told = True
        for node in nodes:
            holds = self._told(value, node)
            if holds:
                return True
            is_told = is_told and holds is not None
        if not is_told:
            raise _Ambiguous
        return False

    def _told(self, value: object, node: s.NodeId) -> bool | None:
        try:
            return self.holds(value, node)
        except _Ambiguous:
            return None

    def is_integer(self, value: object) -> bool:
        """Integral; in draft 4 also written so. Raises _Ambiguous for a number such as 1.0 where both readings count."""
        if self._space.integers == "text" or isinstance(value, int):
            return isinstance(value, int)
        is_integral = is_number(value) and exact(value).denominator == 1
        if is_integral and self._space.integers == "both":
            raise _Ambiguous
        return is_integral

    def _check_object(self, value: Mapping[str, object], what: s.Assertion) -> bool:
        match what:
            case s.Properties():
                return all(self.holds(item, node) for key, item in value.items() for node in self._nodes_of(what, key))
            case s.Required(_, keys):
                return all(key in value for key in keys)
            case s.PropertyCount(_, low, high):
                return _within(len(value), low, high)
            case s.PropertyNames(_, names):
                return all(self.holds(key, names) for key in value)
            case s.DependentRequired(_, key, keys):
                return key not in value or all(other in value for other in keys)
            case s.DependentSchema(_, key, node):
                return key not in value or self.holds(value, node)
            case s.UnevaluatedProperties(_, scope, node):
                seen = self._seen_keys(value, scope)
                return self.holds(value, scope) and all(self.holds(v, node) for k, v in value.items() if k not in seen)
            case s.UnevaluatedItems(_, scope):
                return self.holds(value, scope)
            case SomeKey(_, some):
                return any(
                    key not in some.outside_keys
                    and (some.pattern is None or self._matches(some.pattern, key))
                    and not any(self._matches(pattern, key) for pattern in some.outside_patterns)
                    and self.satisfies(key, some.names)
                    and self.satisfies(item, some.value)
                    for key, item in value.items()
                )
            case _:
                return not isinstance(what, SomeItem)

    def _check_array(self, value: Sequence[object], what: s.Assertion) -> bool:
        match what:
            case s.Items(_, prefix, rest):
                nodes = (*prefix, *[rest] * (len(value) - len(prefix)))
                return all(self.holds(item, node) for item, node in zip(value, nodes, strict=False))
            case s.ItemCount(_, low, high):
                return _within(len(value), low, high)
            case s.Contains(_, item, low, high):
                return _within(sum(self.holds(v, item) for v in value), low, high)
            case s.Unique():
                return len(set(map(canonical_text, value))) == len(value)
            case s.UnevaluatedItems(_, scope, node):
                seen = self._seen_items(value, scope)
                return self.holds(value, scope) and all(self.holds(v, node) for i, v in enumerate(value) if i not in seen)
            case s.UnevaluatedProperties(_, scope):
                return self.holds(value, scope)
            case SomeItem(_, occurs):
                found = sum(self.satisfies(item, occurs.item) for item in value[occurs.start :])
                return _within(found, occurs.min, occurs.max)
            case _:
                return not isinstance(what, SomeKey)

    def _nodes_of(self, what: s.Properties, key: str) -> list[s.NodeId]:
        nodes = [node for name, node in what.declared if name == key]
        nodes += [node for pattern, node in what.patterns if self._matches(pattern, key)]
        return nodes or [what.additional]

    def _matches(self, pattern: str, key: str) -> bool:
        return self._test(self._space.key_pattern(pattern))(key)

    def _seen_keys(self, value: Mapping[str, object], node: s.NodeId) -> set[str]:
        seen: set[str] = set()
        for what in self._space.nodes[node].assertions:
            match what:
                case s.Properties(_, declared, patterns):
                    if what.explicit:
                        return set(value)
                    seen |= {key for key, _ in declared}
                    seen |= {key for key in value for pattern, _ in patterns if self._matches(pattern, key)}
                case s.UnevaluatedProperties():
                    return set(value)
                case s.DependentSchema(_, key, then) if key in value:
                    seen |= self._seen_keys(value, then)
                case _:
                    for child in self._applied(value, what):
                        seen |= self._seen_keys(value, child)
        return seen

    def _seen_items(self, value: Sequence[object], node: s.NodeId) -> set[int]:
        seen: set[int] = set()
        for what in self._space.nodes[node].assertions:
            match what:
                case s.Items(_, prefix, rest):
                    seen |= set(range(len(prefix))) if rest == s.ALWAYS and prefix else set(range(len(value)))
                case s.UnevaluatedItems():
                    return set(range(len(value)))
                case s.Contains(_, item) if self._space.draft == "2020-12":
                    seen |= {i for i, v in enumerate(value) if self.holds(v, item)}
                case _:
                    for child in self._applied(value, what):
                        seen |= self._seen_items(value, child)
        return seen

    def _applied(self, value: object, what: s.Assertion) -> Iterable[s.NodeId]:
        """The nodes about the same value that `what` applies and that hold."""
        match what:
            case s.AllOf(_, nodes):
                return nodes
            case s.AnyOf(_, nodes) | s.OneOf(_, nodes):
                return [node for node in nodes if self.holds(value, node)]
            case s.Conditional(_, condition, then, otherwise):
                return (condition, then) if self.holds(value, condition) else (otherwise,)
            case _:
                return ()


def type_of(value: object) -> s.JsonType:
    """The JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case Mapping():
            return "object"
        case list() | tuple():
            return "array"
        case _:
            return "number"


def is_number(value: object) -> TypeGuard[int | float | Decimal]:
    """True for JSON numbers, which `bool` isn't."""
    return type_of(value) == "number"


def _with_integers(value: object) -> object:
    """The same value, its integral numbers written as integers: [1.0, 2.5] → [1, 2.5]."""
    match value:
        case Mapping():
            return {key: _with_integers(item) for key, item in value.items()}
        case list() | tuple():
            return [_with_integers(item) for item in value]
        case float() | Decimal() if exact(value).denominator == 1:
            return int(exact(value))
        case _:
            return value


def _check_number(number: Fraction, what: s.AtLeast | s.AtMost | s.Multiple) -> bool:
    match what:
        case s.AtLeast(_, bound, exclusive):
            return number > bound if exclusive else number >= bound
        case s.AtMost(_, bound, exclusive):
            return number < bound if exclusive else number <= bound
        case s.Multiple(_, of):
            return (number / of).denominator == 1


def _within(count: int, low: int, high: int | None) -> bool:
    return low <= count and (high is None or count <= high)
