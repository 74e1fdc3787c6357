"""Lark source text into a document: definitions and statements with their places.

The grammar of Lark's syntax is the one that the `lark` package ships; what llguidance adds to it is added here. JSON after
`%json`, `%regex` and `%llguidance` isn't regular, so a first scan cuts the blocks out (the offsets stay). What names
mean, and whether they exist, is not asked here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import lark

from converters.constraint import JsonValue
from converters.errors import InvalidSource, LimitExceeded, Position
from converters.lark.tree import (
    LIBRARY,
    Attribute,
    Both,
    Call,
    Choice,
    Definition,
    Extend,
    Foreign,
    Ignore,
    Import,
    Item,
    Json,
    Literal,
    Name,
    Node,
    Not,
    Options,
    Refused,
    Repeat,
    Sequence,
    Span,
    Special,
    Structured,
)
from converters.limits import Budget

MAX_NESTING = 100
"""Brackets inside brackets. Every pass over an expression recurses this deep at most."""

MAX_COUNT = 1_000_000_000
"""The largest count that `~n..m` and `{n,m}` may name."""

_MASK = "\ue000"

_GRAMMAR = r"""
%import lark (start, _item, rule_params, token_params, priority, import_path, name_list, expansions, expansion, name)
%import lark (_VBAR, OP, RULE, TOKEN, STRING, REGEXP, _NL, NUMBER, WS_INLINE, COMMENT)
%ignore WS_INLINE
%ignore COMMENT
%ignore /\\[ ]*\r?\n/

%override _item: rule | token | _statement
rule: RULE rule_params priority? attributes? ":" expansions
token: TOKEN token_params priority? ":" expansions
attributes: "[" [attribute ("," attribute)*] "]"
attribute: RULE ["=" (_value | NUMBER | FLOAT)]

_statement: ignore | import_one | import_many | override | declare | extend | options
ignore: IGNORE expansions
import_one: IMPORT import_path ["->" name]
import_many: IMPORT import_path name_list
override: OVERRIDE (rule | token)
declare: DECLARE name+
extend: "%extend" (rule | token)
options: OPTIONS BLOCK
IGNORE: "%ignore"
IMPORT: "%import"
OVERRIDE: "%override"
DECLARE: "%declare"
OPTIONS: "%llguidance"

alias: expansion ["->" RULE]
%override expansions: alias (_VBAR alias)*
%override expansion: _expr* | conjunction
conjunction: operand ("&" operand)+
operand: _expr+

_expr: _atom | repeat
repeat: _atom (OP | COUNT | _TIMES NUMBER [".." NUMBER])
negation: NOT _atom
_atom: group | maybe | negation | _value
group: "(" expansions ")"
maybe: "[" expansions "]"

_value: literal_range | name | literal | call | special | json | structured | grammar_reference
literal_range: STRING ".." STRING
literal: REGEXP | STRING
call: name "{" _value ("," _value)* "}"
special: SPECIAL
json: JSON BLOCK
structured: REGEX BLOCK
grammar_reference: REFERENCE

%override RULE: /!?[_?]?[a-z][_a-z0-9]*(-[_a-z0-9]+)*|[?]![_]?[a-z][_a-z0-9]*/
%override TOKEN: /_?[A-Z][_A-Z0-9]*(-[_A-Z0-9]+)*/
%override OP: /[+*]|[?](?![a-z_])/
JSON: "%json"
REGEX: "%regex"
BLOCK: /MASK+/
COUNT.1: /\{[ \t]*([0-9]+[ \t]*(,[ \t]*[0-9]*[ \t]*)?|,[ \t]*[0-9]+[ \t]*)\}/
NOT: /~(?![ \t]*[+-]?[0-9])/
_TIMES: /~(?=[ \t]*[+-]?[0-9])/
SPECIAL: /<[^<>\s]+>/
REFERENCE: /@[a-zA-Z0-9_{}\-]+/
FLOAT.1: /[0-9]+\.[0-9]*/
""".replace("MASK", _MASK)

_SCAN = re.compile(
    r"""(?P<comment>//[^\n]*|\#[^\n]*)
    |(?P<string>"(?:\\.|[^"\\\n])*")
    |(?P<regexp>/(?!/)(?:\\/|\\\\|[^/])*?/)
    |(?P<block>%(?:json|regex|llguidance)\b)
    |(?P<open>[\[({])
    |(?P<close>[\])}])""",
    re.VERBOSE,
)
"""Where a bracket or a block is really one: not in a comment, a string or a regex."""


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed source: its items in order, and the JSON of its blocks by the offset of their keyword."""

    text: str
    items: tuple[Item, ...]
    blocks: Mapping[int, JsonValue]

    def position(self, offset: int) -> Position | None:
        """The place of `offset`; None for what came with an import."""
        return None if offset == LIBRARY else Position.at(self.text, offset)


def parse(text: str, budget: Budget) -> Document:
    """Parse Lark source. Raises InvalidSource with the place, LimitExceeded past `MAX_NESTING` or the deadline."""
    masked, blocks = _cut_blocks(text, budget)
    try:
        return Document(text, tuple(_parse_items(masked, budget)), blocks)
    except lark.UnexpectedInput as error:
        _raise_syntax_error(text, masked, error)


def _parse_items(masked: str, budget: Budget) -> Iterator[Item]:
    interactive = _parser().parse_interactive(masked)
    for _ in interactive.iter_parse():
        budget.tick()
    items: list[Item] = interactive.resume_parse()  # type: ignore[no-untyped-call]
    budget.check_deadline()
    yield from items


def _cut_blocks(text: str, budget: Budget) -> tuple[str, dict[int, JsonValue]]:
    """The text with every JSON block replaced by filler of its length, and the blocks."""
    blocks: dict[int, JsonValue] = {}
    pieces: list[str] = []
    depth = start = 0
    done = 0
    while match := _SCAN.search(text, start):
        budget.tick()
        start = match.end()
        match match.lastgroup:
            case "open":
                depth += 1
                if depth > MAX_NESTING:
                    raise LimitExceeded(
                        f"brackets nest deeper than {MAX_NESTING} levels",
                        limit="nesting", value=MAX_NESTING, position=Position.at(text, match.start()),
                    )  # fmt: skip
            case "close":
                depth -= 1
            case "block":
                blocks[match.start()], end = _read_json(text, match)
                pieces.append(text[done : match.end()] + _MASK * (end - match.end()))
                start = done = end
            case _:
                pass
    return "".join(pieces) + text[done:], blocks


def _read_json(text: str, keyword: re.Match[str]) -> tuple[JsonValue, int]:
    """The JSON value after `keyword`, and where it ends."""
    start = keyword.end()
    while start < len(text) and text[start] in " \t\r\n":
        start += 1
    if text[start : start + 1] != "{":
        raise InvalidSource(f"{keyword.group()} takes a JSON object", position=Position.at(text, start))
    try:
        value, end = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise InvalidSource(
            f"the JSON after {keyword.group()} is not valid: {error.msg}", position=Position.at(text, error.pos)
        ) from None
    except (ValueError, RecursionError) as error:
        reason = "nests too deeply" if isinstance(error, RecursionError) else f"is not valid: {error}"
        raise InvalidSource(f"the JSON after {keyword.group()} {reason}", position=Position.at(text, start)) from None
    return value, end


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_WORD = re.compile(r"[\w-]+|\s|\S")
_EXPECTED = {
    "COLON": "':'", "RPAR": "')'", "RSQB": "']'", "RBRACE": "'}'", "NUMBER": "a number", "STRING": "a string",
    "_NL": "the end of the line", "RULE": "a rule name", "TOKEN": "a terminal name", "LBRACE": "'{'",
}  # fmt: skip


def _raise_syntax_error(text: str, masked: str, error: lark.UnexpectedInput) -> NoReturn:
    """The error of the `lark` package as ours. At the end of the text it has no place of its own."""
    offset = len(text)
    expected: set[str] = set()
    if isinstance(error, lark.UnexpectedCharacters):
        offset = error.pos_in_stream or 0
    elif isinstance(error, lark.UnexpectedToken):
        expected = {str(name) for name in error.expected}
        if error.token.type != "$END" and error.token.start_pos is not None:
            offset = error.token.start_pos
    word = _WORD.match(masked, offset)
    what = repr(word.group()) if word else "the end of the text"
    names = sorted(_EXPECTED[name] for name in expected if name in _EXPECTED)
    hint = f": expected {' or '.join(names)}" if names and len(names) == len(expected) else ""
    raise InvalidSource(f"unexpected {what} in the Lark grammar{hint}", position=Position.at(text, offset)) from None


@cache
def _parser() -> lark.Lark:
    return lark.Lark(_GRAMMAR, parser="lalr", maybe_placeholders=False, transformer=_Builder())


@lark.v_args(inline=True)
class _Builder(lark.Transformer[Any, Any]):
    """Builds the nodes bottom-up while the text is parsed, so that nothing recurses over the text's nesting."""

    def start(self, *items: Any) -> list[Item]:
        return list(items)

    def rule(self, name: lark.Token, params: tuple[str, ...], *rest: Any) -> Definition:
        *options, body = rest
        attributes = next((option for option in options if isinstance(option, tuple)), ())
        return Definition(name.lstrip("!?"), params, body, True in options, attributes, _offset(name))

    token = rule

    def rule_params(self, *names: lark.Token) -> tuple[str, ...]:
        return tuple(name.lstrip("!?") for name in names)

    token_params = rule_params

    def priority(self, _number: lark.Token) -> bool:
        return True

    def attributes(self, *attributes: Attribute) -> tuple[Attribute, ...]:
        return attributes

    def attribute(self, name: lark.Token, *_value: Any) -> Attribute:
        return Attribute(str(name), _offset(name))

    def ignore(self, keyword: lark.Token, body: Node) -> Ignore:
        return Ignore(body, _offset(keyword))

    def import_path(self, *parts: lark.Token | Name) -> str:
        return "".join(part.name if isinstance(part, Name) else part for part in parts)

    def name_list(self, *names: Name) -> tuple[Name, ...]:
        return names

    def import_one(self, keyword: lark.Token, path: str, local: Name | None = None) -> Import:
        source, _, last = path.rpartition(".")
        name = Name(last, _offset(keyword))
        return Import(source, ((name, local.name if local else last),), _offset(keyword))

    def import_many(self, keyword: lark.Token, path: str, names: tuple[Name, ...]) -> Import:
        return Import(path, tuple((name, name.name) for name in names), _offset(keyword))

    def declare(self, keyword: lark.Token, *_names: Name) -> Refused:
        return Refused("%declare", _offset(keyword))

    def override(self, keyword: lark.Token, _definition: Definition) -> Refused:
        return Refused("%override", _offset(keyword))

    def extend(self, definition: Definition) -> Extend:
        return Extend(definition)

    def options(self, keyword: lark.Token, _block: lark.Token) -> Options:
        return Options(_offset(keyword))

    def expansions(self, *options: Node) -> Node:
        return options[0] if len(options) == 1 else Choice(options)

    def alias(self, expansion: Node, _name: lark.Token | None = None) -> Node:
        return expansion

    def expansion(self, *items: Node) -> Node:
        return items[0] if len(items) == 1 else Sequence(items)

    operand = expansion

    def conjunction(self, *items: Node) -> Both:
        return Both(items)

    def negation(self, operator: lark.Token, item: Node) -> Not:
        return Not(item, _offset(operator))

    def grammar_reference(self, reference: lark.Token) -> Foreign:
        return Foreign(f"a reference to another grammar ({reference})", _offset(reference))

    def repeat(self, item: Node, operator: lark.Token, last: lark.Token | None = None) -> Repeat:
        return Repeat(item, *_counts(operator, last), _offset(operator))

    def group(self, body: Node) -> Node:
        return body

    def maybe(self, body: Node) -> Node:
        return Repeat(body, 0, 1, LIBRARY)

    def name(self, name: lark.Token) -> Name:
        return Name(str(name), _offset(name))

    def literal(self, literal: lark.Token) -> Literal:
        return Literal(str(literal), _offset(literal))

    def literal_range(self, first: lark.Token, last: lark.Token) -> Span:
        return Span(str(first), str(last), _offset(first))

    def call(self, name: Name, *args: Node) -> Call:
        return Call(name.name, args, name.offset)

    def special(self, token: lark.Token) -> Special:
        return Special(str(token), _offset(token))

    def json(self, keyword: lark.Token, _block: lark.Token) -> Json:
        return Json(_offset(keyword))

    def structured(self, keyword: lark.Token, _block: lark.Token) -> Structured:
        return Structured(_offset(keyword))


def _counts(operator: lark.Token, last: lark.Token | None) -> tuple[int, int | None]:
    """Minimum and maximum of `?`, `*`, `+`, `~n`, `~n..m`, `{n}`, `{n,}`, `{n,m}` and `{,m}`."""
    match operator.type:
        case "OP":
            return {"?": (0, 1), "*": (0, None), "+": (1, None)}[operator.value]
        case "COUNT":
            first, comma, most = (part.strip() for part in operator[1:-1].partition(","))
            least = _number(first or "0")
            return least, (_number(most) if most else None) if comma else least
        case _:
            least = _number(operator)
            return least, least if last is None else _number(last)


def _number(digits: str) -> int:
    """The count, with everything past MAX_COUNT alike: it is refused in any case, and Python bounds the digits of an int."""
    significant = digits.lstrip("+0")
    return int(significant or "0") if len(significant) <= len(str(MAX_COUNT)) else MAX_COUNT + 1


def _offset(token: lark.Token) -> int:
    return token.start_pos if token.start_pos is not None else LIBRARY
