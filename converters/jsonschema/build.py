"""JSON in, typed schema out: references resolved, drafts told apart, every keyword of `KEYWORDS` read and checked.

A keyword is in the table (with the draft that brought it), or it is an annotation. Older keywords keep their older meaning
in newer drafts (spec section 5); newer ones are unknown words to older drafts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from converters.constraint import Draft, JsonSchema
from converters.errors import InvalidSource, UnsupportedFeature
from converters.jsonschema import schema as s
from converters.jsonschema.draft import draft_of, is_before
from converters.jsonschema.formats import FORMATS, REFUSED
from converters.jsonschema.reference import Document, Location, escape, subschemas
from converters.jsonschema.value import MAX_DIGITS, Texts, canonical_text, exact, is_finite, n_digits
from converters.limits import Budget
from converters.record import record

_TYPE_NAMES = ("null", "boolean", "number", "integer", "string", "array", "object")


@record
class Site:
    """One schema object while it is read: its JSON, where it stands and what reads its parts."""

    json: Mapping[str, object]
    at: Location
    draft: Draft
    builder: _Builder

    def path(self, *parts: object) -> str:
        """The JSON pointer of a keyword of this schema, or of something below it."""
        path = self.at.pointer
        for part in parts:
            path = f"{path}/{escape(str(part))}"
        return path

    def has(self, keyword: str) -> bool:
        """True when the schema has `keyword` and its draft knows it."""
        return keyword in self.json and _knows(self.draft, keyword)

    def node(self, *parts: object) -> s.NodeId:
        """The node of the subschema at `parts`."""
        json: Any = self.json
        for part in parts:
            json = json[part]
        return self.builder.reserve(self.builder.document.below(self.at, json, self.path(*parts)))

    def nodes(self, keyword: str) -> tuple[s.NodeId, ...]:
        """The nodes of a list of schemas."""
        return tuple(self.node(keyword, i) for i in range(len(self.list(keyword))))

    def list(self, keyword: str) -> Sequence[object]:
        """The value of `keyword`, which must be a list."""
        value = self.json[keyword]
        if not isinstance(value, (list, tuple)):
            raise self.invalid(keyword, "must be a list")
        return value

    def map(self, keyword: str) -> Mapping[str, object]:
        """The value of `keyword`, which must be an object; an absent one is empty."""
        value = self.json[keyword] if self.has(keyword) else {}
        if not isinstance(value, Mapping):
            raise self.invalid(keyword, "must be an object")
        return value

    def count(self, keyword: str, default: int | None) -> int | None:
        """The value of `keyword`, which must be a count (`2.0` is one)."""
        if not self.has(keyword):
            return default
        number = _number(self, keyword)
        if number.denominator != 1 or number < 0:
            raise self.invalid(keyword, "must be a non-negative integer")
        return int(number)

    def strings(self, keyword: str, value: object, *below: object) -> tuple[str, ...]:
        """`value`, which must be a list of strings, without repetitions."""
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
            raise self.invalid(keyword, "must be a list of strings", *below)
        return tuple(dict.fromkeys(value))

    def invalid(self, keyword: str, rule: str, *below: object) -> InvalidSource:
        """The error of a malformed keyword."""
        return InvalidSource(f"{keyword} {rule}", path=self.path(keyword, *below))


Reader: TypeAlias = Callable[[Site], Iterator[s.Assertion]]


@record
class Keyword:
    """What reads a keyword (several may share a reader, which then runs once) and the first draft that knows it."""

    read: Reader
    since: Draft = "draft4"


def _boolean(site: Site, keyword: str) -> bool:
    value = site.json.get(keyword, False)
    if not isinstance(value, bool):
        raise site.invalid(keyword, "must be a boolean")
    return value


def _number(site: Site, keyword: str) -> Fraction:
    value = site.json[keyword]
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise site.invalid(keyword, "must be a number")
    _check_number(site, keyword, value)
    return exact(value)


def _check_number(site: Site, keyword: str, number: float | Decimal, *below: object) -> None:
    """Raise InvalidSource when a number isn't finite, UnsupportedFeature when it has too many digits to be worked with."""
    if not is_finite(number):
        is_held = keyword in ("const", "enum")
        raise site.invalid(keyword, "may hold finite numbers only" if is_held else "must be a finite number", *below)
    whole, decimals = n_digits(number)
    if whole > MAX_DIGITS + 1 or decimals > MAX_DIGITS:
        digits = f"{MAX_DIGITS + 1} digits" if whole > MAX_DIGITS + 1 else f"{MAX_DIGITS} digits after its point"
        raise UnsupportedFeature(f"{keyword} with a number of more than {digits}", path=site.path(keyword, *below))


def _type(site: Site) -> Iterator[s.Assertion]:
    value = site.json["type"]
    names = (value,) if isinstance(value, str) else site.strings("type", value)
    for name in names:
        if name not in _TYPE_NAMES:
            raise site.invalid("type", f"has no value {name!r}")
    if not names:
        raise site.invalid("type", "must not be empty")
    integers_only = "integer" in names and "number" not in names
    types = frozenset(cast(s.JsonType, "number" if name == "integer" else name) for name in names)
    yield s.TypeIs(site.path("type"), types, integers_only)


def _finite(keyword: str, values: Sequence[object], site: Site) -> s.Assertion:
    by_text: dict[str, object] = {}
    for i, value in enumerate(values):
        _check_numbers(site, keyword, value, *((i,) if keyword == "enum" else ()))
        by_text[canonical_text(value)] = value
    site.builder.budget.check_deadline()
    return s.Finite(site.path(keyword), Texts(by_text), tuple(by_text.values()))


def _check_numbers(site: Site, keyword: str, value: object, *below: object) -> None:
    """Check every number in the value of `keyword`, or in the entry of it that `below` says."""
    todo = [value]
    while todo:
        site.builder.budget.tick()
        match todo.pop():
            case int() | float() | Decimal() as number:
                _check_number(site, keyword, number, *below)
            case list() | tuple() as items:
                todo.extend(items)
            case Mapping() as members:
                todo.extend(members.values())


def _enum(site: Site) -> Iterator[s.Assertion]:
    values = site.list("enum")
    if not values and site.draft == "draft4":  # later drafts only advise against it
        raise site.invalid("enum", "must not be empty")
    yield _finite("enum", values, site)


def _const(site: Site) -> Iterator[s.Assertion]:
    yield _finite("const", [site.json["const"]], site)


def _bound(keyword: str, exclusive: str, make: type[s.AtLeast] | type[s.AtMost]) -> Reader:
    def read(site: Site) -> Iterator[s.Assertion]:
        older = isinstance(site.json.get(exclusive), bool)
        if keyword in site.json:
            yield make(site.path(keyword), _number(site, keyword), older and _boolean(site, exclusive))
        if exclusive in site.json and not older:
            yield make(site.path(exclusive), _number(site, exclusive), True)

    return read


def _multiple(site: Site) -> Iterator[s.Assertion]:
    of = _number(site, "multipleOf")
    if of <= 0:
        raise site.invalid("multipleOf", "must be above 0")
    yield s.Multiple(site.path("multipleOf"), of)


def _counted(low: str, high: str, make: Callable[[str, int, int | None], s.Assertion]) -> Reader:
    def read(site: Site) -> Iterator[s.Assertion]:
        if site.has(low) and site.count(low, 0):
            yield make(site.path(low), site.count(low, 0) or 0, None)
        if site.has(high):
            yield make(site.path(high), 0, site.count(high, None))

    return read


def _pattern(site: Site) -> Iterator[s.Assertion]:
    if not isinstance(site.json["pattern"], str):
        raise site.invalid("pattern", "must be a string")
    yield s.Pattern(site.path("pattern"), site.json["pattern"])


def _format(site: Site) -> Iterator[s.Assertion]:
    name = site.json["format"]
    if not isinstance(name, str):
        raise site.invalid("format", "must be a string")
    if (name in FORMATS or name in REFUSED) and site.builder.formats == "assert":
        yield s.Format(site.path("format"), name)


def _properties(site: Site) -> Iterator[s.Assertion]:
    declared = tuple((key, site.node("properties", key)) for key in site.map("properties"))
    patterns = tuple((key, site.node("patternProperties", key)) for key in site.map("patternProperties"))
    additional = s.ALWAYS
    if "additionalProperties" in site.json:
        additional = site.node("additionalProperties")
    explicit = "additionalProperties" in site.json
    culprit = next(k for k in ("additionalProperties", "patternProperties", "properties") if k in site.json)
    yield s.Properties(site.path(culprit), declared, patterns, additional, explicit)


def _required(site: Site) -> Iterator[s.Assertion]:
    keys = site.strings("required", site.json["required"])
    if keys:
        yield s.Required(site.path("required"), keys)


def _property_names(site: Site) -> Iterator[s.Assertion]:
    yield s.PropertyNames(site.path("propertyNames"), site.node("propertyNames"))


def _dependent(keyword: str) -> Reader:
    def read(site: Site) -> Iterator[s.Assertion]:
        for key, value in site.map(keyword).items():
            path = site.path(keyword, key)
            if keyword == "dependentSchemas" or isinstance(value, (Mapping, bool)):
                yield s.DependentSchema(path, key, site.node(keyword, key))
            elif keyword == "dependencies" and isinstance(value, str):
                yield s.DependentRequired(path, key, (value,))
            elif names := site.strings(keyword, value, key):
                yield s.DependentRequired(path, key, names)

    return read


def _items(site: Site) -> Iterator[s.Assertion]:
    prefix: tuple[s.NodeId, ...] = ()
    rest, culprit, explicit = s.ALWAYS, "items", False
    if site.has("prefixItems"):
        prefix, culprit = site.nodes("prefixItems"), "prefixItems"
    if isinstance(site.json.get("items"), (list, tuple)):
        prefix = site.nodes("items")
        if site.has("additionalItems"):
            rest, culprit, explicit = site.node("additionalItems"), "additionalItems", True
    elif "items" in site.json:
        rest, culprit, explicit = site.node("items"), "items", True
    if prefix or explicit:
        yield s.Items(site.path(culprit), prefix, rest, explicit)


def _contains(site: Site) -> Iterator[s.Assertion]:
    if site.has("contains"):
        low, high = site.count("minContains", 1), site.count("maxContains", None)
        yield s.Contains(site.path("contains"), site.node("contains"), 1 if low is None else low, high)


def _unique(site: Site) -> Iterator[s.Assertion]:
    if _boolean(site, "uniqueItems"):
        yield s.Unique(site.path("uniqueItems"))


def _combined(keyword: str, make: type[s.AllOf] | type[s.AnyOf] | type[s.OneOf]) -> Reader:
    def read(site: Site) -> Iterator[s.Assertion]:
        nodes = site.nodes(keyword)
        if not nodes:
            raise site.invalid(keyword, "must not be empty")
        yield make(site.path(keyword), nodes)

    return read


def _not(site: Site) -> Iterator[s.Assertion]:
    yield s.Not(site.path("not"), site.node("not"))


def _conditional(site: Site) -> Iterator[s.Assertion]:
    if site.has("if"):  # alone it still tells unevaluatedProperties what was looked at
        then = site.node("then") if site.has("then") else s.ALWAYS
        otherwise = site.node("else") if site.has("else") else s.ALWAYS
        yield s.Conditional(site.path("if"), site.node("if"), then, otherwise)


def _reference(site: Site) -> Iterator[s.Assertion]:
    value = site.json["$ref"]
    if not isinstance(value, str):
        raise site.invalid("$ref", "must be a string")
    target = site.builder.resolve(value, site.at.base, site.path("$ref"))
    yield s.AllOf(site.path("$ref"), (site.builder.reserve(target),))


def _dynamic_reference(site: Site) -> Iterator[s.Assertion]:
    value = site.json["$dynamicRef"]
    if not isinstance(value, str):
        raise site.invalid("$dynamicRef", "must be a string")
    document = site.builder.document
    target = site.builder.resolve(value, site.at.base, site.path("$dynamicRef"))
    anchor = value.partition("#")[2]
    others = document.dynamic_targets(anchor)
    if target.pointer in others and len(others) > 1:  # with one anchor, or a plain target, it is a $ref
        raise UnsupportedFeature("$dynamicRef with several dynamic anchors", path=site.path("$dynamicRef"))
    yield s.AllOf(site.path("$dynamicRef"), (site.builder.reserve(target),))


def _recursive_reference(site: Site) -> Iterator[s.Assertion]:
    document = site.builder.document
    if document.n_recursive_anchors > 1:
        raise UnsupportedFeature("$recursiveRef with several recursive anchors", path=site.path("$recursiveRef"))
    target = document.resolve("#", site.at.base, site.path("$recursiveRef"))
    yield s.AllOf(site.path("$recursiveRef"), (site.builder.reserve(target),))


def _unevaluated(keyword: str, make: type[s.UnevaluatedProperties] | type[s.UnevaluatedItems]) -> Reader:
    def read(site: Site) -> Iterator[s.Assertion]:
        scope = site.builder.reserve(site.at, without="unevaluated")
        yield make(site.path(keyword), scope, site.node(keyword))

    return read


KEYWORDS: dict[str, Keyword] = {
    "$ref": Keyword(_reference),
    "$dynamicRef": Keyword(_dynamic_reference, "2020-12"),
    "$recursiveRef": Keyword(_recursive_reference, "2019-09"),
    "type": Keyword(_type),
    "enum": Keyword(_enum),
    "const": Keyword(_const, "draft6"),
    "minimum": Keyword(_bound("minimum", "exclusiveMinimum", s.AtLeast)),
    "maximum": Keyword(_bound("maximum", "exclusiveMaximum", s.AtMost)),
    "multipleOf": Keyword(_multiple),
    "minLength": Keyword(_counted("minLength", "maxLength", s.Length)),
    "pattern": Keyword(_pattern),
    "format": Keyword(_format),
    "properties": Keyword(_properties),
    "required": Keyword(_required),
    "minProperties": Keyword(_counted("minProperties", "maxProperties", s.PropertyCount)),
    "propertyNames": Keyword(_property_names, "draft6"),
    "dependencies": Keyword(_dependent("dependencies")),
    "dependentRequired": Keyword(_dependent("dependentRequired"), "2019-09"),
    "dependentSchemas": Keyword(_dependent("dependentSchemas"), "2019-09"),
    "items": Keyword(_items),
    "minItems": Keyword(_counted("minItems", "maxItems", s.ItemCount)),
    "contains": Keyword(_contains, "draft6"),
    "uniqueItems": Keyword(_unique),
    "allOf": Keyword(_combined("allOf", s.AllOf)),
    "anyOf": Keyword(_combined("anyOf", s.AnyOf)),
    "oneOf": Keyword(_combined("oneOf", s.OneOf)),
    "not": Keyword(_not),
    "if": Keyword(_conditional, "draft7"),
    "unevaluatedProperties": Keyword(_unevaluated("unevaluatedProperties", s.UnevaluatedProperties), "2019-09"),
    "unevaluatedItems": Keyword(_unevaluated("unevaluatedItems", s.UnevaluatedItems), "2019-09"),
}
"""The keywords that assert something. Every other word is an annotation."""

KEYWORDS |= {
    "exclusiveMinimum": KEYWORDS["minimum"],
    "exclusiveMaximum": KEYWORDS["maximum"],
    "maxLength": KEYWORDS["minLength"],
    "patternProperties": KEYWORDS["properties"],
    "additionalProperties": KEYWORDS["properties"],
    "maxProperties": KEYWORDS["minProperties"],
    "prefixItems": Keyword(_items, "2020-12"),
    "additionalItems": KEYWORDS["items"],
    "maxItems": KEYWORDS["minItems"],
    "minContains": Keyword(_contains, "2019-09"),
    "maxContains": Keyword(_contains, "2019-09"),
    "then": KEYWORDS["if"],
    "else": KEYWORDS["if"],
}


@dataclass(slots=True)
class _Builder:
    document: Document
    formats: Literal["assert", "annotation"]
    budget: Budget
    nodes: list[s.Node] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    _ids: dict[tuple[str, str], s.NodeId] = field(default_factory=dict)
    _todo: deque[tuple[s.NodeId, Location, str]] = field(default_factory=deque)

    def reserve(self, at: Location, without: str = "") -> s.NodeId:
        """The id of the schema at `at` (keywords that begin with `without` left out); it is read later."""
        if isinstance(at.json, bool):
            return s.ALWAYS if at.json else s.NEVER
        key = (at.pointer, without)
        if key not in self._ids:
            self._ids[key] = len(self.nodes)
            self.nodes.append(s.Node((), at.pointer))
            self._todo.append((self._ids[key], at, without))
        return self._ids[key]

    def resolve(self, reference: str, base: str, path: str) -> Location:
        """The schema that the reference at `path` means where `base` counts."""
        try:
            return self.document.resolve(reference, base, path)
        except ValueError as error:
            raise _unreadable(self.document.root, self.document.draft, error, path) from error

    def run(self) -> None:
        """Read every reserved schema."""
        while self._todo:
            node, at, without = self._todo.popleft()
            self.budget.tick()
            self.nodes[node] = s.Node(tuple(self._read(at, without)), at.pointer)

    def _read(self, at: Location, without: str) -> Iterator[s.Assertion]:
        value, draft = at.json, at.draft
        if not isinstance(value, Mapping):
            raise InvalidSource("a schema is an object or a boolean", path=at.pointer)
        site = Site(value, at, draft, self)
        if "$ref" in value and is_before(draft, "2019-09"):
            if any(keyword in KEYWORDS for keyword in value if keyword != "$ref"):
                self.notes[f"{at.pointer}: the keywords beside $ref are ignored in {draft}"] = None
            yield from _reference(site)
            return
        known = [keyword for keyword in value if _knows(draft, keyword)]
        for read in dict.fromkeys(KEYWORDS[k].read for k in known if not (without and k.startswith(without))):
            yield from read(site)


def _knows(draft: Draft, keyword: str) -> bool:
    known = KEYWORDS.get(keyword)
    return known is not None and not is_before(draft, known.since)


def build_schema(constraint: JsonSchema, budget: Budget, *, plain_integers: bool = False) -> s.Schema:
    """Read a schema. Raises InvalidSource (malformed, or a reference that leads nowhere) and UnsupportedFeature.

    `plain_integers`: what is an integer by its value is to be one by its text too.
    """
    draft = draft_of(constraint.schema, constraint.default_draft)
    try:
        document = Document(constraint.schema, draft)
    except ValueError as error:
        raise _unreadable(constraint.schema, draft, error) from error
    builder = _Builder(document, constraint.formats, budget)
    builder.nodes += [s.Node(()), s.Node((s.Impossible(""),))]
    root = builder.reserve(document.locate(""))
    builder.run()
    nodes, root = _shared(builder.nodes, root)
    check_loops(nodes)
    return s.Schema(nodes, root, draft, _integers(document.drafts, plain_integers), tuple(builder.notes))


def _unreadable(root: object, draft: Draft, reason: ValueError, path: str = "") -> InvalidSource:
    """The error of a reference, at `path`: of the outermost name or reference that is no URI, which others may build on."""
    keywords = ("id" if draft == "draft4" else "$id", "$ref", "$dynamicRef")
    todo = deque([(root, "")])
    while todo:
        schema, pointer = todo.popleft()
        if not isinstance(schema, Mapping):
            continue
        for keyword in keywords:
            if isinstance(schema.get(keyword), str) and not _is_uri(schema[keyword]):
                return InvalidSource(f"{keyword} must be a URI: {reason}", path=f"{pointer}/{keyword}")
        todo.extend((child, pointer + suffix) for child, suffix in subschemas(schema))
    return InvalidSource(f"the reference can't be read: {reason}", path=path)


def _is_uri(text: str) -> bool:
    try:
        urlsplit(text)
    except ValueError:
        return False
    return True


def _integers(drafts: Set[Draft], plain_integers: bool) -> s.Integers:
    if "draft4" not in drafts:
        return "both" if plain_integers else "value"
    return "text" if len(drafts) == 1 else "both"


def _shared(nodes: list[s.Node], root: s.NodeId) -> tuple[tuple[s.Node, ...], s.NodeId]:
    """Nodes that demand the same become one: {"a": N1, "b": N2} with N1 = N2 → {"a": N1, "b": N1}."""
    same: dict[s.NodeId, s.NodeId] = {}
    known: dict[tuple[s.Assertion, ...], s.NodeId] = {}
    for node in range(len(nodes) - 1, -1, -1):  # children come after their parents
        assertions = tuple([renamed(a, same) for a in nodes[node].assertions])
        nodes[node] = s.Node(assertions, nodes[node].path)
        same[node] = known.setdefault(assertions, node) if node > s.NEVER else node
        if not assertions:
            same[node] = s.ALWAYS
    first: dict[s.NodeId, s.NodeId] = {}
    for node in range(len(nodes)):  # of equal ones the first keeps its id: ids are in document order, which orders keys
        first.setdefault(same[node], node)
    same = {node: s.ALWAYS if found == s.ALWAYS else first[found] for node, found in same.items()}
    moved = {node: found for node, found in same.items() if found != node}
    if not moved:
        return tuple(nodes), root
    final = tuple([s.Node(tuple([renamed(a, moved) for a in node.assertions]), node.path) for node in nodes])
    return final, same[root]


_CHILDLESS = (s.TypeIs, s.Required, s.Finite, s.Pattern, s.Format, s.Length, s.AtLeast, s.AtMost)
"""The most frequent assertions that speak of no other node."""


def renamed(assertion: s.Assertion, names: Mapping[s.NodeId, s.NodeId]) -> s.Assertion:
    """`assertion` with every child id replaced by its name (itself when it has none)."""
    if isinstance(assertion, _CHILDLESS):
        return assertion

    def name(node: s.NodeId) -> s.NodeId:
        return names.get(node, node)

    match assertion:
        case s.Properties(path, declared, patterns, additional, explicit):
            pairs = tuple((key, name(node)) for key, node in declared)
            patterns = tuple((key, name(node)) for key, node in patterns)
            return s.Properties(path, pairs, patterns, name(additional), explicit)
        case s.Items(path, prefix, rest, explicit):
            return s.Items(path, tuple(map(name, prefix)), name(rest), explicit)
        case s.AllOf(path, nodes) | s.AnyOf(path, nodes) | s.OneOf(path, nodes):
            return type(assertion)(path, tuple(map(name, nodes)))
        case s.Conditional(path, condition, then, otherwise):
            return s.Conditional(path, name(condition), name(then), name(otherwise))
        case s.PropertyNames(path, node) | s.Not(path, node):
            return type(assertion)(path, name(node))
        case s.DependentSchema(path, key, node):
            return s.DependentSchema(path, key, name(node))
        case s.Contains(path, node, low, high):
            return s.Contains(path, name(node), low, high)
        case s.UnevaluatedProperties(path, scope, node) | s.UnevaluatedItems(path, scope, node):
            return type(assertion)(path, name(scope), name(node))
        case _:
            return assertion


def in_place(node: s.Node) -> list[s.NodeId]:
    """The nodes that speak of the same value as `node`, `$ref` first."""
    found: list[s.NodeId] = []
    assertions: Sequence[s.Assertion] = node.assertions
    if len(assertions) > 1:
        assertions = sorted(assertions, key=lambda a: not a.path.endswith("/$ref"))
    for what in assertions:
        if isinstance(what, _CHILDLESS):
            continue
        match what:
            case s.AllOf(_, nodes) | s.AnyOf(_, nodes) | s.OneOf(_, nodes):
                found.extend(nodes)
            case s.Conditional(_, condition, then, otherwise):
                found.extend((condition, then, otherwise))
            case s.Not(_, child) | s.DependentSchema(_, _, child):
                found.append(child)
            case s.UnevaluatedProperties(_, scope) | s.UnevaluatedItems(_, scope):
                found.append(scope)
            case _:
                pass
    return found


def check_loops(nodes: Sequence[s.Node]) -> None:
    """Raise InvalidSource for a node that must hold itself before it can hold, such as {"$ref": "#"} at the root."""
    todo = {i: in_place(node) for i, node in enumerate(nodes)}
    done: set[s.NodeId] = set()
    for start in todo:
        path: list[s.NodeId] = [start]
        on_path = {start}
        while path:
            node = path[-1]
            child = todo[node].pop() if todo[node] else None
            if child is None:
                done.add(path.pop())
                on_path.discard(node)
            elif child in on_path:
                raise InvalidSource("the schema refers to itself without end", path=nodes[child].path)
            elif child not in done:
                path.append(child)
                on_path.add(child)
