"""Sets of code points: the laws of a Boolean algebra, and what is left out of the universe."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from converters.grammar.charset import ANY, MAX_CODE_POINT, NOTHING, CharSet

POINTS = st.one_of(st.integers(0, 300), st.sampled_from([0xD7FF, 0xE000, 0xFFFF, 0x10000, MAX_CODE_POINT]))
SETS = st.lists(st.tuples(POINTS, POINTS).map(lambda pair: (min(pair), max(pair))), max_size=6).map(CharSet.from_ranges)
QUICK = settings(max_examples=100, deadline=None)


@QUICK
@given(SETS, SETS, POINTS)
def test_the_laws_hold(a: CharSet, b: CharSet, point: int) -> None:
    assert ~(a | b) == ~a & ~b
    assert ~(a & b) == ~a | ~b
    assert ~~a == a
    assert a - b == a & ~b
    assert a | NOTHING == a & ANY == a
    assert a.isdisjoint(b) == (not a & b)
    assert (point in a | b) == (point in a or point in b)
    assert (point in a & b) == (point in a and point in b)
    assert (point in ~a) == (point not in a)


@QUICK
@given(SETS)
def test_ranges_are_in_normal_form(a: CharSet) -> None:
    assert all(low <= high for low, high in a.ranges)
    assert all(high + 1 < low for (_, high), (low, _) in zip(a.ranges, a.ranges[1:], strict=False))
    assert len(a) == sum(high - low + 1 for low, high in a.ranges)
    assert bool(a) == (len(a) > 0)


def test_surrogates_are_no_characters() -> None:
    assert CharSet.span(0xD7FE, 0xE001).ranges == ((0xD7FE, 0xD7FF), (0xE000, 0xE001))
    assert not CharSet.span(0xD800, 0xDFFF)
    assert len(ANY) == 0x110000 - 0x800
    assert ~ANY == NOTHING


def test_building_and_reading() -> None:
    vowels = CharSet.of("uoiea")
    assert "".join(map(chr, vowels)) == "aeiou"
    assert "a" in vowels
    assert "b" not in vowels
    assert vowels.first == ord("a")
    assert CharSet.from_ranges([(5, 9), (1, 4), (20, 10)]) == CharSet.span(1, 9)
