"""The members of an object as grammar: declared keys in their order, then the others, commas between them.

Keys never repeat: what may follow a member are only later keys, and the keys of the tail exclude every declared one. Where
many keys may follow, they are listed by their first characters, one rule for each and for how many of its keys are past: so
there is one stack for a character, shared with the undeclared keys. A character with many keys has a segment tree over their
order, whose nodes are rules with tries; what is left is covered by at most log2 n of them, so that the text stays small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from converters.errors import UnsupportedFeature
from converters.grammar.expr import NEVER, Alt, Expr, Ref, RuleBook, alt, lit, opt, seq
from converters.jsonschema.layout import Layout
from converters.jsonschema.tail import Entry, Others, Tail
from converters.jsonschema.value import key_texts
from converters.limits import Budget

_DIRECT = 4  # so many keys are listed where they may stand, without a tree
_FEW = 16  # of so many keys, one that is alone with its first character is written out where it may stand
_MAX_COUNTED = 20_000
_QUOTE = lit('"')


def trie(texts: Sequence[tuple[str, Expr]]) -> Expr:
    """Texts, none a prefix of another, each with what follows it; common beginnings are written once."""
    groups: dict[str, list[tuple[str, Expr]]] = {}
    for text, then in texts:
        groups.setdefault(text[:1], []).append((text, then))
    options: list[Expr] = []
    for group in groups.values():
        if len(group) == 1:
            options.append(seq(lit(group[0][0]), group[0][1]))
            continue
        n = _n_common([text for text, _ in group])
        options.append(seq(lit(group[0][0][:n]), trie([(text[n:], then) for text, then in group])))
    return Alt(tuple(options)) if len(options) > 1 else options[0]


def _n_common(texts: Sequence[str]) -> int:
    low, high = min(texts), max(texts)
    n = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    if n == 0 or n == len(low):
        raise AssertionError("equal keys, or one that begins another")
    return n


@dataclass(slots=True)
class MemberWalk:
    """The content of an object's braces: declared `entries` in order, then `tail`."""

    entries: Sequence[Entry]
    tail: Tail
    layout: Layout
    book: RuleBook
    budget: Budget
    hint: str
    min: int = 0
    max: int | None = None
    path: str = ""
    _afters: dict[tuple[int, int], Ref] = field(default_factory=dict)
    _todo: list[tuple[int, int]] = field(default_factory=list)
    _groups: dict[int, dict[str, list[tuple[int, str]]]] = field(default_factory=dict)
    _firsts: dict[tuple[int, str, int], Ref] = field(default_factory=dict)
    _nodes: dict[tuple[int, str, int, int], Ref] = field(default_factory=dict)
    _required: list[int] = field(default_factory=list)

    def content(self) -> Expr:
        """What stands between the braces, without whitespace inside them: members or nothing."""
        n = len(self.entries)
        self._required = [n] * (n + 1)
        for i in range(n - 1, -1, -1):
            self._required[i] = i if self.entries[i].required else self._required[i + 1]
        if self._counts and n * n * min(n, max(self.min, self.max or 0, 1)) > _MAX_COUNTED:  # no count is above n here
            raise UnsupportedFeature(f"{self.path.rpartition('/')[2]} beside {n} declared properties", path=self.path)
        content = self._some_or_none(0, 0, self._choice(0, 0))
        while self._todo:
            self.budget.tick()
            k, count = self._todo.pop()
            rest = self._rest(k + 1, count)
            self.book.define(self._afters[k, count], seq(self.layout.colon, self.entries[k].value, rest))
        return content

    @property
    def _counts(self) -> bool:
        return self.min > 1 or self.max is not None

    def _cap(self, count: int) -> int:
        """Counts beyond what matters are one."""
        if not self._counts:
            return min(count, 1)
        return count if self.max is not None else min(count, self.min)

    def _some_or_none(self, i: int, count: int, some: Expr) -> Expr:
        """`some` members from position i on, or the end where it is allowed."""
        may_end = self._required[i] == len(self.entries) and count >= self.min and self.tail.may_be_absent
        return opt(some) if may_end else some

    def _choice(self, i: int, count: int) -> Expr:
        """One or more members from position i on, without a comma before."""
        n, r = len(self.entries), self._required[i]
        if self.max is not None and count >= self.max:
            return NEVER
        listed = list(range(i, min(r + 1, n)))
        if not self._counts:
            others = self.tail.by_first() if r == n else None
            if len(listed) > _DIRECT:
                found = self._by_first(i, others or Others({}, NEVER))
                return found if others is not None or r < n else alt(found, self.tail.members(count))
        found = self._keys(listed, count)
        return alt(found, self.tail.members(count)) if r == n else found

    def _keys(self, positions: Sequence[int], count: int) -> Expr:
        texts = [(text, self._after(k, count)) for k in positions for text in key_texts(self.entries[k].key)]
        return trie(texts) if texts else NEVER

    def _by_first(self, i: int, others: Others) -> Expr:
        """The declared keys from position i to the next required one, and `others`, by the character after the quote."""
        start = max((k + 1 for k in range(i) if self.entries[k].required), default=0)
        groups = self._group(start)
        options: list[Expr] = []
        for char in dict.fromkeys((*groups, *others.by_first)):
            group = groups.get(char, ())
            n_past = sum(k < i for k, _ in group)
            other = others.by_first.get(char, NEVER)
            if n_past < len(group):
                other = self._rule_of_first(start, char, n_past, other)
            options.append(seq(lit(char), other))
        return seq(_QUOTE, alt(*options, others.rest))

    def _group(self, start: int) -> dict[str, list[tuple[int, str]]]:
        """The keys from `start` up to the next required one with their texts, by the character after the quote."""
        if start not in self._groups:
            groups: dict[str, list[tuple[int, str]]] = {}
            for k in range(start, min(self._required[start] + 1, len(self.entries))):
                for text in key_texts(self.entries[k].key):
                    groups.setdefault(text[1], []).append((k, text[2:]))
            self._groups[start] = groups
        return self._groups[start]

    def _rule_of_first(self, start: int, char: str, n_past: int, other: Expr) -> Expr:
        """What follows `char` where the first `n_past` of its keys are past."""
        key, group = (start, char, n_past), self._groups[start][char]
        if other == NEVER and n_past == len(group) - 1 and len(self.entries) <= _FEW:
            return self._trie(group[n_past:])
        if key not in self._firsts:
            found = self._cover(start, char, 0, len(group), n_past) if len(group) > _DIRECT else [self._trie(group[n_past:])]
            self._firsts[key] = self.book.add(f"{self.hint}-keys", alt(*found, other))
        return self._firsts[key]

    def _cover(self, start: int, char: str, low: int, high: int, i: int) -> list[Expr]:
        """The nodes of the tree over [low, high) that make up [i, high)."""
        if i >= high:
            return []
        if i <= low:
            key = (start, char, low, high)
            if key not in self._nodes:
                self._nodes[key] = self.book.add(f"{self.hint}-keys", self._trie(self._groups[start][char][low:high]))
            return [self._nodes[key]]
        middle = (low + high) // 2
        return [*self._cover(start, char, low, middle, i), *self._cover(start, char, middle, high, i)]

    def _trie(self, group: Sequence[tuple[int, str]]) -> Expr:
        return trie([(text, self._after(k, 1)) for k, text in group])

    def _after(self, k: int, count: int) -> Expr:
        """What follows the key text of entry k, which comes after `count` members."""
        key = (k, self._cap(count + 1))
        if key not in self._afters:
            self._afters[key] = self.book.reserve(f"{self.hint}-{self.entries[k].key[:24]}")
            self._todo.append(key)
        return self._afters[key]

    def _rest(self, i: int, count: int) -> Expr:
        """What may follow a member before position i."""
        return self._some_or_none(i, count, seq(self.layout.comma, self._choice(i, count)))
