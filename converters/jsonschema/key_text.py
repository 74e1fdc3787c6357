"""The spellings of keys as grammar: those of a language, and every key but some.

"Every key but some" is walked beside the declared keys wherever an object is open, and llama.cpp works out what follows each
live alternative at every character. So the alternatives that all characters of a node share are written once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from converters.automata import ANY_TEXT, DUMPS, Dfa, difference, of_strings, to_expr
from converters.grammar.charset import CharSet, Range
from converters.grammar.expr import Alt, Chars, Expr, Ref, RuleBook, Seq, alt, lit, seq
from converters.jsonschema.string import BACKSLASH, Characters
from converters.jsonschema.value import key_texts
from converters.limits import Budget

_MAX_NESTING = 6
_SUFFIX_BLOCK = 4
_MAX_KEPT = 8
"""Known characters of a rule that is kept for the next compile."""
_MIN_ALIKE = 3
"""So many known characters share what may follow any of them."""
_QUOTE = '"'
_END = lit(_QUOTE)


@dataclass(frozen=True, slots=True)
class OtherKeys:
    """Every key but some, after the opening quote: `by_first` what follows a first character of theirs, `rest` all else.

    A key that begins with a character of `by_first` may be among `rest` too, but then no key is spelled by both.
    """

    by_first: Mapping[str, Expr]
    rest: tuple[Expr, ...]

    @property
    def whole(self) -> Expr:
        """All of them."""
        return alt(*self.rest, *(seq(lit(char), then) for char, then in self.by_first.items()))


@dataclass(slots=True)
class KeyTexts:
    """The spellings of keys, with their quotes; shared rules are made on first use."""

    book: RuleBook
    budget: Budget
    _characters: Characters = field(init=False)
    _leavings: dict[tuple[str, bool], Ref] = field(default_factory=dict)
    _nots: dict[str, Expr] = field(default_factory=dict)
    _others: dict[frozenset[str], OtherKeys | None] = field(default_factory=dict)
    _wholes: dict[frozenset[str], Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._characters = Characters(self.book, DUMPS, "key-char")

    def of_language(self, dfa: Dfa) -> Expr:
        """The keys of a language."""
        return seq(_END, to_expr(dfa, self.book, "key", DUMPS, self.budget), _END)

    def except_for(self, keys: Iterable[str]) -> Expr:
        """Every key but `keys`."""
        known = frozenset(keys)
        if known not in self._wholes:
            self._wholes[known] = self._except_for(known)
        return self._wholes[known]

    def others(self, keys: Iterable[str]) -> OtherKeys | None:
        """The same by first characters; None where a key has several spellings or is long."""
        known = frozenset(keys)
        if known not in self._others:
            plain = known and all(key_texts(key) == (f'"{key}"',) and len(key) < 200 for key in known)
            self._others[known] = self._split([f'{key}"' for key in sorted(known)]) if plain else None
        return self._others[known]

    def _except_for(self, keys: frozenset[str]) -> Expr:
        if not keys:
            return self.book.add("other-key", seq(_END, self._characters.to_the_end()))
        others = self.others(keys)
        if others is None:
            return self.of_language(difference(ANY_TEXT, of_strings(keys, self.budget), self.budget))
        return self.book.add("other-key", seq(_END, others.whole))

    def _split(self, suffixes: Sequence[str]) -> OtherKeys:
        by_first, rest = self._node(suffixes, 0, None)
        named = {char: then if isinstance(then, Ref) else self.book.add("other-key", then) for char, then in by_first.items()}
        return OtherKeys(named, tuple(rest))

    def _node(self, suffixes: Sequence[str], depth: int, told: str | None) -> tuple[dict[str, Expr], list[Expr]]:
        """The rests of keys that aren't among `suffixes` (sorted, each with its closing quote): by known first characters, and
        the others. `told`: the caller has written the end, escapes and all characters but these."""
        self.budget.tick()
        groups: dict[str, list[str]] = {}
        for suffix in suffixes:
            groups.setdefault(suffix[0], []).append(suffix[1:])
        rest = self._leaving(groups, told)
        groups.pop(_QUOTE, None)
        alike = [char for char, rests in groups.items() if _QUOTE not in rests]
        following = None
        if len(alike) >= _MIN_ALIKE:
            following = "".join(sorted({rest[0] for char in alike for rest in groups[char]}))
            rest.append(Seq((Chars(CharSet.of("".join(alike))), self._others_than(following, may_end=True))))
        deeper = depth + 1 < _MAX_NESTING
        found: dict[str, Expr] = {}
        for char, rests in groups.items():
            inner = self._not_in(rests, depth + 1 if deeper else 0, following if char in alike else None)
            found[char] = inner if deeper else self.book.add("other-key", inner)
        return found, rest

    def _leaving(self, groups: Mapping[str, object], told: str | None) -> list[Expr]:
        """The ways to leave the known keys at once."""
        known = "".join(char for char in groups if char != _QUOTE)
        if told is None:
            return [self._others_than(known, may_end=_QUOTE not in groups)]
        left = [char for char in told if char not in known]
        return [Seq((Chars(CharSet.of("".join(left))), self._characters.to_the_end()))] if left else []

    def _not_in(self, suffixes: Sequence[str], depth: int, told: str | None) -> Expr:
        """The rests of keys that aren't among `suffixes`."""
        if told is None and len(suffixes) == 1:
            return self._not(suffixes[0])
        found, rest = self._node(suffixes, depth, told)
        options = (*rest, *(seq(lit(char), then) for char, then in found.items()))
        return Alt(options) if len(options) > 1 else options[0]

    def _not(self, suffix: str) -> Expr:
        """The rests of keys other than `suffix`. Long ones are rules, cut from the end: keys that end alike share them."""
        found = self._nots.get(suffix)
        if found is None:
            if suffix == _QUOTE:
                return self._others_than("")
            others = self._others_than(suffix[0], may_end=True)
            found = Alt((others, seq(lit(suffix[0]), self._not(suffix[1:]))))
            if len(suffix) % _SUFFIX_BLOCK == 0:
                found = self.book.add("other-end", found)
            self._nots[suffix] = found
        return found

    def _others_than(self, known: str, *, may_end: bool = False) -> Ref:
        """The rests of keys that go on with another character than those of `known`, or end here."""
        found = self._leavings.get((known, may_end))
        if found is None:
            names = self._characters.escaped().name, self._characters.to_the_end().name
            make = _leaving_kept if len(known) <= _MAX_KEPT else _leaving
            found = self._leavings[known, may_end] = self.book.add("key-other", make(known, may_end, *names))
        return found


def _leaving(known: str, may_end: bool, escaped: str, end: str) -> Expr:
    """`escaped`, `end`: the names of two rules of `Characters`."""
    raw, escape = Seq((Chars(_raw_without(known)), Ref(end))), Seq((BACKSLASH, Ref(escaped), Ref(end)))
    return Alt((_END, raw, escape) if may_end else (raw, escape))


_leaving_kept = lru_cache(2048)(_leaving)  # the same object in every compile: what passes found out about it is kept with it


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
