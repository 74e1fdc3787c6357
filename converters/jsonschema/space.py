"""The nodes that one compile reasons over: those of the schema and those made on the way (a value as a schema)."""

from __future__ import annotations

from collections.abc import Mapping

from converters.jsonschema import schema as s
from converters.jsonschema.reference import escape
from converters.jsonschema.shape import Literal
from converters.jsonschema.value import canonical_text
from converters.limits import Budget


class Space:
    """Nodes by id, growing. Equal new nodes get one id."""

    def __init__(self, schema: s.Schema, budget: Budget) -> None:
        self.nodes: list[s.Node] = list(schema.nodes)
        self.draft = schema.draft
        self.integers = schema.integers
        self.budget = budget
        self._made: dict[tuple[s.Assertion, ...], s.NodeId] = {}
        self._aliases: dict[Literal, Literal] = {}
        self._key_patterns: dict[str, s.Pattern] | None = None

    def make(self, *assertions: s.Assertion) -> s.NodeId:
        """The id of a node of these assertions."""
        if assertions not in self._made:
            self._made[assertions] = len(self.nodes)
            self.nodes.append(s.Node(assertions, assertions[0].path))
        return self._made[assertions]

    def alias(self, literal: Literal) -> Literal:
        """The literal behind nodes that only point to another: {"$ref": X} → X, {"not": X} → not X."""
        known = self._aliases.get(literal)
        if known is None:
            known = self._aliases[literal] = self._follow(literal)
        return known

    def _follow(self, literal: Literal) -> Literal:
        node, positive = literal
        seen = set()
        while node not in seen:
            seen.add(node)
            match self.nodes[node].assertions:
                case (s.AllOf(_, (target,)) | s.AnyOf(_, (target,)) | s.OneOf(_, (target,)),):
                    node = target
                case (s.Not(_, target),):
                    node, positive = target, not positive
                case ():
                    return s.ALWAYS, positive
                case _:
                    break
        return node, positive

    def key_pattern(self, pattern: str) -> s.Pattern:
        """The test of the keys that match `pattern`, with the pointer of the first `patternProperties` entry that has it."""
        if self._key_patterns is None:
            self._key_patterns = {}
            for node in self.nodes:
                for what in node.assertions:
                    for text, _ in what.patterns if isinstance(what, s.Properties) else ():
                        path = f"{node.path}/patternProperties/{escape(text)}"
                        self._key_patterns.setdefault(text, s.Pattern(path, text))
        return self._key_patterns[pattern]

    def finite(self, node: s.NodeId) -> s.Finite | None:
        """The node's own `enum` or `const`."""
        return next((a for a in self.nodes[node].assertions if isinstance(a, s.Finite)), None)

    def node_of_value(self, value: object, path: str) -> s.NodeId:
        """A node whose only value is `value`, spelled out by keywords for arrays and objects."""
        match value:
            case Mapping():
                keys = tuple(value)
                declared = tuple((key, self.node_of_value(item, path)) for key, item in value.items())
                closed = s.Properties(path, declared, (), s.NEVER)
                return self.make(s.TypeIs(path, frozenset({"object"})), s.Required(path, keys), closed)
            case list() | tuple():
                items = tuple(self.node_of_value(item, path) for item in value)
                count = s.ItemCount(path, len(items), len(items))
                return self.make(s.TypeIs(path, frozenset({"array"})), count, s.Items(path, items, s.ALWAYS))
            case _:
                return self.make(s.Finite(path, (canonical_text(value),), (value,)))
