"""Large counts that stay counts: `[a-z]{1,65536}` is one repetition, not 65,536 states.

A tree is cut into pieces. Small ones become automata, repetitions with large counts stay repetitions, where that is
deterministic: whenever a piece may be over, what may continue it begins otherwise than what may follow it. Then a walk
through the grammar is in one place at a time, as in an automaton, and no count multiplies with another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from converters.automata import EMPTY_TEXT, Dfa, Spelling, difference, spelled_char, to_expr
from converters.grammar.charset import NOTHING, CharSet
from converters.grammar.expr import EMPTY, NEVER, Chars, Expr, Lit, Ref, RuleBook, alt, rep, seq
from converters.limits import Budget
from converters.regex.automaton import tree_dfa
from converters.regex.tree import Cat, Class, Node, Or, Repeat, cat, either

MIN_COUNTED = 200
"""Repetitions that unroll to fewer characters are always automata."""


class Ambiguous(Exception):
    """The pieces of this tree can't be told apart by the next character."""


def unrolled_size(node: Node) -> int:
    """How many characters the tree has once its counts are written out."""
    match node:
        case Class():
            return 1
        case Cat(parts) | Or(parts):
            return sum(map(unrolled_size, parts))
        case Repeat(item, low, high):
            return unrolled_size(item) * max(low if high is None else high, 1)
        case _:
            return 0


def has_large_count(node: Node) -> bool:
    """Is there a repetition that unrolls to MIN_COUNTED characters or more?"""
    match node:
        case Cat(parts) | Or(parts):
            return any(map(has_large_count, parts))
        case Repeat(item, low, high):
            return (max(low, high or 0) > 1 and unrolled_size(node) >= MIN_COUNTED) or has_large_count(item)
        case _:
            return False


@dataclass(frozen=True, slots=True)
class _Piece:
    """An expression, whether it matches the empty text, what it can begin with, and what can continue a match of it."""

    expr: Expr
    nullable: bool
    first: CharSet
    follow: CharSet


@dataclass(slots=True)
class Structure:
    """Lowers a tree without assertions piece by piece."""

    book: RuleBook
    budget: Budget
    what: str
    hint: str
    spelling: Spelling | None

    def lower(self, node: Node) -> Expr:
        """The expression of `node`. Raises Ambiguous where it would not be deterministic, LimitExceeded for a large piece."""
        return self.piece(node).expr

    def piece(self, node: Node) -> _Piece:
        """`node` with what its neighbours need to know."""
        if not has_large_count(node):
            return self.automaton(tree_dfa(node, self.budget, self.what))
        match node:
            case Cat(items):
                return self.sequence(_grouped(items, cat))
            case Or(options):
                return self.alternatives(_grouped(options, either))
            case Repeat(item, low, high):
                return self.counted(item, low, high)
            case _:
                return self.automaton(tree_dfa(node, self.budget, self.what))

    def automaton(self, dfa: Dfa) -> _Piece:
        """A small piece."""
        expr = to_expr(dfa, self.book, self.hint, self.spelling, self.budget)
        return _Piece(expr, 0 in dfa.accepting, dfa.first_chars(), dfa.following_chars())

    def sequence(self, nodes: list[Node]) -> _Piece:
        """One piece after the other; neighbours that can't be told apart become one automaton."""
        done: list[tuple[Node, _Piece]] = []
        for node in nodes:
            piece = self.piece(node)
            while not _joined([p for _, p in done]).follow.isdisjoint(piece.first):
                before, _ = done.pop()
                node = cat([before, node])
                piece = self.automaton(tree_dfa(node, self.budget, self.what))
            done.append((node, piece))
        return _joined([piece for _, piece in done])

    def alternatives(self, nodes: list[Node]) -> _Piece:
        """One piece of several."""
        whole = _Piece(NEVER, False, NOTHING, NOTHING)
        for node in nodes:
            piece = self.piece(node)
            _demand_disjoint(whole.first, piece.first)
            if whole.nullable and piece.nullable:
                raise Ambiguous
            whole = _Piece(
                alt(whole.expr, piece.expr),
                whole.nullable or piece.nullable,
                whole.first | piece.first,
                whole.follow | piece.follow | (whole.first if piece.nullable else piece.first if whole.nullable else NOTHING),
            )
        return whole

    def counted(self, item: Node, low: int, high: int | None) -> _Piece:
        """A piece again and again; the empty text among its words only lowers the minimum."""
        piece, low = self.item(item, low)
        _demand_disjoint(piece.follow, piece.first)
        expr = piece.expr if isinstance(piece.expr, (Chars, Lit, Ref)) else self.book.add(self.hint, piece.expr)
        again = piece.first if low != high or low == 0 else NOTHING
        return _Piece(rep(expr, low, high), low == 0, piece.first, piece.follow | again)

    def item(self, item: Node, low: int) -> tuple[_Piece, int]:
        """What is repeated, without the empty text, and how often at least."""
        if isinstance(item, Class):
            char = spelled_char(item.chars, self.book, self.hint, self.spelling)
            return _Piece(char, False, item.chars, NOTHING), low
        if has_large_count(item):
            piece = self.piece(item)
            if piece.nullable:
                raise Ambiguous
            return piece, low
        dfa = tree_dfa(item, self.budget, self.what)
        if 0 in dfa.accepting:
            return self.automaton(difference(dfa, EMPTY_TEXT, self.budget, self.what)), 0
        return self.automaton(dfa), low


def _joined(pieces: list[_Piece]) -> _Piece:
    """One piece after the other."""
    whole = _Piece(EMPTY, True, NOTHING, NOTHING)
    for piece in pieces:
        whole = _Piece(
            seq(whole.expr, piece.expr),
            whole.nullable and piece.nullable,
            whole.first | piece.first if whole.nullable else whole.first,
            whole.follow | piece.follow if piece.nullable else piece.follow,
        )
    return whole


def _grouped(nodes: tuple[Node, ...], join: Callable[[list[Node]], Node]) -> list[Node]:
    """`nodes` with small neighbours joined: an automaton tells them apart where pieces could not."""
    out: list[Node] = []
    for large, group in groupby(nodes, has_large_count):
        members = list(group)
        out.extend(members if large else [join(members)])
    return out


def _demand_disjoint(a: CharSet, b: CharSet) -> None:
    if not a.isdisjoint(b):
        raise Ambiguous
