"""Alternatives that begin alike share their beginning, so that fewer stacks are alive."""

from __future__ import annotations

from operator import is_

from converters.grammar.charset import NOTHING, CharSet
from converters.grammar.expr import EMPTY, Alt, Chars, Expr, Grammar, Lit, Ref, Rep, Seq, alt, chars, lit, opt, rep, seq
from converters.grammar.passes.look import look_of
from converters.grammar.passes.walk import below, each_rule, items_of
from converters.limits import Budget

MAX_SHARED = 50
"""How deep shared beginnings nest; below that alternatives stay as they are."""


def factor_prefixes(grammar: Grammar, budget: Budget) -> Grammar:
    """Join alternatives with a common beginning, and alternatives of one character.

    Before → after: `root ::= "abc" | "abd" | x "+" | x | "-" | "*"` → `root ::= "ab" [cd] | x ("+" | "") | [*-]`
    """
    return each_rule(grammar, _factor_rule, budget)


def _factor_rule(expr: Expr) -> Expr:
    """`factor`, and what came of it is kept."""
    look = look_of(expr)
    if not look.is_factored:
        found = factor(expr) if look.branches else expr
        look.is_factored, look.factored = True, found if found is not expr else None
    return look.factored or expr


def factor(expr: Expr) -> Expr:
    """One expression with its common beginnings joined; the same object when there are none."""
    parts = below(expr)
    if not parts:
        return expr
    new = [part if type(part) is Lit or type(part) is Ref or type(part) is Chars else factor(part) for part in parts]
    changed = not all(map(is_, new, parts))
    if type(expr) is Alt:
        return _join(new, expr if not changed else None, MAX_SHARED)
    if not changed:
        return expr
    return seq(*new) if type(expr) is Seq else rep(new[0], expr.min, expr.max) if type(expr) is Rep else expr


def _join(options: list[Expr], unchanged: Alt | None, depth: int) -> Expr:
    """The alternatives `options`, joined; `unchanged` when there is nothing to join."""
    groups: dict[object, list[Expr]] = {}
    singles = 0
    for option in options:
        singles += _is_char(option)
        groups.setdefault(_first(option), []).append(option)
    if depth == 0 or (len(groups) == len(options) and singles < 2):
        return unchanged or alt(*options)
    joined = [group[0] if len(group) == 1 else _share(group, depth) for group in groups.values()]
    return _merge_chars(joined)


def _is_char(expr: Expr) -> bool:
    return type(expr) is Chars or (type(expr) is Lit and len(expr.text) == 1)


def _first(expr: Expr) -> object:
    """What an alternative begins with: a character, or a whole expression."""
    head = expr.items[0] if type(expr) is Seq and expr.items else expr
    if type(head) is Lit:
        return head.text[0]
    if type(head) is Chars and head.chars.is_single:
        return chr(head.chars.first)
    return head


def _share(group: list[Expr], depth: int) -> Expr:
    """The alternatives of `group`, which have the same `_first`, with their common beginning taken out."""
    heads = [_head_text(option) for option in group]
    if heads[0]:
        shared = common_prefix(heads)
        rests = [_without_text(option, len(shared)) for option in group]
        return seq(lit(shared), _join_rests(rests, depth))
    items = [items_of(option) for option in group]
    return seq(items[0][0], _join_rests([seq(*rest[1:]) for rest in items], depth))


def _join_rests(rests: list[Expr], depth: int) -> Expr:
    flat: dict[Expr, None] = {}
    for rest in rests:
        flat.update(dict.fromkeys(rest.options if type(rest) is Alt else (rest,)))
    if EMPTY in flat:
        del flat[EMPTY]
        return opt(_join(list(flat), None, depth - 1))
    return _join(list(flat), None, depth - 1)


def _head_text(expr: Expr) -> str:
    head = expr.items[0] if type(expr) is Seq and expr.items else expr
    if type(head) is Chars:
        return chr(head.chars.first) if head.chars.is_single else ""
    return head.text if type(head) is Lit else ""


def _without_text(expr: Expr, n: int) -> Expr:
    head, rest = (expr.items[0], expr.items[1:]) if type(expr) is Seq else (expr, ())
    return seq(lit(head.text[n:]) if type(head) is Lit else EMPTY, *rest)


def common_prefix(texts: list[str]) -> str:
    """What all of the texts begin with."""
    first, last = min(texts), max(texts)
    n = 0
    while n < min(len(first), len(last)) and first[n] == last[n]:
        n += 1
    return first[:n]


def _merge_chars(options: list[Expr]) -> Expr:
    ranges = [r for option in options if type(option) is Chars for r in option.chars.ranges]
    ranges += [(ord(option.text), ord(option.text)) for option in options if type(option) is Lit and len(option.text) == 1]
    found = CharSet.from_ranges(ranges)
    merged: list[Expr] = []
    for option in options:
        if not _is_char(option):
            merged.append(option)
        elif found:
            merged.append(chars(found) if len(found) > 1 else lit(chr(found.first)))
            found = NOTHING
    return alt(*merged)
