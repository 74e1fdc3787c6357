"""Lenient compiles: which keyword to leave out when one can't be expressed, so that the schema only gets wider.

A keyword below a `not` (or another place where wider means narrower) takes that place's own keyword with it. Each schema is
relaxed by itself, wherever it is embedded, so that a culprit costs one more lowering of its own schema only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

from converters.constraint import JsonSchema, JsonValue
from converters.errors import LimitExceeded, UnsupportedFeature
from converters.grammar.expr import Expr, RuleBook
from converters.grammar.graft import graft
from converters.jsonschema.reference import ONE_SCHEMA, SCHEMA_LIST, SCHEMA_MAP, escape
from converters.limits import Budget, Relaxation

MAX_RELAXATIONS = 64  # of one schema

Lowered: TypeAlias = tuple[Expr, tuple[str, ...]]
"""An expression and notes."""

_REVERSING = frozenset(("not", "if", "oneOf", "contains"))
_COMPANIONS = {
    "patternProperties": ("additionalProperties", "unevaluatedProperties"),
    "properties": ("additionalProperties", "unevaluatedProperties"),
    "prefixItems": ("items", "unevaluatedItems"),
    "items": ("additionalItems", "unevaluatedItems"),
    "$ref": ("unevaluatedProperties", "unevaluatedItems"),
    "allOf": ("unevaluatedProperties", "unevaluatedItems"),
    "anyOf": ("unevaluatedProperties", "unevaluatedItems"),
    "oneOf": ("unevaluatedProperties", "unevaluatedItems"),
    "if": ("then", "else", "unevaluatedProperties", "unevaluatedItems"),
}
"""What must go too, because it speaks of what the keyword left over."""


def relaxing(
    schema: JsonSchema, book: RuleBook, budget: Budget, hint: str, lower: Callable[[JsonSchema, RuleBook], Lowered]
) -> Lowered:
    """What `lower` makes of the schema, less the keywords that it can't express; those are listed in `budget.relaxed`."""
    relaxed: list[Relaxation] = []
    while True:
        own = RuleBook()  # a failed attempt leaves rules behind
        try:
            expr, notes = lower(schema, own)
        except (UnsupportedFeature, LimitExceeded) as error:
            wider = without_culprit(schema.schema, error.path or "")
            if wider is None or len(relaxed) == MAX_RELAXATIONS:
                raise
            schema = replace(schema, schema=cast(JsonValue, wider[0]))
            relaxed.append(Relaxation(wider[1], error.reason))
        else:
            budget.relaxed += relaxed
            return graft(own.build(expr), book, hint), notes


def without_culprit(schema: object, path: str) -> tuple[object, str] | None:
    """The schema without the keyword that `path` points at (or into), and that keyword's pointer; None: there is none."""
    keyword_path = _culprit(schema, path.split(" ")[0].split("/")[1:])
    if keyword_path is None:
        return None
    return _removed(schema, keyword_path), "".join(f"/{escape(part)}" for part in keyword_path)


def _culprit(schema: object, parts: Sequence[str]) -> tuple[str, ...] | None:
    names = [part.replace("~1", "/").replace("~0", "~") for part in parts]
    walked: list[str] = []
    value = schema
    while names:
        keyword = names.pop(0)
        if not isinstance(value, Mapping) or keyword not in value:
            return None
        walked.append(keyword)
        value = value[keyword]
        if keyword in _REVERSING or not names or not _goes_on(keyword, value):
            return tuple(walked)
        if keyword in SCHEMA_MAP or isinstance(value, (list, tuple)):
            name = names.pop(0)
            at_end = not names
            if at_end:  # the culprit is the whole entry, such as a pattern or a dependency
                return tuple(walked)
            walked.append(name)
            value = value[name] if isinstance(value, Mapping) else value[int(name)]
    return None


def _goes_on(keyword: str, value: object) -> bool:
    """True when schemas stand below `keyword`."""
    if isinstance(value, Mapping):
        return keyword in ONE_SCHEMA or keyword in SCHEMA_MAP
    return isinstance(value, (list, tuple)) and keyword in SCHEMA_LIST


def _removed(value: object, path: Sequence[str]) -> object:
    """A copy of `value` without the member at `path`; what isn't on the way is shared."""
    if isinstance(value, Mapping):
        if len(path) == 1:
            gone = (path[0], *_COMPANIONS.get(path[0], ()))
            return {key: item for key, item in value.items() if key not in gone}
        return {key: _removed(item, path[1:]) if key == path[0] else item for key, item in value.items()}
    assert isinstance(value, (list, tuple))
    return [_removed(item, path[1:]) if i == int(path[0]) else item for i, item in enumerate(value)]
