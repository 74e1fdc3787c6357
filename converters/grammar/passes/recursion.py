"""Alternatives that begin with the same recursive call: a text nested n deep would have as many readings as 2 to the n.

`factor_prefixes` sees the beginnings that stand in one rule. Here rules are opened for it where that pays: where what the
alternatives share holds a call that leads back to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from operator import is_

from converters.grammar.expr import EMPTY, Alt, Chars, Expr, Grammar, Lit, Ref, Rep, alt, lit, opt, rep, seq
from converters.grammar.passes.ending import drop_unreachable
from converters.grammar.passes.fixpoint import recursive_parts
from converters.grammar.passes.look import look_of
from converters.grammar.passes.prefix import common_prefix, factor
from converters.grammar.passes.walk import below, items_of
from converters.limits import Budget

MAX_RULES = 400
"""New ones in a grammar; what comes after that many stays as it is."""
MAX_DEPTH = 60
"""Shared beginnings, one after another."""
MAX_FORMS = 5000
"""Ways to write an alternative that are looked at in a grammar; beyond that nothing is opened."""
MAX_ITEMS = 40
"""Of what comes after a shared beginning: where calls pile up there is no end to what is different."""
MAX_OPENED = 20
"""Rules that begin with one another and are opened for one alternative."""

Items = tuple[Expr, ...]


def share_recursive_calls(grammar: Grammar, budget: Budget) -> Grammar:
    """Join alternatives that have a recursive call in the beginning they share.

    Before → after: `t ::= x | y | "1"; x ::= "[" t "a"; y ::= "[" t "b"` → `t ::= "[" t [ab] | "1"`
    """
    parts = recursive_parts(grammar.rules)
    sharing = _Sharing(grammar, budget)
    rules = {name: sharing.rewritten(expr, parts[name]) if name in parts else expr for name, expr in grammar.rules.items()}
    if rules == grammar.rules:
        return grammar
    return drop_unreachable(Grammar(rules | sharing.added, grammar.root), budget)


@dataclass(frozen=True, slots=True)
class _Joined:
    """`pays`: what its alternatives share holds a recursive call."""

    expr: Expr
    pays: bool


class _Sharing:
    """The alternatives of one grammar. `added` are the rules for what comes after the beginnings that are shared."""

    def __init__(self, grammar: Grammar, budget: Budget) -> None:
        self._rules = grammar.rules
        self._budget = budget
        self._known: dict[tuple[Items, ...], _Joined] = {}
        self._n_left = MAX_FORMS
        self._names = (name for name in map("shared-{}".format, count(1)) if name not in grammar.rules)
        self.added: dict[str, Expr] = {}

    def rewritten(self, expr: Expr, part: frozenset[str]) -> Expr:
        """`expr`, of a rule that is one of `part`, with its alternatives joined where that pays; the same object elsewhere."""
        if not look_of(expr).branches:
            return expr
        parts = below(expr)
        new = [self.rewritten(item, part) for item in parts]
        is_same = all(map(is_, new, parts))
        if type(expr) is Alt:
            if self._n_left < 0 or not _may_share(new, part):
                return expr if is_same else alt(*new)
            joined = self._join([items_of(option) for option in new], part, 0)
            return joined.expr if joined.pays else expr if is_same else alt(*new)
        if is_same:
            return expr
        return rep(new[0], expr.min, expr.max) if type(expr) is Rep else seq(*new)

    def _join(self, options: Iterable[Items], part: frozenset[str], depth: int) -> _Joined:
        """The options, those that begin alike joined, and whether what they share leads back to `part`."""
        self._budget.check_deadline()
        opened = [self._open(form, part) for option in options for form in self._spread(option, part)]
        n_with = Counter(head for forms in opened for head in {_head(form) for form in forms})
        groups: dict[object, list[Items]] = {}
        for forms in opened:
            form = next((form for form in forms if n_with[_head(form)] > 1), None)
            groups.setdefault(forms[0] if form is None else _head(form), []).append(forms[0] if form is None else form)
        joined, pays = [], False
        for group in groups.values():
            if len(group) == 1:
                joined.append(seq(*group[0]))
                continue
            shared, rests = _split(group)
            rest = self._rest(rests, part, depth + 1)
            pays = pays or rest.pays or any(not look_of(item).refs.isdisjoint(part) for item in shared)
            joined.append(seq(*shared, rest.expr))
        return _Joined(alt(*joined), pays)

    def _spread(self, option: Items, part: frozenset[str]) -> list[Items]:
        """The option as several, where it begins with alternatives, or with the repetition of what leads back to `part`."""
        self._n_left -= 1
        if not option or self._n_left < 0:
            return [option]
        first, rest = option[0], option[1:]
        if type(first) is Alt:
            return [form for way in first.options for form in self._spread((*items_of(way), *rest), part)]
        if type(first) is not Rep or look_of(first).refs.isdisjoint(part):
            return [option]
        more = () if first.max == 1 else (rep(first.item, max(0, first.min - 1), first.max and first.max - 1),)
        forms = self._spread((*items_of(first.item), *more, *rest), part)
        return forms if first.min else [*forms, *self._spread(rest, part)]

    def _open(self, option: Items, part: frozenset[str]) -> list[Items]:
        """The option as it is, and with the rule of `part` that it begins with written out, and so on."""
        forms = [option]
        while len(forms) < MAX_OPENED and option and type(option[0]) is Ref and option[0].name in part:
            body = self._rules[option[0].name]
            if type(body) is Alt:
                break
            option = (*items_of(body), *option[1:])
            forms.append(option)
        return forms

    def _rest(self, rests: list[Items], part: frozenset[str], depth: int) -> _Joined:
        """What comes after a shared beginning: a rule of its own where there may be something to join once more."""
        unique = tuple(dict.fromkeys(rests))
        if () in unique:
            rest = self._rest([rest for rest in unique if rest], part, depth) if len(unique) > 1 else _Joined(EMPTY, False)
            return _Joined(opt(rest.expr), rest.pays)
        plain = alt(*[seq(*rest) for rest in unique])
        if len(unique) == 1 or all(type(rest[0]) is Lit or type(rest[0]) is Chars for rest in unique):
            return _Joined(factor(plain), False)
        if unique not in self._known:
            if len(self.added) >= MAX_RULES or depth > MAX_DEPTH or self._n_left < 0 or max(map(len, unique)) > MAX_ITEMS:
                return _Joined(plain, False)
            name = next(self._names)
            self._known[unique] = _Joined(Ref(name), False)
            self.added[name] = EMPTY  # its place; nobody looks at it before it is known
            joined = self._join(unique, part, depth)
            self.added[name] = factor(joined.expr if joined.pays else plain)
            self._known[unique] = _Joined(Ref(name), joined.pays)
        return self._known[unique]


def _may_share(options: list[Expr], part: frozenset[str]) -> bool:
    """False where the alternatives can be seen to begin with different things."""
    firsts = [items_of(option)[:1] for option in options]
    if len(set(map(_head, firsts))) < len(firsts):
        return True
    return any(type(first) is Alt or not look_of(first).refs.isdisjoint(part) for items in firsts for first in items)


def _head(items: Items) -> object:
    """What an alternative begins with: a character, or a whole expression."""
    head = items[0] if items else EMPTY
    return head.text[0] if type(head) is Lit else head


def _split(group: list[Items]) -> tuple[list[Expr], list[Items]]:
    """The beginning that all of the group share, and what each has after it."""
    shared: list[Expr] = []
    while all(group) and len({items[0] for items in group}) == 1:
        shared.append(group[0][0])
        group = [items[1:] for items in group]
    texts = [items[0].text for items in group if items and type(items[0]) is Lit]
    if len(texts) == len(group) and (n := len(common_prefix(texts))):
        shared.append(lit(texts[0][:n]))
        group = [((lit(text[n:]), *items[1:]) if text[n:] else items[1:]) for text, items in zip(texts, group, strict=True)]
    return shared, group
