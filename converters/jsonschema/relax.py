"""Lenient compiles: which keyword to leave out when one can't be expressed, so that the schema only gets wider.

A keyword below a `not` (or another place where wider means narrower) takes that place's own keyword with it. Each schema is
relaxed by itself, wherever it is embedded, so that a culprit costs one more lowering of its own schema only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

from converters.constraint import JsonSchema, JsonValue
from converters.errors import LimitExceeded, UnsupportedFeature
from converters.grammar.expr import Expr, RuleBook
from converters.grammar.graft import graft
from converters.jsonschema.reference import ONE_SCHEMA, SCHEMA_LIST, SCHEMA_MAP, escape, subschemas
from converters.limits import Budget, Relaxation
from converters.options import CompileOptions

MAX_RELAXATIONS = 64  # of one schema

Lowered: TypeAlias = tuple[Expr, tuple[str, ...]]
"""An expression and notes."""

_REVERSING = frozenset(("not", "if", "oneOf", "contains"))
_COMPANIONS = {
    "patternProperties": ("additionalProperties",),
    "properties": ("additionalProperties",),
    "prefixItems": ("items",),
    "items": ("additionalItems",),
    "if": ("then", "else"),
}
"""What must go too, because it speaks of what the keyword left over."""
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_EVALUATING = frozenset(
    (
        *("properties", "patternProperties", "additionalProperties", "prefixItems", "items", "additionalItems", "contains"),
        *("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "then", "else"),
        *("dependentSchemas", "dependencies", *_UNEVALUATED),
    )
)
"""What may evaluate members or items, wherever it stands: so all that speaks of unevaluated ones goes with it."""


_NAMING = _EVALUATING - {"prefixItems", "items", "additionalItems", "contains", "unevaluatedItems"}
"""What may name the keys of an object or let others in."""


def relaxing(
    schema: JsonSchema,
    book: RuleBook,
    options: CompileOptions,
    budget: Budget,
    hint: str,
    lower: Callable[[JsonSchema, RuleBook], Lowered],
) -> Lowered:
    """What `lower` makes of the schema, less the keywords that it can't express; those are listed in `budget.relaxed`."""
    relaxed: list[Relaxation] = []
    while True:
        own = RuleBook()  # a failed attempt leaves rules behind
        try:
            expr, notes = lower(schema, own)
        except (UnsupportedFeature, LimitExceeded) as error:
            is_too_deep = isinstance(error, LimitExceeded) and error.limit == "nesting"  # as a whole: no keyword's fault
            wider = None if is_too_deep else without_culprit(schema.schema, error.path or "", options.closed_objects)
            if wider is None or len(relaxed) >= MAX_RELAXATIONS:
                raise
            schema = replace(schema, schema=cast(JsonValue, wider[0]))
            keyword, *others = wider[1]
            relaxed.append(Relaxation(keyword, error.reason))
            relaxed += [Relaxation(path, f"it speaks of what {keyword} leaves over: {error.reason}") for path in others]
        else:
            budget.relaxed += relaxed
            return graft(own.build(expr), book, hint), notes


def without_culprit(schema: object, path: str, closed_objects: bool = False) -> tuple[object, list[str]] | None:
    """The schema without the keyword that `path` points at (or into), and the pointers of what it lacks: that keyword, then
    its companions. None: there is none.

    `closed_objects`: keys that nothing names are left out. What the lost keyword may have named is let in again.
    """
    found = _culprit(schema, path.split(" and /")[0].split("/")[1:])  # in a key, a slash is written ~1
    if found is None:
        return None
    gone: dict[tuple[str, ...], None] = {}
    todo = deque([found])
    while todo:
        at = todo.popleft()
        if at not in gone:
            gone[at] = None
            todo.extend(_companions(schema, at))
    for at in sorted(gone, key=len, reverse=True):
        schema = _removed(schema, at)
    for *above, keyword in gone if closed_objects else ():
        if keyword in _NAMING:
            schema = _opened(schema, above)
    return schema, ["".join(f"/{escape(part)}" for part in at) for at in gone]


def _companions(schema: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Where the companions of the keyword at `path` stand."""
    *above, keyword = path
    node = schema
    for part in above:
        node = node[part] if isinstance(node, Mapping) else cast("Sequence[object]", node)[int(part)]
    assert isinstance(node, Mapping)
    yield from ((*above, name) for name in _COMPANIONS.get(keyword, ()) if name in node)
    if keyword in _EVALUATING:
        yield from filter(None, (_culprit(schema, pointer.split("/")[1:]) for pointer in _unevaluated(schema)))


def _unevaluated(schema: object) -> Iterator[str]:
    """The pointers of all keywords that speak of unevaluated members or items."""
    todo = [(schema, "")]
    while todo:
        node, pointer = todo.pop()
        if isinstance(node, Mapping):
            yield from (f"{pointer}/{name}" for name in _UNEVALUATED if name in node)
            todo.extend((child, pointer + suffix) for child, suffix in subschemas(node))


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
            return {key: item for key, item in value.items() if key != path[0]}
        return {key: _removed(item, path[1:]) if key == path[0] else item for key, item in value.items()}
    assert isinstance(value, (list, tuple))
    return [_removed(item, path[1:]) if i == int(path[0]) else item for i, item in enumerate(value)]


def _opened(value: object, path: Sequence[str]) -> object:
    """A copy of `value` where the schema at `path`, if it is still there, lets in keys that nothing names."""
    if isinstance(value, Mapping):
        if not path:
            return {**value, "additionalProperties": value.get("additionalProperties", True)}
        return {key: _opened(item, path[1:]) if key == path[0] else item for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_opened(item, path[1:]) if i == int(path[0]) else item for i, item in enumerate(value)]
    return value
