"""Grammars as text in llama.cpp's dialect: the printer. (`parse_gbnf`, its counterpart, lives in `gbnf_parser`.)"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from typing_extensions import assert_never

from converters.errors import UnsupportedFeature
from converters.grammar.charset import CharSet, Range
from converters.grammar.expr import Alt, Chars, Expr, Grammar, Lit, Ref, Rep, Seq, Token
from converters.grammar.order import Order
from converters.grammar.passes import printable
from converters.grammar.passes.spell import drop_unspellable
from converters.limits import Budget

_MAX_KEPT = 64
"""Characters of a literal, or ranges of a class, whose text is kept for the next grammar."""
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
_LITERAL_ESCAPES = _SHORT_ESCAPES | {'"': '\\"'}
_CLASS_ESCAPES = _SHORT_ESCAPES | {"]": "\\]", "[": "\\[", "-": "\\-", "^": "\\x5E"}
_TOKEN_TEXT = re.compile(r"<[^>\0]+>\Z")
_SIGNS = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def print_grammar(grammar: Grammar) -> str:
    """The text of `grammar`, entry rule `root` first, as llama.cpp reads it rightly: any names, any counts, any characters.

    Classes are always printed as the ranges they have, never negated: so neither surrogates nor numbers past U+10FFFF,
    which broken UTF-8 would decode to, get through. Left recursion and dead ends are the passes' business (`prepare`).
    """
    return print_prepared(printable(drop_unspellable(grammar, Budget())))


def print_prepared(grammar: Grammar, budget: Budget | None = None) -> str:
    """The text of a grammar that `passes.printable` made. Raises LimitExceeded past the budget's deadline."""
    budget = budget or Budget()
    printer = _Printer(grammar.rules)
    lines = [printer.rule("root")]
    for name in grammar.rules:
        budget.check_deadline()
        if name != "root":
            lines.append(printer.rule(name))
    return "\n".join(lines) + "\n"


# What may stand at a place without brackets: alternatives, a sequence, a repetition, or only a symbol.
_ALT, _SEQ, _REP, _SYMBOL = 0, 1, 2, 3


class _Printer:
    """Expressions of one grammar as text."""

    def __init__(self, rules: Mapping[str, Expr]) -> None:
        self._rules = rules
        self._order = Order(rules)
        self._name = ""

    def rule(self, name: str) -> str:
        """The line of a rule."""
        self._name = name
        return f"{name} ::= {self.text(self._rules[name], 0)}"

    def text(self, expr: Expr, level: int) -> str:
        """`expr` for a place of this level. Not a `match`, which takes a third longer: this runs for every node."""
        if type(expr) is Lit:
            return print_literal(expr.text)
        if type(expr) is Ref:
            return expr.name
        if type(expr) is Seq:
            if not expr.items:
                return '""'
            parts = [item.name if type(item) is Ref else self.text(item, _REP) for item in expr.items]
            return f"({' '.join(parts)})" if level > _SEQ else " ".join(parts)
        if type(expr) is Chars:
            return print_class(expr.chars)
        if type(expr) is Alt:
            if not expr.options:
                return "[\\x00]"  # a class that no text matches
            options = [self.text(option, _SEQ) for option in self._order.of(expr.options, self._name)]
            return f"({' | '.join(options)})" if level > _ALT else " | ".join(options)
        if type(expr) is Rep:
            return _bracket(self.text(expr.item, _SYMBOL) + _print_count(expr.min, expr.max), level > _REP)
        if type(expr) is Token:
            return print_token(expr)
        assert_never(expr)


def _bracket(text: str, needed: bool) -> str:
    return f"({text})" if needed else text


def _print_count(low: int, high: int | None) -> str:
    if (low, high) in _SIGNS:
        return _SIGNS[low, high]
    if low == high:
        return f"{{{low}}}"
    return f"{{{low},{'' if high is None else high}}}"


def print_literal(text: str) -> str:
    """`text` in double quotes."""
    return _literal_kept(text) if len(text) <= _MAX_KEPT else _literal(text)


def _literal(text: str) -> str:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join([_LITERAL_ESCAPES.get(c) or (c if c.isprintable() else _print_hex(ord(c))) for c in text]) + '"'


def print_class(charset: CharSet) -> str:
    """`charset` in square brackets; a single character as a literal, which llama.cpp reads as the same."""
    return _class_kept(charset.ranges) if len(charset.ranges) <= _MAX_KEPT else _class(charset.ranges)


def _class(ranges: tuple[Range, ...]) -> str:
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return print_literal(chr(ranges[0][0]))
    return "[" + "".join([_print_range(low, high) for low, high in ranges]) + "]"


_literal_kept, _class_kept = lru_cache(2048)(_literal), lru_cache(2048)(_class)


def _print_range(low: int, high: int) -> str:
    if low == high:
        return _print_class_char(low)
    return _print_class_char(low) + ("" if high == low + 1 else "-") + _print_class_char(high)


def _print_class_char(point: int) -> str:
    char = chr(point)
    if 0x20 <= point < 0x7F:
        return _CLASS_ESCAPES.get(char, char)
    return _CLASS_ESCAPES.get(char) or _print_hex(point)


def _print_hex(point: int) -> str:
    if point < 0x100:
        return f"\\x{point:02X}"
    return f"\\u{point:04X}" if point < 0x10000 else f"\\U{point:08X}"


def print_token(token: Token) -> str:
    """A token of the vocabulary, by text or by id. Raises UnsupportedFeature for a text that GBNF can't name."""
    name = token.token if isinstance(token.token, str) else f"<[{token.token}]>"
    if isinstance(token.token, str) and not _TOKEN_TEXT.match(token.token):
        raise UnsupportedFeature(f"a grammar names tokens as <text> or <[id]>, not as {token.token!r}")
    return f"!{name}" if token.negated else name
