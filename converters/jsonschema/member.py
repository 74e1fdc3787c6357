"""The members of an object as grammar: declared keys in their order, then the others, commas between them.

Keys never repeat: what may follow a member are only later keys, and the keys of the tail exclude every declared one. A
run of optional keys is a segment tree over the declared order: each node is a rule with the trie of its keys, and what may
follow a key is covered by at most log2 n nodes, so that text and stacks stay small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from converters.automata import DUMPS, Dfa, difference, of_strings, to_expr
from converters.automata.dfa import ANY_TEXT
from converters.errors import UnsupportedFeature
from converters.grammar.charset import CharSet, Range
from converters.grammar.expr import NEVER, Alt, Chars, Expr, Lit, Ref, RuleBook, Seq, alt, lit, opt, seq
from converters.jsonschema.layout import Layout
from converters.jsonschema.string import Characters
from converters.jsonschema.tail import Entry, Tail
from converters.jsonschema.value import key_texts
from converters.limits import Budget

_DIRECT = 4  # so many keys are listed where they may stand, without a tree
_MAX_NESTING = 6
_SUFFIX_BLOCK = 4
_END = lit('"')
_MAX_COUNTED = 20_000


@dataclass(slots=True)
class KeyTexts:
    """The spellings of keys, with their quotes; shared rules are made on first use."""

    book: RuleBook
    budget: Budget
    _characters: Characters = field(init=False)
    _others_than: dict[str, Ref] = field(default_factory=dict)
    _nots: dict[str, Expr] = field(default_factory=dict)
    _others: dict[frozenset[str], Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._characters = Characters(self.book, DUMPS, "key-char")

    def of_language(self, dfa: Dfa) -> Expr:
        """The keys of a language."""
        return seq(lit('"'), to_expr(dfa, self.book, "key", DUMPS, self.budget), lit('"'))

    def except_for(self, keys: Iterable[str]) -> Expr:
        """Every key but `keys`."""
        known = frozenset(keys)
        if known not in self._others:
            self._others[known] = self._except_for(known)
        return self._others[known]

    def _except_for(self, keys: frozenset[str]) -> Expr:
        if all(key_texts(key) == (f'"{key}"',) for key in keys) and max(map(len, keys), default=0) < 200:
            rest = self._not_in([f'{key}"' for key in sorted(keys)], 0) if keys else self._characters.to_the_end()
            return self.book.add("other-key", seq(_END, rest))
        return self.of_language(difference(ANY_TEXT, of_strings(keys, self.budget), self.budget))

    def _other_than(self, chars: str) -> Expr:
        """The rests of keys that go on with another character than `chars`."""
        if chars not in self._others_than:
            end = self._characters.to_the_end()
            raw, escaped = Seq((Chars(_raw_without(chars)), end)), seq(self._characters.escape(), end)
            self._others_than[chars] = self.book.add("key-other", Alt((raw, escaped)))
        return self._others_than[chars]

    def _not_in(self, suffixes: Sequence[str], depth: int) -> Expr:
        """The rests of keys that aren't among `suffixes` (sorted, each with its closing quote)."""
        if len(suffixes) == 1:
            return self._not(suffixes[0])
        self.budget.tick()
        groups: dict[str, list[str]] = {}
        for suffix in suffixes:
            groups.setdefault(suffix[0], []).append(suffix[1:])
        options: list[Expr] = [] if '"' in groups else [_END]
        groups.pop('"', None)
        options.append(self._other_than("".join(groups)))
        for char, rests in groups.items():
            deeper = depth + 1 < _MAX_NESTING
            inner = self._not_in(rests, depth + 1 if deeper else 0)
            options.append(Seq((Lit(char), inner if deeper else self.book.add("other-key", inner))))
        return Alt(tuple(options)) if len(options) > 1 else options[0]

    def _not(self, suffix: str) -> Expr:
        """The rests of keys other than `suffix`. Long ones are rules, cut from the end: keys that end alike share them."""
        found = self._nots.get(suffix)
        if found is None:
            if suffix == '"':
                return self._other_than("")
            found = Alt((_END, self._other_than(suffix[0]), Seq((Lit(suffix[0]), self._not(suffix[1:])))))
            if len(suffix) % _SUFFIX_BLOCK == 0:
                found = self.book.add("other-end", found)
            self._nots[suffix] = found
        return found


@lru_cache(4096)
def _raw_without(chars: str) -> CharSet:
    """The characters that stand for themselves in a key, without some ASCII ones."""
    points = sorted(map(ord, chars))
    ranges: list[Range] = []
    for low, high in DUMPS.raw.ranges:
        for point in points:
            if low <= point <= high:
                if low < point:
                    ranges.append((low, point - 1))
                low = point + 1
        if low <= high:
            ranges.append((low, high))
    return CharSet(tuple(ranges))


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
    _nodes: dict[tuple[int, int], Expr] = field(default_factory=dict)
    _required: list[int] = field(default_factory=list)

    def content(self) -> Expr:
        """What stands between the braces, without whitespace inside them: members or nothing."""
        n = len(self.entries)
        self._required = [n] * (n + 1)
        for i in range(n - 1, -1, -1):
            self._required[i] = i if self.entries[i].required else self._required[i + 1]
        if self._counts and n * n * max(self.min, self.max or 0, 1) > _MAX_COUNTED:
            raise UnsupportedFeature(f"counting {n} properties", path=self.path)
        content = self._some_or_none(0, 0, self._choice(0, 0))
        while self._todo:
            self.budget.tick()
            k, count = self._todo.pop()
            rest = self._rest(k + 1, count + 1)
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
        if self._counts or len(listed) <= _DIRECT:
            found = self._keys(listed, count)
        else:
            start = max((k + 1 for k in range(i) if self.entries[k].required), default=0)
            found = alt(*self._cover(start, r, i), self._keys([r] if r < n else [], count))
        return alt(found, self.tail.members(count)) if r == n else found

    def _keys(self, positions: Sequence[int], count: int) -> Expr:
        texts = [(text, self._after(k, count)) for k in positions for text in key_texts(self.entries[k].key)]
        return trie(texts) if texts else NEVER

    def _cover(self, low: int, high: int, i: int) -> list[Expr]:
        """The nodes of the tree over [low, high) that make up [i, high)."""
        if i >= high:
            return []
        if i <= low:
            return [self._node(low, high)]
        middle = (low + high) // 2
        return [*self._cover(low, middle, i), *self._cover(middle, high, i)]

    def _node(self, low: int, high: int) -> Expr:
        if (low, high) not in self._nodes:
            ref = self.book.reserve(f"{self.hint}-keys")
            self._nodes[low, high] = ref
            self.book.define(ref, self._keys(range(low, high), 1))
        return self._nodes[low, high]

    def _after(self, k: int, count: int) -> Expr:
        """What follows the key text of entry k."""
        key = (k, self._cap(count))
        if key not in self._afters:
            self._afters[key] = self.book.reserve(f"{self.hint}-{self.entries[k].key[:24]}")
            self._todo.append(key)
        return self._afters[key]

    def _rest(self, i: int, count: int) -> Expr:
        """What may follow a member before position i."""
        return self._some_or_none(i, count, seq(self.layout.comma, self._choice(i, count)))
