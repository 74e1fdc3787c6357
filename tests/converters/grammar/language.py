"""A second opinion on grammars: their short sentences, found by brute force; and grammars at random.

Knows nothing of passes, printer or matcher: sets of strings, grown until nothing is added.
"""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from converters.grammar.charset import CharSet
from converters.grammar.expr import EMPTY, Alt, Chars, Expr, Grammar, Lit, Ref, Rep, Seq, alt, chars, lit, opt, rep, seq

ALPHABET = "abc"
LENGTH = 4
TEXTS = ["".join(text) for n in range(LENGTH + 1) for text in product(ALPHABET, repeat=n)]

Language = frozenset[str]
_NOTHING: Language = frozenset()
_EMPTY: Language = frozenset([""])


def sentences(grammar: Grammar, length: int = LENGTH) -> Language:
    """Every sentence over ALPHABET of at most `length` characters."""
    known = dict.fromkeys(grammar.rules, _NOTHING)
    while True:
        grown = {name: _of(expr, known, length) for name, expr in grammar.rules.items()}
        if grown == known:
            return known[grammar.root]
        known = grown


def _of(expr: Expr, known: dict[str, Language], length: int) -> Language:
    if isinstance(expr, Lit):
        return frozenset([expr.text]) if len(expr.text) <= length else _NOTHING
    if isinstance(expr, Chars):
        return frozenset(char for char in ALPHABET if char in expr.chars)
    if isinstance(expr, Ref):
        return known[expr.name]
    if isinstance(expr, Seq):
        found = _EMPTY
        for item in expr.items:
            found = _join(found, _of(item, known, length), length)
        return found
    if isinstance(expr, Alt):
        return _NOTHING.union(*[_of(option, known, length) for option in expr.options])
    assert isinstance(expr, Rep)
    return _repeat(_of(expr.item, known, length), expr.min, expr.max, length)


def _join(first: Language, second: Language, length: int) -> Language:
    fitting = [[b for b in second if len(b) <= room] for room in range(length + 1)]
    return frozenset([a + b for a in first for b in fitting[length - len(a)]])


def _repeat(item: Language, low: int, high: int | None, length: int) -> Language:
    """Beyond low + length times nothing new comes: an item that isn't empty fills the length, an empty one adds nothing."""
    power, found = _EMPTY, _EMPTY if low == 0 else _NOTHING
    for n in range(1, min(low + length, low + length if high is None else high) + 1):
        power = _join(power, item, length)
        if n >= low:
            found |= power
    return found


def expressions(rules: list[str]) -> st.SearchStrategy[Expr]:
    """Small expressions over ALPHABET that refer to `rules`."""
    leaves = st.one_of(
        st.sampled_from([lit(text) for text in ("a", "b", "ab", "abc", "ba")]),
        st.sampled_from([chars(CharSet.of(text)) for text in ("a", "ab", "bc", "abc")]),
        st.sampled_from(rules).map(Ref),
        st.just(EMPTY),
    )
    counts = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (0, 3), (1, 2), (2, None), (0, 12), (3, 20)])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda items: seq(*items)),
            st.lists(inner, min_size=1, max_size=4).map(lambda options: alt(*options)),
            st.tuples(inner, counts).map(lambda drawn: rep(drawn[0], *drawn[1])),
            inner.map(opt),
        ),
        max_leaves=8,
    )


@st.composite
def grammars(draw: st.DrawFn) -> Grammar:
    """Grammars of one to four rules, any recursion among them."""
    rules = ["root", "x", "y", "z_1"][: draw(st.integers(1, 4))]
    return Grammar({name: draw(expressions(rules)) for name in rules})
