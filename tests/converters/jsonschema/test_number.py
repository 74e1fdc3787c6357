"""Number automata against arithmetic: every drawn number, as it is usually written, is a word exactly when the facts hold;
with zeros after it, only then, and not at all where a model could go on with them though nothing but zeros may follow."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import product
from math import lcm

from hypothesis import given, reject, settings
from hypothesis import strategies as st

from converters.errors import LimitExceeded
from converters.jsonschema.number import is_empty, number_dfa
from converters.jsonschema.shape import NumberFacts
from converters.limits import Budget
from tests.draws import draws

decimals = st.builds(lambda n, k: Fraction(n, 10**k), st.integers(-5000, 5000), st.integers(0, 3))
STEPS = [Fraction(n, d) for n, d in ((1, 1), (2, 1), (7, 1), (5, 2), (1, 100), (3, 10), (100, 1), (99, 1))]
steps = st.sampled_from(STEPS)
facts = st.builds(
    NumberFacts,
    low=st.none() | decimals,
    low_exclusive=st.booleans(),
    high=st.none() | decimals,
    high_exclusive=st.booleans(),
    multiples=st.frozensets(steps, max_size=1),
    non_multiples=st.frozensets(steps, max_size=1),
    integral=st.sampled_from([None, None, True, False]),
    excluded=st.frozensets(decimals, max_size=2),
)


def holds(f: NumberFacts, x: Fraction) -> bool:
    """The facts, as arithmetic."""
    above = f.low is None or (x > f.low if f.low_exclusive else x >= f.low)
    below = f.high is None or (x < f.high if f.high_exclusive else x <= f.high)
    multiple = all((x / m).denominator == 1 for m in f.multiples) and all((x / m).denominator != 1 for m in f.non_multiples)
    return above and below and multiple and f.integral in (None, x.denominator == 1) and x not in f.excluded


def spellings(x: Fraction) -> list[str]:
    """The texts of a decimal number that encoders write."""
    text = format(Decimal(x.numerator) / Decimal(x.denominator), "f")
    return [text] if "." in text else [text, text + ".0"]


def needs_many_remainders(f: NumberFacts) -> bool:
    """The one shape that may be refused: two remainders at once, with a product of thousands (multiples of 99, none of 100)."""
    return bool(f.multiples) and bool(f.non_multiples) and lcm(*(int(x * 100) for x in f.multiples | f.non_multiples)) >= 5000


@draws(20, 80)
def test_words_are_the_numbers(n_draws: int) -> None:
    @settings(max_examples=n_draws, deadline=None)
    @given(facts, st.data())
    def check(f: NumberFacts, data: st.DataObject) -> None:
        try:
            dfa = number_dfa(f, "value", Budget())
        except LimitExceeded:
            assert needs_many_remainders(f), f
            reject()
        if is_empty(f, "value"):
            assert dfa.is_empty()
        near = [x for x in (f.low, f.high, *f.excluded) if x is not None]
        for x in [*near, *(x + Fraction(1, 1000) for x in near), *data.draw(st.lists(decimals, min_size=3, max_size=6))]:
            for text in spellings(x):
                assert dfa.accepts(text) == holds(f, x), text
            padded = text + "00"
            assert dfa.accepts(padded) <= holds(f, x), padded
            assert not (f.integral and dfa.accepts(padded)), padded
            assert not dfa.accepts("0" + str(abs(x.numerator)))
            assert not dfa.accepts(str(x.numerator) + ".")

    check()


def test_all_but_two_large_remainders_is_compiled() -> None:
    for multiple, other in product((None, *STEPS), repeat=2):
        f = NumberFacts(low=Fraction(-7, 2), high=Fraction(4999, 1000), multiples=of(multiple), non_multiples=of(other))
        if not needs_many_remainders(f):
            number_dfa(f, "value", Budget())


def of(x: Fraction | None) -> frozenset[Fraction]:
    """`x` as a set of one, None as none."""
    return frozenset() if x is None else frozenset({x})
