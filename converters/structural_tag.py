"""Structural tags: text whose tagged parts a schema rules, in the three forms of spec section 3.

The legacy form (`structures`, `triggers`) and xinfer's (`tag`, `schema`) are rewritten to the tree of `format` nodes, which
`NODES` lists (those of xgrammar's documentation). A node that can hold any text takes the end of the tag around it as its own
end: the first place where it stands is where the text stops.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from converters.automata import ANY_TEXT, bounded, concatenated, difference, of_strings, to_expr
from converters.automata.until import until
from converters.constraint import Gbnf, JsonSchema, JsonValue, Lark, Regex
from converters.errors import ConversionError, InvalidSource, UnsupportedFeature
from converters.grammar.charset import ANY
from converters.grammar.expr import EMPTY, NEVER, Expr, Grammar, Ref, RuleBook, Token, alt, chars, lit, opt, rep, seq
from converters.grammar.graft import Embed
from converters.lark.detect import detect_grammar_kind
from converters.limits import Budget
from converters.options import CompileOptions
from converters.tools.parameters import text_keys_of
from converters.tools.xml_arguments import xml_arguments

_MAX_DEPTH = 64


def structural_tag_grammar(
    spec: JsonValue, options: CompileOptions, budget: Budget, embed: Embed
) -> tuple[Grammar, tuple[str, ...]]:
    """The grammar, and notes for the caller. Raises ConversionErrors with JSON pointers into `spec`."""
    book = RuleBook()
    lowering = _Lowering(options, budget, embed, book, {})
    n_before = len(budget.relaxed)
    try:
        root = lowering.lower(_root_node(spec), None)
    except ConversionError as error:
        error.path = _path_in_form(spec, error.path or "")
        raise
    budget.relaxed[n_before:] = [replace(entry, path=_path_in_form(spec, entry.path)) for entry in budget.relaxed[n_before:]]
    return book.build(root), tuple(lowering.notes)


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of the tree and its JSON pointer; reads its fields."""

    json: Mapping[str, JsonValue]
    path: str
    depth: int = 0

    def has(self, key: str) -> bool:
        return self.json.get(key) is not None

    def wrong(self, key: str, what: str) -> InvalidSource:
        return InvalidSource(f"{key} must be {what}", path=f"{self.path}/{key}")

    def text(self, key: str) -> str:
        value = self.json.get(key)
        if not isinstance(value, str):
            raise self.wrong(key, "a string")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.json.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return default if value is None else value

    def count(self, key: str, low: int = 0) -> int:
        value = self.json.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise self.wrong(key, f"an integer of at least {low}")
        return value

    def values(self, key: str) -> Sequence[JsonValue]:
        value = self.json.get(key)
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise self.wrong(key, "a list")
        return value

    def texts(self, key: str, *, required: bool = False) -> list[str]:
        """A list of non-empty strings; absent is empty unless it is required."""
        values = self.values(key) if required or self.has(key) else []
        texts = [value for value in values if isinstance(value, str) and value]
        if len(texts) != len(values) or (required and not texts):
            raise self.wrong(key, "a list of strings that aren't empty")
        return texts

    def tokens(self, key: str, *, required: bool = False) -> list[Token]:
        values = self.values(key) if required or self.has(key) else []
        if required and not values:
            raise self.wrong(key, "a list of tokens")
        return [token_of(value, f"{self.path}/{key}/{i}") for i, value in enumerate(values)]

    def node(self, key: str) -> _Node:
        return node_of(self.json.get(key), f"{self.path}/{key}", self.depth + 1)

    def nodes(self, key: str) -> list[_Node]:
        values = self.values(key)
        if not values:
            raise self.wrong(key, "a list that isn't empty")
        return [node_of(value, f"{self.path}/{key}/{i}", self.depth + 1) for i, value in enumerate(values)]


def node_of(value: JsonValue, path: str, depth: int) -> _Node:
    """`value` as a node of a known type. Raises InvalidSource naming the place."""
    if depth > _MAX_DEPTH:
        raise InvalidSource(f"a structural tag is nested deeper than {_MAX_DEPTH}", path=path)
    if not isinstance(value, Mapping):
        raise InvalidSource("a format must be an object with a type", path=path)
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in NODES:
        raise InvalidSource(f"format type {kind!r} is unknown: {', '.join(NODES)} are known", path=f"{path}/type")
    for key in value:
        if key not in NODES[kind].fields and key != "type":
            raise InvalidSource(f"a format of type {kind!r} has no field {key!r}", path=f"{path}/{key}")
    return _Node(value, path, depth)


def token_of(value: JsonValue, path: str) -> Token:
    """A token by its id or its text in angle brackets."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Token(value)
    if not isinstance(value, str) or not value:
        raise InvalidSource("a token must be an id or a text", path=path)
    if not (value.startswith("<") and value.endswith(">") and len(value) > 2):
        raise UnsupportedFeature(
            f"the token {value!r} can only be named by its id: its text isn't in angle brackets", path=path
        )
    return Token(value)


# ---- the three forms


def _root_node(spec: JsonValue) -> _Node:
    if not isinstance(spec, Mapping):
        raise InvalidSource("a structural tag must be an object", path="")
    if "structures" in spec:
        return _legacy(spec)
    if "tag" in spec:
        return _xinfer(spec)
    if "format" in spec:
        _only(spec, ("type", "format"))
        return node_of(spec["format"], "/format", 0)
    if spec.get("type") in NODES:
        return node_of(spec, "", 0)
    raise InvalidSource("a structural tag needs a format, or structures and triggers, or a tag and a schema", path="")


def _legacy(spec: Mapping[str, JsonValue]) -> _Node:
    """`structures` are tags that `triggers` open."""
    _only(spec, ("type", "structures", "triggers"))
    structures = _Node(spec, "").values("structures")
    tags: list[JsonValue] = []
    for i, structure in enumerate(structures):
        path = f"/structures/{i}"
        if not isinstance(structure, Mapping):
            raise InvalidSource("a structure must be an object with begin, schema and end", path=path)
        _only(structure, ("begin", "schema", "end"), path)
        content = {"type": "json_schema", "json_schema": structure.get("schema", {})}
        tags.append({"type": "tag", "begin": structure.get("begin"), "content": content, "end": structure.get("end")})
    return _Node({"type": "triggered_tags", "triggers": spec.get("triggers"), "tags": tags}, "", 0)


def _xinfer(spec: Mapping[str, JsonValue]) -> _Node:
    """The whole text is one `<tag>JSON</tag>`."""
    _only(spec, ("type", "tag", "schema"))
    name = spec["tag"]
    if not isinstance(name, str) or not name:
        raise InvalidSource("tag must be a name", path="/tag")
    content = {"type": "json_schema", "json_schema": spec.get("schema", {})}
    return _Node({"type": "tag", "begin": f"<{name}>", "content": content, "end": f"</{name}>"}, "")


def _path_in_form(spec: JsonValue, path: str) -> str:
    """A place in the tree as the place in the form that was sent."""
    if isinstance(spec, Mapping) and "structures" in spec:
        return re.sub(r"^/tags(/\d+)?(?:/content/json_schema)?", _structure_path, path)
    if isinstance(spec, Mapping) and "tag" in spec:
        return path.replace("/content/json_schema", "/schema", 1)
    return path


def _structure_path(match: re.Match[str]) -> str:
    return f"/structures{match[1] or ''}" + ("/schema" if match[0].endswith("json_schema") else "")


def _only(spec: Mapping[str, JsonValue], known: Sequence[str], path: str = "") -> None:
    for key in spec:
        if key not in known:
            raise InvalidSource(f"a structural tag has no field {key!r} beside {', '.join(known)}", path=f"{path}/{key}")


# ---- lowering


@dataclass(frozen=True, slots=True)
class _End:
    """What ends the tag around a node: texts, or a token."""

    texts: tuple[str, ...] = ()
    token: Token | None = None

    @property
    def expr(self) -> Expr:
        return self.token or alt(*map(lit, self.texts))


def _stops(end: _End | None) -> dict[str, Expr]:
    """The texts of the end, as words that free text stops at."""
    found: dict[str, Expr] = {}
    for text in end.texts if end is not None else ():
        if text:
            found[text] = EMPTY
    return found


def _ending(end: _End | None) -> Expr:
    """What may come at any place of free text, beside those words."""
    if end is None or "" in end.texts:
        return EMPTY
    return end.token or NEVER


@dataclass(slots=True)
class _Lowering:
    options: CompileOptions
    budget: Budget
    embed: Embed
    book: RuleBook
    notes: dict[str, None]

    def lower(self, node: _Node, end: _End | None) -> Expr:
        """The node and the end of the tag around it, if it is the last thing there."""
        return NODES[str(node.json["type"])].lower(self, node, end)

    # ---- primitive

    def const_string(self, node: _Node, end: _End | None) -> Expr:
        return closed(lit(node.text("value")), end)

    def json_schema(self, node: _Node, end: _End | None) -> Expr:
        style = node.text("style") if node.has("style") else "json"
        if node.flag("any_order"):
            raise UnsupportedFeature("any_order: properties come in declared order", path=f"{node.path}/any_order")
        if style == "qwen_xml":
            return self.qwen_xml_parameter(node, end)
        if style != "json":
            raise UnsupportedFeature(f"style {style!r}: json and qwen_xml are supported", path=f"{node.path}/style")
        return closed(self.embedded(JsonSchema(_schema(node)), node, "json_schema"), end)

    def qwen_xml_parameter(self, node: _Node, end: _End | None) -> Expr:
        schema = _schema(node)
        with self.budget.inside(f"{node.path}/json_schema"):
            expr, notes = xml_arguments(
                JsonSchema(schema), text_keys_of(schema), self.book, self.options, self.budget, _xml_element
            )
        self.notes |= dict.fromkeys(notes)
        return closed(expr, end)

    def regex(self, node: _Node, end: _End | None) -> Expr:
        return closed(self.embedded(Regex(node.text("pattern")), node, "pattern"), end)

    def grammar(self, node: _Node, end: _End | None) -> Expr:
        text = node.text("grammar")
        constraint = Gbnf(text) if detect_grammar_kind(text) == "gbnf" else Lark(text)
        return closed(self.embedded(constraint, node, "grammar"), end)

    def embedded(self, constraint: JsonSchema | Regex | Gbnf | Lark, node: _Node, key: str) -> Expr:
        with self.budget.inside(f"{node.path}/{key}"):
            expr, notes = self.embed(constraint, self.options, self.book, key)
        self.notes |= dict.fromkeys(notes)
        return expr

    def any_text(self, node: _Node, end: _End | None) -> Expr:
        excluded = node.texts("excludes")
        if node.has("max_tokens"):
            raise UnsupportedFeature("max_tokens of free text: max_chars is supported", path=f"{node.path}/max_tokens")
        words = _stops(end)
        if node.has("max_chars"):
            return closed(self.short_text(node.count("max_chars"), [*excluded, *words]), end)
        return self.free(words, excluded, end, self.book.reserve("free"))

    def short_text(self, max_chars: int, excluded: Sequence[str]) -> Expr:
        if not excluded:
            return rep(chars(ANY), 0, max_chars)
        found = concatenated([ANY_TEXT, of_strings(excluded, self.budget), ANY_TEXT], self.budget)
        free = difference(ANY_TEXT, found, self.budget)
        return to_expr(bounded(free, 0, max_chars, self.budget, "free text with max_chars"), self.book, "text")

    def free(self, words: Mapping[str, Expr], excluded: Sequence[str], end: _End | None, start: Ref) -> Ref:
        """Free text up to one of `words`. What ends the tag may stand among the excluded too: it ends the text."""
        stops = _stops(end)
        kept = [text for text in excluded if text not in stops]
        return until(words, kept, _ending(end), self.book, self.budget, start)

    # ---- composition

    def sequence(self, node: _Node, end: _End | None) -> Expr:
        *before, last = node.nodes("elements")
        return seq(*(self.lower(element, None) for element in before), self.lower(last, end))

    def one_of(self, node: _Node, end: _End | None) -> Expr:
        return alt(*(self.lower(element, end) for element in node.nodes("elements")))

    def optional(self, node: _Node, end: _End | None) -> Expr:
        return alt(self.lower(node.node("content"), end), closed(EMPTY, end))

    def plus(self, node: _Node, end: _End | None) -> Expr:
        return closed(rep(self.ruled(node), 1), end)

    def star(self, node: _Node, end: _End | None) -> Expr:
        return closed(rep(self.ruled(node)), end)

    def repeat(self, node: _Node, end: _End | None) -> Expr:
        low, high = node.count("min"), node.count("max", -1)
        if high != -1 and high < low:
            raise node.wrong("max", "-1 or at least min")
        return closed(rep(self.ruled(node), low, None if high == -1 else high), end)

    def ruled(self, node: _Node) -> Expr:
        """The content as a rule, which may be repeated."""
        return self.book.add("item", self.lower(node.node("content"), None))

    # ---- tags

    def tag(self, node: _Node, end: _End | None) -> Expr:
        begin = node.json.get("begin")
        opening: Expr = lit(begin) if isinstance(begin, str) else _token_node(node, "begin")
        return closed(seq(opening, self.inside(node)), end)

    def inside(self, tag: _Node) -> Expr:
        """What follows the beginning of a tag, its end included."""
        return self.book.add("tag", self.lower(tag.node("content"), _end_of(tag)))

    def triggered_tags(self, node: _Node, end: _End | None) -> Expr:
        triggers = node.texts("triggers", required=True)
        tags = [(tag.text("begin"), tag) for tag in self.tags(node)]
        loop = self.book.reserve("free")
        after = closed(EMPTY, end) if node.flag("stop_after_first") else loop
        rests: dict[str, list[Expr]] = {trigger: [] for trigger in triggers}
        whole: list[Expr] = []
        for begin, tag in tags:
            trigger = min((trigger for trigger in triggers if begin.startswith(trigger)), key=len, default=None)
            if trigger is None:
                raise InvalidSource(f"no trigger begins {begin!r}", path=f"{tag.path}/begin")
            inside = self.inside(tag)
            rests[trigger].append(seq(lit(begin[len(trigger) :]), inside))
            whole.append(seq(lit(begin), inside, after))
        words = _stops(end)
        words |= {trigger: seq(alt(*found), after) for trigger, found in rests.items()}
        self.free(words, node.texts("excludes"), end, loop)
        return alt(*whole) if node.flag("at_least_one") else loop

    def tags(self, node: _Node) -> list[_Node]:
        tags = [_tag_of(value, f"{node.path}/tags/{i}", node.depth + 1) for i, value in enumerate(node.values("tags"))]
        if not tags:
            raise node.wrong("tags", "a list that isn't empty")
        return tags

    def tags_with_separator(self, node: _Node, end: _End | None) -> Expr:
        one = self.book.add("tags", alt(*(self.tag(tag, None) for tag in self.tags(node))))
        tags = one if node.flag("stop_after_first") else seq(one, rep(seq(lit(node.text("separator")), one)))
        return closed(tags if node.flag("at_least_one") else opt(tags), end)

    def dispatch(self, node: _Node, end: _End | None) -> Expr:
        loop = self.book.reserve("free")
        after = loop if node.flag("loop", True) else closed(EMPTY, end)
        words = _stops(end)
        for i, (pattern, content) in enumerate(_rules(node)):
            if not isinstance(pattern, str) or not pattern:
                raise InvalidSource("a pattern must be a text that isn't empty", path=f"{node.path}/rules/{i}/0")
            then = seq(self.lower(content, None), after)
            words[pattern] = alt(words[pattern], then) if pattern in words else then
        return self.free(words, node.texts("excludes"), end, loop)

    # ---- tokens

    def token(self, node: _Node, end: _End | None) -> Expr:
        return closed(token_of(node.json.get("token"), f"{node.path}/token"), end)

    def exclude_token(self, node: _Node, end: _End | None) -> Expr:
        return closed(_other_token(node.tokens("exclude_tokens"), end, node.path), end)

    def any_tokens(self, node: _Node, end: _End | None) -> Expr:
        high = node.count("max_tokens") if node.has("max_tokens") else None
        return closed(rep(_other_token(node.tokens("exclude_tokens"), end, node.path), 0, high), end)

    def token_triggered_tags(self, node: _Node, end: _End | None) -> Expr:
        triggers = node.tokens("trigger_tokens", required=True)
        begun: list[tuple[Token, Expr]] = []
        for tag in self.tags(node):
            begin = _token_node(tag, "begin")
            if begin not in triggers:
                raise InvalidSource("no trigger token begins this tag", path=f"{tag.path}/begin")
            begun.append((begin, self.inside(tag)))
        return self.token_loop(
            node,
            end,
            [*triggers, *node.tokens("exclude_tokens")],
            begun,
            stops=node.flag("stop_after_first"),
            begins=node.flag("at_least_one"),
        )

    def token_dispatch(self, node: _Node, end: _End | None) -> Expr:
        begun = [(token_of(t, f"{node.path}/rules/{i}/0"), self.lower(c, None)) for i, (t, c) in enumerate(_rules(node))]
        excluded = [*(token for token, _ in begun), *node.tokens("exclude_tokens")]
        return self.token_loop(node, end, excluded, begun, stops=not node.flag("loop", True), begins=False)

    def token_loop(
        self,
        node: _Node,
        end: _End | None,
        excluded: Sequence[Token],
        begun: Sequence[tuple[Token, Expr]],
        *,
        stops: bool,
        begins: bool,
    ) -> Expr:
        """Other tokens, and what follows the tokens that begin something."""
        free = rep(_other_token(excluded, end, node.path))
        one = alt(*(seq(token, rest) for token, rest in begun))
        if stops:
            return closed(one if begins else seq(free, opt(one)), end)
        return closed(seq(one if begins else EMPTY, free, rep(seq(self.book.add("tags", one), free))), end)


def closed(expr: Expr, end: _End | None) -> Expr:
    """`expr`, then the end of the tag around it."""
    return expr if end is None else seq(expr, end.expr)


def _other_token(excluded: Sequence[Token], end: _End | None, path: str) -> Token:
    """Any token but these and the end: llama.cpp's grammars can leave out one."""
    tokens = {*excluded, *([end.token] if end is not None and end.token is not None else [])}
    if len(tokens) != 1:
        raise UnsupportedFeature(f"any token but {len(tokens)} tokens: exactly one can be left out", path=path)
    return replace(next(iter(tokens)), negated=True)


def _tag_of(value: JsonValue, path: str, depth: int) -> _Node:
    """A tag; its type may be left out where only tags can stand."""
    if isinstance(value, Mapping) and "type" not in value:
        value = {"type": "tag", **value}
    node = node_of(value, path, depth)
    if node.json["type"] != "tag":
        raise InvalidSource("only formats of type 'tag' can stand here", path=f"{path}/type")
    return node


def _end_of(tag: _Node) -> _End:
    value = tag.json.get("end")
    if isinstance(value, str):
        return _End((value,))
    if isinstance(value, Mapping):
        return _End(token=_token_node(tag, "end"))
    texts = tag.values("end") if isinstance(value, Sequence) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise tag.wrong("end", "a string, a list of strings, or a token")
    return _End(tuple(map(str, texts)))


def _token_node(node: _Node, key: str) -> Token:
    value = node.json.get(key)
    if not isinstance(value, Mapping) or value.get("type") != "token":
        raise node.wrong(key, "a string or a format of type 'token'")
    return token_of(value.get("token"), f"{node.path}/{key}/token")


def _rules(node: _Node) -> Iterator[tuple[JsonValue, _Node]]:
    values = node.values("rules")
    if not values:
        raise node.wrong("rules", "a list that isn't empty")
    for i, value in enumerate(values):
        path = f"{node.path}/rules/{i}"
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
            raise InvalidSource("a rule must be a pair of a pattern and a format", path=path)
        yield value[0], node_of(value[1], f"{path}/1", node.depth + 1)


def _schema(node: _Node) -> JsonValue:
    """A schema, as object or JSON text."""
    if "json_schema" not in node.json:
        raise node.wrong("json_schema", "a JSON Schema")
    schema = node.json["json_schema"]
    if not isinstance(schema, str):
        return schema
    try:
        parsed: JsonValue = json.loads(schema)
    except ValueError as error:
        raise node.wrong("json_schema", f"a JSON text ({error})") from error
    return parsed


def _xml_element(key: Expr, value: Expr) -> Expr:
    """A parameter, with or without line ends around its value."""
    line = opt(lit("\n"))
    return seq(lit("<parameter="), key, lit(">"), line, value, line, lit("</parameter>"), line)


@dataclass(frozen=True, slots=True)
class NodeType:
    """How a format is lowered, and the fields that it may have."""

    lower: Callable[[_Lowering, _Node, _End | None], Expr]
    fields: tuple[str, ...] = ()


NODES: dict[str, NodeType] = {
    "const_string": NodeType(_Lowering.const_string, ("value",)),
    "json_schema": NodeType(_Lowering.json_schema, ("json_schema", "style", "any_order")),
    "qwen_xml_parameter": NodeType(_Lowering.qwen_xml_parameter, ("json_schema",)),
    "regex": NodeType(_Lowering.regex, ("pattern",)),
    "grammar": NodeType(_Lowering.grammar, ("grammar",)),
    "any_text": NodeType(_Lowering.any_text, ("excludes", "max_chars", "max_tokens")),
    "sequence": NodeType(_Lowering.sequence, ("elements",)),
    "or": NodeType(_Lowering.one_of, ("elements",)),
    "optional": NodeType(_Lowering.optional, ("content",)),
    "plus": NodeType(_Lowering.plus, ("content",)),
    "star": NodeType(_Lowering.star, ("content",)),
    "repeat": NodeType(_Lowering.repeat, ("content", "min", "max")),
    "tag": NodeType(_Lowering.tag, ("begin", "content", "end")),
    "triggered_tags": NodeType(_Lowering.triggered_tags, ("triggers", "tags", "at_least_one", "stop_after_first", "excludes")),
    "tags_with_separator": NodeType(_Lowering.tags_with_separator, ("tags", "separator", "at_least_one", "stop_after_first")),
    "dispatch": NodeType(_Lowering.dispatch, ("rules", "loop", "excludes")),
    "token": NodeType(_Lowering.token, ("token",)),
    "exclude_token": NodeType(_Lowering.exclude_token, ("exclude_tokens",)),
    "any_tokens": NodeType(_Lowering.any_tokens, ("exclude_tokens", "max_tokens")),
    "token_triggered_tags": NodeType(
        _Lowering.token_triggered_tags, ("trigger_tokens", "tags", "exclude_tokens", "at_least_one", "stop_after_first")
    ),
    "token_dispatch": NodeType(_Lowering.token_dispatch, ("rules", "loop", "exclude_tokens")),
}
