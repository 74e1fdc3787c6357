"""Proofs that something has no value: types of a shape that no value can have are dropped from it.

Every proof is one-sided. What isn't proved empty may still be; then the grammar is only larger than it need be.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import proxy

from converters.jsonschema import number
from converters.jsonschema.keys import alternatives_of_some, finite_keys, required_terms
from converters.jsonschema.schema import JsonType
from converters.jsonschema.shape import ANY_ARRAY, ANY_OBJECT, ANYTHING, NOTHING, ArrayFacts, ObjectFacts, Shape

if TYPE_CHECKING:
    from converters.jsonschema.algebra import Algebra


class Inhabited:
    """Emptiness over one algebra's terms."""

    def __init__(self, algebra: Algebra) -> None:
        self._algebra = proxy(algebra)  # which has this object
        self._objects: dict[ObjectFacts, bool] = {}

    def narrowed(self, shape: Shape) -> Shape | None:
        """The shape without the types that can't be; None when none is left."""
        dead: set[JsonType] = set()
        for kind in shape.types:
            match kind:
                case "boolean":
                    empty = not shape.booleans
                case "string":
                    empty = self._algebra.strings.is_empty(shape.strings)
                case "number":
                    empty = number.is_empty(shape.numbers, self._algebra.space.integers)
                case "array":
                    empty = shape.arrays != ANY_ARRAY and self.no_array(shape.arrays)
                case "object":
                    empty = shape.objects != ANY_OBJECT and self.no_object(shape.objects)
                case _:
                    empty = False
            if empty:
                dead.add(kind)
        if not dead:
            return shape if shape.types else None
        return replace(shape, types=shape.types - dead) if shape.types - dead else None

    def no_object(self, facts: ObjectFacts) -> bool:
        """True when `facts` are proved to have no object."""
        if facts not in self._objects:
            self._objects[facts] = self._no_object(facts)
        return self._objects[facts]

    def _no_object(self, facts: ObjectFacts) -> bool:
        if facts.max is not None and (facts.max < facts.min or facts.max < len(facts.has)):
            return True
        for term in required_terms(facts, self._algebra):
            if term == NOTHING or (len(term) > 1 and self._algebra.is_empty(term)):
                return True
        if facts.min > len(facts.has) and (keys := finite_keys(facts)) is not None and len(keys) < facts.min:
            return True
        if facts.some:
            return all(self.no_object(option) for option in alternatives_of_some(facts, self._algebra, proving=True))
        return False

    def no_array(self, facts: ArrayFacts) -> bool:
        """True when `facts` are proved to have no array."""
        if facts.max is not None and facts.min > facts.max:
            return True
        if facts.distinct is False and facts.max is not None and facts.max < 2:
            return True
        for occurs in facts.occurs:
            if occurs.max is not None and occurs.min > occurs.max:
                return True
            if occurs.min and facts.max is not None and occurs.min + occurs.start > facts.max:
                return True
        for i in range(min(facts.min, 1 + max((len(e.prefix) for e in facts.elements), default=0))):
            term = frozenset().union(*(e.prefix[i] if i < len(e.prefix) else e.rest for e in facts.elements))
            if term != ANYTHING and (len(term) > 1 or term == NOTHING) and self._algebra.is_empty(self._algebra.simplify(term)):
                return True
        return any(o.min and self._algebra.is_empty(o.item) for o in facts.occurs)
