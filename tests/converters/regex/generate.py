"""Patterns at random, rich in what interacts: anchors, boundaries, look-around, counts, classes, flags."""

from __future__ import annotations

from hypothesis import strategies as st

_ATOMS = [
    "a", "b", "A", "0", "_", "-", " ", "é", "\\n", "\\.", ".", "[ab]", "[^a]", "[a-c0-9]", "[^\\W_]", "\\d", "\\w", "\\s",
    "\\D", "\\W", "\\S", "ab", "aab", "(?:)", "x{2}", "\\x62", "\\u00e9",
]  # fmt: skip
_PLACES = ["^", "$", "\\b", "\\B", "\\A", "\\Z"]
_QUANTIFIERS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{1,3}?", "{,2}"]
_LOOKS = ["(?=", "(?!", "(?<=", "(?<!"]


def _fixed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Python's look-behinds have a fixed width."""
    return st.lists(st.sampled_from([a for a in _ATOMS if "{" not in a and a != "(?:)"]), min_size=1, max_size=2).map("".join)


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(_QUANTIFIERS)).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        inner.map(lambda part: f"({part})"),
        inner.map(lambda part: f"(?i:{part})"),
        st.tuples(st.sampled_from(_LOOKS[:2]), inner).map(lambda pair: f"{pair[0]}{pair[1]})"),
        st.tuples(st.sampled_from(_LOOKS[2:]), _fixed(inner)).map(lambda pair: f"{pair[0]}{pair[1]})"),
    )


_bodies = st.recursive(st.sampled_from(_ATOMS * 3 + _PLACES), _grow, max_leaves=7)
patterns = st.tuples(st.sampled_from(["", "", "", "^", "(?m)", "(?s)", "(?i)"]), _bodies, st.sampled_from(["", "", "$"])).map(
    "".join
)
"""Patterns that Python's `re` reads, too."""
