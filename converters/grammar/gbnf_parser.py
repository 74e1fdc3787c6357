"""Grammars as text in llama.cpp's dialect: the parser.

Reads all that llama.cpp reads, what it reads wrongly as it was meant (`_` in names, a rule on several lines, counts above
2000), and refuses with line and column what can only be a mistake. The entry rule is `root`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from converters.errors import InvalidSource, LimitExceeded, Position
from converters.grammar.charset import ANY, MAX_CODE_POINT, CharSet
from converters.grammar.expr import NEVER, Expr, Grammar, Ref, Token, alt, chars, lit, rep, seq

MAX_NESTING = 200
"""Levels of brackets in a text."""
GROUPS_PER_RULE = 10
"""Every so many levels a group becomes a rule: what reads expressions later calls itself for every level."""
MAX_COUNT = 1_000_000
"""The largest count of a repetition in a text."""
MAX_TOKEN_ID = 2**32 - 1

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_RULE_START = re.compile(r"[A-Za-z0-9_-]+[ \t]*::=")
_BLANK = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_COUNT = re.compile(r"[ \t]*([0-9]+)[ \t]*(?:(,)[ \t]*([0-9]*)[ \t]*)?\}")
_TOKEN_ID = re.compile(r"<\[([0-9]+)\]>")
_TOKEN_TEXT = re.compile(r"<[^>\r\n]+>")
_PLAIN_LITERAL = re.compile(r'"([^"\\]*)"')
_HEX = frozenset("0123456789abcdefABCDEF")
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
_SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def parse_gbnf(text: str) -> Grammar:
    """The grammar that `text` means. Raises InvalidSource or LimitExceeded, with the position."""
    return read_gbnf(text)[0]


def read_gbnf(text: str) -> tuple[Grammar, tuple[str, ...]]:
    """`parse_gbnf`, with notes on what a reader may have missed (a rule defined twice: the last one counts)."""
    _check_characters(text)
    parser = _Parser(text)
    parser.parse()
    return Grammar(parser.rules), tuple(parser.notes)


def _check_characters(text: str) -> None:
    for offset, char in enumerate(text) if not text.isascii() or "\0" in text else ():
        if char == "\0":
            raise InvalidSource("a NUL character: llama.cpp would ignore all that follows", position=Position.at(text, offset))
        if char == "\ufeff" and offset == 0:
            raise InvalidSource("the text begins with a byte order mark", position=Position.at(text, 0))
        if "\ud800" <= char <= "\udfff":
            raise InvalidSource("a lone surrogate is not a character", position=Position.at(text, offset))


@dataclass(slots=True)
class _Group:
    """Alternatives in the reading: those that are complete, and the items of the present one."""

    start: int
    options: list[Expr] = field(default_factory=list)
    items: list[Expr] = field(default_factory=list)

    def close_option(self) -> None:
        self.options.append(seq(*self.items))
        self.items = []

    def close(self) -> Expr:
        self.close_option()
        return alt(*self.options)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.rules: dict[str, Expr] = {}
        self.notes: list[str] = []
        self._referred: dict[str, int] = {}  # by name: where first

    def parse(self) -> None:
        self._skip(_BLANK_LINES)
        while self.at < len(self.text):
            self._rule()
            self._skip(_BLANK_LINES)
        for name, offset in self._referred.items():
            if name not in self.rules:
                raise self._error(f"undefined rule {name!r}", offset)
        if "root" not in self.rules:
            raise self._error("the grammar has no rule 'root'", 0)

    def _rule(self) -> None:
        start = self.at
        name = self._take(_NAME)
        if not name:
            raise self._error(f"expected the name of a rule, not {self._peek()!r}")
        self._skip(_BLANK)
        if not self.text.startswith("::=", self.at):
            raise self._error(f"expected ::= after the rule name {name!r}")
        self.at += 3
        self._skip(_BLANK_LINES)
        if name in self.rules:
            self.notes.append(
                f"rule {name!r} is defined again in line {Position.at(self.text, start).line}; the last one counts"
            )
            del self.rules[name]
        self.rules[name] = self._alternatives()

    def _alternatives(self) -> Expr:
        """Everything up to the end of the rule. Groups are kept on a list of our own, whatever their depth."""
        groups = [_Group(self.at)]
        while not self._at_end_of_rule(len(groups) > 1):
            char = self.text[self.at]
            if char == "(":
                if len(groups) > MAX_NESTING:
                    reason = f"groups nest deeper than {MAX_NESTING} levels"
                    raise LimitExceeded(reason, limit="grammar_nesting", value=MAX_NESTING, position=self._position(self.at))
                groups.append(_Group(self.at))
                self.at += 1
            elif char == ")":
                if len(groups) == 1:
                    raise self._error("a ) without its (")
                group = self._close(groups.pop(), len(groups))
                groups[-1].items.append(group)
                self.at += 1
            elif char == "|":
                groups[-1].close_option()
                self.at += 1
                self._skip(_BLANK_LINES)
            elif char in "*+?{":
                self._repeat(groups[-1])
            else:
                groups[-1].items.append(self._symbol(char))
        if len(groups) > 1:
            raise self._error("a ( that is never closed", groups[-1].start)
        return groups[0].close()

    def _close(self, group: _Group, depth: int) -> Expr:
        expr = group.close()
        if depth % GROUPS_PER_RULE:
            return expr
        name = f"group {len(self.rules)}"  # no name of a text has a space in it
        self.rules[name] = expr
        return Ref(name)

    def _at_end_of_rule(self, is_nested: bool) -> bool:
        """Skip blanks. A rule ends with the text, or with a line after which another rule begins."""
        self._skip(_BLANK)
        if self.at >= len(self.text):
            return True
        if self.text[self.at] not in "\r\n":
            return False
        self._skip(_BLANK_LINES)
        return self.at >= len(self.text) or (not is_nested and _RULE_START.match(self.text, self.at) is not None)

    def _symbol(self, char: str) -> Expr:
        if char == '"':
            return self._literal()
        if char == "[":
            return self._class()
        if char == ".":
            self.at += 1
            return chars(ANY)
        if char in "<!":
            return self._token()
        start = self.at
        name = self._take(_NAME)
        if name:
            self._referred.setdefault(name, start)
            return Ref(name)
        raise self._error(f"unexpected {char!r}")

    # ---- characters

    def _literal(self) -> Expr:
        plain = _PLAIN_LITERAL.match(self.text, self.at)
        if plain:
            self.at = plain.end()
            return lit(plain[1])
        start = self.at
        self.at += 1
        points: list[int] = []
        while self._peek() != '"':
            points.append(self._char(start, "literal"))
        self.at += 1
        if any(not _is_scalar(point) for point in points):
            return NEVER
        return lit("".join([chr(point) for point in points]))

    def _class(self) -> Expr:
        start = self.at
        self.at += 1
        negated = self._peek() == "^"
        self.at += negated
        if self._peek() == "]":
            what = "[^]" if negated else "[]"
            raise self._error(f"{what} is empty: llama.cpp would read it as nothing at all", start)
        ranges: list[tuple[int, int]] = []
        while self._peek() != "]":
            low = high = self._char(start, "class")
            if self._peek() == "-" and self.text[self.at + 1 : self.at + 2] != "]":
                self.at += 1
                high = self._char(start, "class")
            ranges.append((low, min(high, MAX_CODE_POINT)))
        self.at += 1
        charset = CharSet.from_ranges(ranges)
        return chars(~charset if negated else charset)

    def _char(self, start: int, what: str) -> int:
        char = self._peek()
        if not char:
            raise self._error(f"a {what} that is never closed", start)
        if char != "\\":
            self.at += 1
            return ord(char)
        escape = self.text[self.at + 1 : self.at + 2]
        n_digits = _HEX_DIGITS.get(escape)
        if n_digits is not None:
            digits = self.text[self.at + 2 : self.at + 2 + n_digits]
            if len(digits) < n_digits or not set(digits) <= _HEX:
                raise self._error(f"expected {n_digits} hexadecimal digits after \\{escape}")
            self.at += 2 + n_digits
            return int(digits, 16)
        if escape not in _ESCAPES or not escape:
            raise self._error(f"unknown escape \\{escape}")
        self.at += 2
        return ord(_ESCAPES[escape])

    # ---- tokens and counts

    def _token(self) -> Expr:
        start = self.at
        negated = self._peek() == "!"
        self.at += negated
        by_id = _TOKEN_ID.match(self.text, self.at)
        if by_id:
            self.at = by_id.end()
            if len(by_id[1]) > 10 or int(by_id[1]) > MAX_TOKEN_ID:
                raise self._error(f"the token id {by_id[1][:20]} is larger than {MAX_TOKEN_ID}", start)
            return Token(int(by_id[1]), negated)
        by_text = _TOKEN_TEXT.match(self.text, self.at)
        if not by_text or by_text[0].startswith("<["):
            raise self._error("expected a token, <text> or <[id]>", start)
        self.at = by_text.end()
        return Token(by_text[0], negated)

    def _repeat(self, group: _Group) -> None:
        start = self.at
        low, high = self._count()
        if not group.items:
            raise self._error("nothing stands before this repetition", start)
        group.items.append(rep(group.items.pop(), low, high))

    def _count(self) -> tuple[int, int | None]:
        start = self.at
        sign = self._peek()
        self.at += 1
        if sign in _SIGNS:
            return _SIGNS[sign]
        found = _COUNT.match(self.text, self.at)
        if not found:
            raise self._error("expected a count: {m}, {m,} or {m,n}", start)
        self.at = found.end()
        low = self._number(found[1], start)
        high = self._number(found[3], start) if found[3] else None if found[2] else low
        if high is not None and high < low:
            raise self._error(f"the repetition {{{low},{high}}} has a maximum below its minimum", start)
        return low, high

    def _number(self, digits: str, start: int) -> int:
        if len(digits.lstrip("0")) > len(str(MAX_COUNT)) or int(digits) > MAX_COUNT:
            reason = f"the repetition count {digits[:20]} is larger than {MAX_COUNT}"
            raise LimitExceeded(reason, limit="repetition_count", value=MAX_COUNT, position=self._position(start))
        return int(digits)

    # ---- text

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if not found:
            return ""
        self.at = found.end()
        return found[0]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def _position(self, offset: int) -> Position:
        return Position.at(self.text, min(offset, len(self.text)))

    def _error(self, reason: str, offset: int | None = None) -> InvalidSource:
        return InvalidSource(reason, position=self._position(self.at if offset is None else offset))


def _is_scalar(point: int) -> bool:
    return 0 < point <= MAX_CODE_POINT and not 0xD800 <= point <= 0xDFFF
