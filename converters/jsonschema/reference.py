"""Where a `$ref` leads: base URIs, `$id`, `$anchor` and JSON pointers inside one document.

Nothing is ever fetched: a reference that leaves the document is an UnsupportedFeature.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, urldefrag, urljoin

from converters.constraint import Draft
from converters.errors import InvalidSource, LimitExceeded, UnsupportedFeature
from converters.jsonschema.draft import is_before, named_draft
from converters.record import record

MAX_DEPTH = 1000
"""Levels that schemas nest: pointers grow with the depth, so all of them by its square."""

ONE_SCHEMA = frozenset(
    [
        "additionalProperties",
        "additionalItems",
        "items",
        "contains",
        "not",
        "if",
        "then",
        "else",
        "propertyNames",
        "unevaluatedProperties",
        "unevaluatedItems",
    ]
)
SCHEMA_LIST = frozenset(["allOf", "anyOf", "oneOf", "prefixItems", "items"])
SCHEMA_MAP = frozenset(["properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "dependencies"])

_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,9})\Z")
"""Of an array, as RFC 6901 has it: ASCII digits, no zero before others. Longer ones lead out of every array."""


@record
class Location:
    """A schema in the document: its JSON, its pointer, the base URI and the draft that count there.

    `depth`: how many schemas stand above it, up to the root or to where a reference leads.
    """

    json: object = field(repr=False)
    pointer: str
    base: str
    draft: Draft
    depth: int = 0

    def below(self, json: object, pointer: str, base: str, draft: Draft) -> Location:
        """A schema in this one, with no other between them. Raises LimitExceeded where schemas nest too deep."""
        if self.depth == MAX_DEPTH:
            message = f"schemas nest deeper than {MAX_DEPTH} levels"
            raise LimitExceeded(message, limit="nesting", value=MAX_DEPTH, path=pointer)
        return Location(json, pointer, base, draft, self.depth + 1)


@dataclass(slots=True)
class Document:
    """The root schema and the names under which its parts can be referred to."""

    root: object
    draft: Draft
    _resources: dict[str, str] = field(init=False, default_factory=dict)
    _anchors: dict[tuple[str, str], str] = field(init=False, default_factory=dict)
    _bases: dict[str, str] = field(init=False, default_factory=dict)
    _dynamic: dict[str, list[str]] = field(init=False, default_factory=dict)

    _drafts: dict[str, Draft] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._resources[""] = ""
        self._drafts[""] = self.draft
        self._index()

    def locate(self, pointer: str) -> Location:
        """The schema at `pointer`, found from the root. KeyError when there is none."""
        json, walked, base, draft = self.root, "", self._bases.get("", ""), self._drafts[""]
        for part in pointer.split("/")[1:]:
            json = _child(json, part.replace("~1", "/").replace("~0", "~"))
            walked += f"/{part}"
            base, draft = self._bases.get(walked, base), self._drafts.get(walked, draft)
        return Location(json, walked, base, draft)

    def below(self, at: Location, json: object, pointer: str) -> Location:
        """What stands at `pointer`, below `at` and with no schema between them; found without a look at the root.

        Raises LimitExceeded where schemas nest too deep.
        """
        return at.below(json, pointer, self._bases.get(pointer, at.base), self._drafts.get(pointer, at.draft))

    @property
    def drafts(self) -> set[Draft]:
        """Every draft that some part speaks."""
        return set(self._drafts.values())

    def resolve(self, reference: str, base: str, path: str) -> Location:
        """The schema that `reference` means where `base` counts; `path` is where it stands, for the error."""
        target, fragment = urldefrag(_join(base, reference))
        if target not in self._resources:
            raise UnsupportedFeature(f"a reference outside the schema, {reference!r}", path=path)
        pointer = self._resources[target]
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            if (target, fragment) not in self._anchors:
                raise InvalidSource(f"the reference {reference!r} leads nowhere", path=path)
            pointer = self._anchors[target, fragment]
        else:
            pointer += fragment
        if not self._exists(pointer):
            # Many older schemas give their parts an id and still point from the root.
            if not (fragment.startswith("/") and reference.startswith("#") and self._exists(fragment)):
                raise InvalidSource(f"the reference {reference!r} leads nowhere", path=path)
            pointer = fragment
        return self.locate(pointer)

    def _exists(self, pointer: str) -> bool:
        try:
            self.locate(pointer)
        except KeyError:
            return False
        return True

    def dynamic_targets(self, anchor: str) -> Sequence[str]:
        """The pointers of every `$dynamicAnchor` called `anchor`."""
        return self._dynamic.get(anchor, ())

    @property
    def n_recursive_anchors(self) -> int:
        """How many schemas say `$recursiveAnchor: true`."""
        return len(self._dynamic.get("\0recursive", ()))

    def _index(self) -> None:
        todo = [Location(self.root, "", "", self.draft)]
        while todo:
            at = todo.pop()
            schema, draft = at.json, at.draft
            if not isinstance(schema, Mapping):
                continue
            if at.pointer and (named := named_draft(schema)) is not None and named != draft:
                draft = self._drafts[at.pointer] = named
            base = self._name(schema, at.pointer, at.base, draft)
            todo.extend(at.below(child, at.pointer + suffix, base, draft) for child, suffix in subschemas(schema))

    def _name(self, schema: Mapping[str, object], pointer: str, base: str, draft: Draft) -> str:
        if is_before(draft, "2019-09") and isinstance(schema.get("$ref"), str):
            return base
        name = schema.get("id" if draft == "draft4" else "$id")
        if isinstance(name, str):
            base = self._name_resource(name, pointer, base)
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str):
                self._anchors.setdefault((base, anchor), pointer)
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault(anchor, []).append(pointer)
        if schema.get("$recursiveAnchor") is True:
            self._dynamic.setdefault("\0recursive", []).append(pointer)
        return base

    def _name_resource(self, name: str, pointer: str, base: str) -> str:
        target, fragment = urldefrag(_join(base, name))
        if fragment:
            self._anchors.setdefault((target or base, fragment), pointer)
        if target and target != base:
            self._resources.setdefault(target, pointer)
            self._bases[pointer] = target
            return target
        return base


def subschemas(schema: Mapping[str, object]) -> Iterator[tuple[object, str]]:
    """The schemas directly below `schema`, each with the pointer that leads to it from there."""
    for keyword, value in schema.items():
        if isinstance(value, Mapping):
            if keyword in SCHEMA_MAP:
                for name, child in value.items():
                    yield child, f"/{keyword}/{escape(name)}"
            elif keyword in ONE_SCHEMA:
                yield value, f"/{keyword}"
        elif keyword in SCHEMA_LIST and isinstance(value, (list, tuple)):
            for i, child in enumerate(value):
                yield child, f"/{keyword}/{i}"


def _child(value: object, name: str) -> object:
    """One step down; KeyError where there is nothing."""
    match value:
        case Mapping():
            return value[name]
        case str():
            raise KeyError(name)
        case Sequence() if _INDEX.match(name) and int(name) < len(value):
            return value[int(name)]
        case _:
            raise KeyError(name)


def escape(name: str) -> str:
    """`name` as one part of a JSON pointer."""
    name = str(name)
    return name.replace("~", "~0").replace("/", "~1") if "~" in name or "/" in name else name


def _join(base: str, reference: str) -> str:
    if reference.startswith("#"):  # urljoin loses the base of schemes that it doesn't know, such as urn:
        return base + reference
    return urljoin(base, reference) if base else reference
