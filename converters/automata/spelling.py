"""How the characters of a JSON string are spelled in JSON text, as expressions that stay deterministic.

`JSON` allows every spelling that JSON has, `DUMPS` those of `json.dumps` (RFC 8259, section 7). A spelled character is
raw, or a backslash with a letter, or `\\uXXXX`, pairs of surrogates above the basic plane. The quotes around a string are
not made here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from converters.automata.kept import Kept
from converters.grammar.charset import ANY, CharSet, Range
from converters.grammar.expr import EMPTY, NEVER, Alt, Chars, Expr, Lit, Ref, Seq, alt, chars, children, rep, seq

_CONTROLS = CharSet.span(0, 0x1F)
_PLAIN = CharSet.span(0, 0x7E)  # `json.dumps` escapes DEL with the other characters than ASCII
_SHORT = {0x22: '"', 0x5C: "\\", 0x2F: "/", 0x08: "b", 0x0C: "f", 0x0A: "n", 0x0D: "r", 0x09: "t"}


@dataclass(frozen=True, slots=True, eq=False)
class Spelling:
    """Which spellings are allowed: `raw` characters, one-letter escapes by code point, characters that `\\u` may spell.

    There are only the ones below; they are told apart by identity.
    """

    name: str
    raw: CharSet
    short: Mapping[int, str]
    hexed: CharSet
    upper: bool

    @property
    def escaped(self) -> CharSet:
        """Characters that an escape may spell."""
        return self.hexed | CharSet.from_ranges((point, point) for point in self.short)


JSON = Spelling("json", ANY - _CONTROLS - CharSet.of('"\\'), _SHORT, ANY, upper=True)
_DUMPS_SHORT = {point: letter for point, letter in _SHORT.items() if letter != "/"}
DUMPS = Spelling(
    "dumps",
    JSON.raw,
    _DUMPS_SHORT,
    (_CONTROLS - CharSet.from_ranges((p, p) for p in _DUMPS_SHORT)) | ~_PLAIN,
    upper=False,
)
DUMPS_RAW = Spelling("dumps-raw", JSON.raw, _DUMPS_SHORT, _CONTROLS & DUMPS.hexed, upper=False)
"""`json.dumps(…, ensure_ascii=False)` and `JSON.stringify`: other characters than ASCII are raw."""
DUMPS_ASCII = Spelling("dumps-ascii", JSON.raw & _PLAIN, _DUMPS_SHORT, DUMPS.hexed, upper=False)
"""`json.dumps` as it comes: other characters than ASCII are escaped."""

_THEN, _PART = "?!"  # begin the names of blanks, and of no rule
_MIN_PART = 8  # nodes of an expression worth a name

Branch = tuple[CharSet, Expr]
_Content = tuple[tuple[int, tuple[Range, ...]], ...]  # (index of a branch, its code points relative to the block)


def spelled(branches: Sequence[Branch], spelling: Spelling, name: Callable[[Expr], Expr] | None = None) -> Expr:
    """One spelled character of a branch's set, then the branch's expression. The sets are disjoint.

    The branches share one path through the escapes, so that no two alternatives begin alike. `name` may make rules of the
    larger parts that come back in every state that tells the same sets apart.
    """
    sets = tuple([charset for charset, _ in branches])
    template, parts = _TEMPLATES.get((sets, spelling), lambda: _template(sets, spelling))
    named = [name(part) if name else part for part in parts]
    return _filled(template, [then for _, then in branches], named)


def _template(sets: tuple[CharSet, ...], spelling: Spelling) -> tuple[Expr, tuple[Expr, ...]]:
    """`spelled` with blanks where the branches' expressions go, and for the parts worth a name; and these parts."""
    blanks: list[Branch] = [(charset, Ref(f"{_THEN}{i}")) for i, charset in enumerate(sets)]
    raw = [seq(chars(charset & spelling.raw), then) for charset, then in blanks]
    digits = _Hex([then for _, then in blanks], spelling.upper)
    escape = _escape(blanks, spelling, digits)
    return alt(*raw, seq(Lit("\\"), escape) if escape != NEVER else NEVER), tuple(digits.parts)


def _size(made: tuple[Expr, tuple[Expr, ...]]) -> int:
    template, parts = made
    return _n_nodes(template) + sum(map(_n_nodes, parts))


_TEMPLATES = Kept(max_size=100_000, size_of=_size)
"""By their sets and spelling. A node has about 100 bytes, with what its set has among the sets of the source."""


def _filled(template: Expr, thens: Sequence[Expr], parts: Sequence[Expr]) -> Expr:
    """`template` with its blanks replaced."""
    if type(template) is Ref:
        return (thens if template.name[0] == _THEN else parts)[int(template.name[1:])]
    if type(template) is Seq and template.items:
        items = template.items
        return seq(*[_filled(item, thens, parts) if type(item) is Ref or type(item) is Alt else item for item in items])
    if type(template) is Alt:
        return Alt(tuple([_filled(option, thens, parts) for option in template.options]))
    return template


def _escape(branches: Sequence[Branch], spelling: Spelling, digits: _Hex) -> Expr:
    """What stands after the backslash."""
    letters: list[Expr] = []
    for charset, then in branches:
        found = [letter for point, letter in spelling.short.items() if point in charset]
        letters += [seq(_one_of(found), then)] if found else []
    hexed = digits.of([charset & spelling.hexed for charset, _ in branches])
    return alt(*letters, seq(Lit("u"), hexed) if hexed != NEVER else NEVER)


def _one_of(letters: Sequence[str]) -> Expr:
    return Lit(letters[0]) if len(letters) == 1 else Chars(CharSet.of("".join(letters)))


class _Hex:
    """The tree of hexadecimal digits after `\\u`, equal subtrees made once."""

    def __init__(self, thens: Sequence[Expr], upper: bool) -> None:
        self.thens = [*thens, EMPTY]
        self.alone = len(thens)  # the branch that stands for "any one of them, which comes later"
        self.parts: list[Expr] = []
        self.upper = upper
        self.memo: dict[tuple[int, _Content], Expr] = {}

    def of(self, sets: Sequence[CharSet]) -> Expr:
        """`XXXX`, or `XXXX\\uXXXX` for a pair of surrogates, then the branch's expression."""
        basic = _restrict([(i, s.ranges) for i, s in enumerate(sets)], 0, 0x10000)
        astral = _restrict([(i, s.ranges) for i, s in enumerate(sets)], 0x10000, 0x100000)
        if not astral:
            return self.digits(basic, (16, 16, 16, 16))
        others = self.digits(tuple(_without_d(basic)), (16, 16, 16, 16))
        in_d = self.digits(_restrict(basic, 0xD000, 0x1000), (16, 16, 16))
        pairs = self.digits(astral, (-4, 16, 16, -4, 16, 16))
        return alt(others, seq(self.digit([13]), alt(in_d, pairs)))

    def digits(self, content: _Content, radices: tuple[int, ...]) -> Expr:
        """Digits for the code points of `content`. Radix -4 is two bits of a surrogate: its second digit, 8 to b or c to f."""
        if not content:
            return NEVER
        if len(content) == 1 and content[0][0] != self.alone:
            whole = self.digits(((self.alone, content[0][1]),), radices)
            return seq(self.part(whole), self.thens[content[0][0]])
        if not radices:
            return self.thens[content[0][0]]
        size = 1
        for radix in radices:
            size *= abs(radix)
        key = (size, content)
        if key not in self.memo:
            if len(content) == 1 and content[0][1] == ((0, size - 1),):
                self.memo[key] = self._all(radices, self.thens[content[0][0]])
            else:
                self.memo[key] = self._split(content, radices, size // abs(radices[0]))
        return self.memo[key]

    def _split(self, content: _Content, radices: tuple[int, ...], size: int) -> Expr:
        """Group the values of the first digit by what may follow."""
        by_rest: dict[_Content, list[int]] = {}
        first = _first_digit(radices)
        touched = {value for _, ranges in content for lo, hi in ranges for value in range(lo // size, hi // size + 1)}
        for value in sorted(touched):
            rest = _restrict(content, value * size, size)
            by_rest.setdefault(rest, []).append(first + value)
        options: list[Expr] = []
        decided: dict[int, list[Expr]] = {}
        for rest, values in by_rest.items():
            if len(rest) == 1:
                tail = self.digits(((self.alone, rest[0][1]),), radices[1:])
                decided.setdefault(rest[0][0], []).append(seq(self.digit(values), tail))
            else:
                options.append(seq(self.digit(values), self.digits(rest, radices[1:])))
        for branch, found in decided.items():
            whole = alt(*found)
            options.append(seq(whole if branch == self.alone else self.part(whole), self.thens[branch]))
        return seq(self._pair_prefix(radices), alt(*options))

    def part(self, expr: Expr) -> Expr:
        """A blank for `expr` if it is worth a name."""
        if len(self.thens) == 2 or _n_nodes(expr) < _MIN_PART:
            return expr
        if expr not in self.parts:
            self.parts.append(expr)
        return Ref(f"{_PART}{self.parts.index(expr)}")

    def _all(self, radices: tuple[int, ...], then: Expr) -> Expr:
        """Every combination of digits."""
        if not radices:
            return then
        if all(radix == 16 for radix in radices):
            return seq(rep(self.digit(range(16)), len(radices), len(radices)), then)
        first = _first_digit(radices)
        values = range(first, first + abs(radices[0]))
        return seq(self._pair_prefix(radices), self.digit(values), self._all(radices[1:], then))

    def _pair_prefix(self, radices: tuple[int, ...]) -> Expr:
        """The second half of a pair begins with its own `\\ud`."""
        if radices[0] == -4 and len(radices) == 3:
            return seq(Lit("\\u"), self.digit([13]))
        return EMPTY

    def digit(self, values: Sequence[int]) -> Expr:
        """One hexadecimal digit of these values."""
        text = "".join(f"{value:x}" for value in values)
        return _one_of(sorted(set(text + text.upper() if self.upper else text)))


def _n_nodes(expr: Expr) -> int:
    return 1 + sum(map(_n_nodes, children(expr)))


def _first_digit(radices: tuple[int, ...]) -> int:
    if radices[0] == 16:
        return 0
    return 8 if len(radices) > 3 else 12


def _without_d(content: _Content) -> list[tuple[int, tuple[Range, ...]]]:
    low, high = CharSet.span(0, 0xCFFF), CharSet.span(0xE000, 0xFFFF)
    cut = [(i, (CharSet(ranges) & (low | high)).ranges) for i, ranges in content]
    return [(i, ranges) for i, ranges in cut if ranges]


def _restrict(content: Sequence[tuple[int, tuple[Range, ...]]], base: int, size: int) -> _Content:
    """The part of `content` in the block of `size` from `base`, relative to it."""
    out = []
    for i, ranges in content:
        cut = tuple((max(lo - base, 0), min(hi - base, size - 1)) for lo, hi in ranges if hi >= base and lo < base + size)
        if cut:
            out.append((i, cut))
    return tuple(out)
