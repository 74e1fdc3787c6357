"""Numbers as texts: ranges over decimals and integers of any size, multiples, and what is excluded, as automata.

An automaton reads a number without exponent, digit by digit. Every fact is a component with a small state (how the digits
so far compare with a bound, their remainder); the automaton is the product of its components. Numbers without facts are
two shared rules with exponents (spec section 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache, reduce
from math import ceil, floor, lcm
from typing import Protocol, TypeAlias

from converters.automata import NOTHING, Dfa, minimise, trim
from converters.automata.kept import kept_automata
from converters.errors import LimitExceeded, UnsupportedFeature
from converters.grammar.charset import CharSet
from converters.grammar.expr import EMPTY, Expr, Ref, RuleBook, alt, chars, lit, opt, rep, seq
from converters.jsonschema.schema import Integers
from converters.jsonschema.shape import NumberFacts
from converters.jsonschema.value import fraction_digits
from converters.limits import Budget

MAX_DIGITS = 40
MAX_EXPONENT_DIGITS = 3
_MAX_REMAINDERS = 20_000
_ALPHABET = tuple(CharSet.of(char) for char in "0123456789-.")
_MINUS, _POINT = 10, 11

_DIGIT = chars(CharSet.span(ord("0"), ord("9")))
_NONZERO = chars(CharSet.span(ord("1"), ord("9")))
_SIGN, _E = chars(CharSet.of("+-")), chars(CharSet.of("eE"))


def plain_expr(hint: str, integral: bool, integers: Integers, book: RuleBook) -> Expr:
    """Any number, or any integral one: from draft 6 on also 1.0 and 1e3. First characters as alternatives, tails as rules:
    that is what llama.cpp walks with the fewest steps."""
    has_tail = not integral or integers == "value"
    tail = book.add(f"{hint}-tail", _number_tail(integral)) if has_tail else EMPTY
    unsigned = _unsigned(tail)
    return _signed(book.add(f"{hint}-unsigned", unsigned), unsigned)


@cache
def _number_tail(integral: bool) -> Expr:
    digits, sign = (lit("0"), lit("+")) if integral else (_DIGIT, _SIGN)
    exponent = seq(_E, opt(sign), rep(_DIGIT, 1, MAX_EXPONENT_DIGITS))
    fraction = seq(lit("."), digits, rep(digits, 0, MAX_DIGITS - 1), alt(exponent, EMPTY))
    return alt(fraction, exponent, EMPTY)


@lru_cache(256)
def _unsigned(tail: Expr) -> Expr:
    several = seq(_NONZERO, _DIGIT, rep(_DIGIT, 0, MAX_DIGITS - 2), tail)
    return alt(seq(_DIGIT, tail), several)  # a first digit 1 to 9 is on two stacks, with a cheap next step each


@lru_cache(256)
def _signed(named: Ref, unsigned: Expr) -> Expr:
    return alt(seq(lit("-"), named), unsigned)


State: TypeAlias = "tuple[object, ...] | str | int"


class Component(Protocol):
    """A condition on the magnitude of a number, read digit by digit. None is a state from which nothing is accepted."""

    def start(self) -> State | None:
        """The state before the first digit."""

    def whole(self, state: State, digit: int) -> State | None:
        """After a digit of the integer part."""

    def point(self, state: State) -> State | None:
        """After the decimal point."""

    def fraction(self, state: State, digit: int) -> State | None:
        """After a digit of the fraction."""

    def accepts(self, state: State, in_fraction: bool) -> bool:
        """Does the number hold when it ends here?"""


@dataclass(frozen=True, slots=True)
class Compared:
    """The magnitude compared with `bound` (at least 0) has one of the outcomes of `wanted`: "<", "=", ">".

    States: (n, outcome) after n digits of the integer part, compared with as many of the bound's; an outcome alone when it
    is decided; (n,) after n equal digits of the fraction.
    """

    bound: Fraction
    wanted: str

    @property
    def _whole_digits(self) -> str:
        return str(floor(self.bound))

    @property
    def _fraction_digits(self) -> str:
        n = fraction_digits(self.bound)
        return f"{(self.bound - floor(self.bound)) * 10 ** n.__index__()}".zfill(n) if n else ""

    def start(self) -> State | None:
        return (0, "=")

    def _decided(self, outcome: str) -> State | None:
        return outcome if outcome in self.wanted else None

    def whole(self, state: State, digit: int) -> State | None:
        if isinstance(state, str):
            return state
        assert isinstance(state, tuple)
        n, outcome = state
        assert isinstance(n, int)
        digits = self._whole_digits
        if n == len(digits):
            return self._decided(">")
        if outcome == "=":
            outcome = _outcome(digit, int(digits[n]))
        return (n + 1, outcome)

    def _at_end_of_whole(self, state: State) -> State:
        if isinstance(state, str):
            return state
        assert isinstance(state, tuple)
        if len(state) == 1:
            return state
        n, outcome = state
        return "<" if n != len(self._whole_digits) else (0,) if outcome == "=" else str(outcome)

    def point(self, state: State) -> State | None:
        after = self._at_end_of_whole(state)
        return self._decided(after) if isinstance(after, str) else after

    def fraction(self, state: State, digit: int) -> State | None:
        if isinstance(state, str):
            return state
        assert isinstance(state, tuple)
        (n,) = state
        assert isinstance(n, int)
        digits = self._fraction_digits
        outcome = _outcome(digit, int(digits[n]) if n < len(digits) else 0)
        return (min(n + 1, len(digits)),) if outcome == "=" else self._decided(outcome)

    def accepts(self, state: State, in_fraction: bool) -> bool:  # noqa: ARG002
        after = self._at_end_of_whole(state)
        if not isinstance(after, str):
            assert isinstance(after, tuple)
            n = after[0]
            assert isinstance(n, int)
            after = "<" if self._fraction_digits[n:].strip("0") else "="
        return after in self.wanted


def _outcome(a: int, b: int) -> str:
    return "<" if a < b else ">" if a > b else "="


@dataclass(frozen=True, slots=True)
class Divided:
    """The magnitude is (`wanted`) or is not a multiple of `divisor` / 10**`places`. States: (remainder, digits read); "off".

    A multiple has no more than `places` digits after its point, or one zero: a model may never stop writing zeros.
    """

    divisor: int
    places: int
    wanted: bool

    def start(self) -> State | None:
        return (0, 0)

    def whole(self, state: State, digit: int) -> State | None:
        assert isinstance(state, tuple)
        return self._next(state, digit, 0)

    def point(self, state: State) -> State | None:
        return state

    def fraction(self, state: State, digit: int) -> State | None:
        if isinstance(state, str):
            return state
        assert isinstance(state, tuple)
        n = state[1]
        assert isinstance(n, int)
        if n < self.places:
            return self._next(state, digit, n + 1)
        if not self.wanted:
            return state if digit == 0 else "off"
        return (state[0], 1) if digit == n == 0 else None

    def _next(self, state: tuple[object, ...], digit: int, n: int) -> State:
        remainder = state[0]
        assert isinstance(remainder, int)
        return ((remainder * 10 + digit) % self.divisor, n)

    def accepts(self, state: State, in_fraction: bool) -> bool:  # noqa: ARG002
        if isinstance(state, str):
            return True
        assert isinstance(state, tuple)
        remainder, n = state
        assert isinstance(remainder, int)
        assert isinstance(n, int)
        return (remainder * 10 ** max(self.places - n, 0) % self.divisor == 0) is self.wanted


@dataclass(frozen=True, slots=True)
class Written:
    """Draft 4 tells integers by their text: with `pointed` there is a decimal point, without it there is none."""

    pointed: bool

    def start(self) -> State | None:
        return 0

    def whole(self, state: State, digit: int) -> State | None:  # noqa: ARG002
        return state

    def point(self, state: State) -> State | None:  # noqa: ARG002
        return 0 if self.pointed else None

    def fraction(self, state: State, digit: int) -> State | None:  # noqa: ARG002
        return state

    def accepts(self, state: State, in_fraction: bool) -> bool:  # noqa: ARG002
        return in_fraction is self.pointed


def is_plain(facts: NumberFacts) -> bool:
    """True for every number, or every integral one: the two that may have exponents."""
    return replace(facts, integral=None) == NumberFacts() and facts.integral is not False


def step_of(facts: NumberFacts) -> Fraction | None:
    """What every number of `facts` is a multiple of; None when there is no such thing."""
    steps = set(facts.multiples) | ({Fraction(1)} if facts.integral else set())
    if not steps:
        return None
    return reduce(_common_multiple, steps)


def _common_multiple(a: Fraction, b: Fraction) -> Fraction:
    whole = lcm(a.numerator * b.denominator, b.numerator * a.denominator)
    return Fraction(whole, a.denominator * b.denominator)


def is_empty(facts: NumberFacts, integers: Integers) -> bool:
    """True when no number can be among `facts` (false where that is too long to find out)."""
    low, high = facts.low, facts.high
    if low is not None and high is not None:
        if low > high or (low == high and (facts.low_exclusive or facts.high_exclusive)):
            return True
        if low == high and low in facts.excluded:
            return True
    if facts.integral is False and integers != "text":
        facts = replace(facts, non_multiples=facts.non_multiples | {Fraction(1)})
    step = step_of(facts)
    if step is None:
        return False
    if any((step / n).denominator == 1 for n in facts.non_multiples):
        return True
    if low is None or high is None:
        return False
    first, last = ceil(low / step), floor(high / step)
    first += facts.low_exclusive and first * step == low
    last -= facts.high_exclusive and last * step == high
    if last - first > 1000:
        return False
    values = (k * step for k in range(first, last + 1))
    return all(v in facts.excluded or any((v / n).denominator == 1 for n in facts.non_multiples) for v in values)


_KEPT = kept_automata(max_size=100_000)


def number_dfa(facts: NumberFacts, integers: Integers, budget: Budget) -> Dfa:
    """The automaton of the numbers of `facts`, without exponents. Raises LimitExceeded, UnsupportedFeature with a pointer."""
    return _KEPT.get((facts, integers), lambda: _number_dfa(facts, integers, budget))


def _number_dfa(facts: NumberFacts, integers: Integers, budget: Budget) -> Dfa:
    shared: list[Component] = [_divided(of, True, facts.path) for of in facts.multiples]
    shared += [_divided(of, False, facts.path) for of in facts.non_multiples]
    if facts.integral is not None:
        by_text = integers == "text" or (integers == "both" and facts.integral)
        shared.append(Written(not facts.integral) if by_text else Divided(1, 0, facts.integral))
    sides = [
        _Side(negative, (*shared, *parts)) for negative in (False, True) if (parts := _bounds(facts, negative)) is not None
    ]
    return _explored(sides, budget, facts.path)


def _divided(of: Fraction, wanted: bool, path: str) -> Divided:
    places = fraction_digits(of)
    divisor = int(of * 10**places)
    if divisor * (places + 1) > _MAX_REMAINDERS:
        raise UnsupportedFeature(f"multipleOf {of} needs too many remainders", path=path)
    return Divided(divisor, places, wanted)


def _bounds(facts: NumberFacts, negative: bool) -> list[Component] | None:
    """The bounds on the magnitude of the numbers of one sign (zero has both); None when there is no such number."""
    low, low_exclusive, high, high_exclusive = facts.low, facts.low_exclusive, facts.high, facts.high_exclusive
    if negative:
        low, low_exclusive, high, high_exclusive = _negated(high), high_exclusive, _negated(low), low_exclusive
    if high is not None and (high < 0 or (high == 0 and high_exclusive)):
        return None
    out: list[Component] = []
    if low is not None and (low > 0 or (low == 0 and low_exclusive)):
        out.append(Compared(low, ">" if low_exclusive else ">="))
    if high is not None:
        out.append(Compared(high, "<" if high_exclusive else "<="))
    own = (value for value in facts.excluded if value == 0 or (value < 0) is negative)
    return [*out, *(Compared(abs(value), "<>") for value in own)]


def _negated(bound: Fraction | None) -> Fraction | None:
    return None if bound is None else -bound


@dataclass(frozen=True, slots=True)
class _Side:
    """The numbers of one sign: the components that judge their magnitude."""

    negative: bool
    components: tuple[Component, ...]

    def start(self) -> tuple[State, ...] | None:
        return _all(c.start() for c in self.components)


def _all(states: Iterable[State | None]) -> tuple[State, ...] | None:
    found: list[State] = []
    for state in states:
        if state is None:
            return None
        found.append(state)
    return tuple(found)


_Node = tuple[int, str, tuple[State, ...]]  # the side, where in the number, the components' states


def _explored(sides: Sequence[_Side], budget: Budget, path: str) -> Dfa:
    """The product automaton. Places: "start", "zero" (a 0 in front), "whole", "point" (just read), "fraction"."""
    ids: dict[_Node | None, int] = {None: 0}
    rows: list[dict[int, int]] = []
    accepting: set[int] = set()
    todo: list[_Node | None] = [None]

    def state_of(node: _Node) -> int:
        if node not in ids:
            ids[node] = len(ids)
            todo.append(node)
        return ids[node]

    begun = {i: start for i, side in enumerate(sides) if (start := side.start()) is not None}
    for node in todo:
        budget.check_deadline()
        row: dict[int, int] = {}
        if node is None:
            for i, start in begun.items():
                if sides[i].negative:
                    row[_MINUS] = state_of((i, "start", start))
                else:
                    row |= {symbol: state_of(after) for symbol, after in _steps(sides, (i, "start", start))}
        else:
            row = {symbol: state_of(after) for symbol, after in _steps(sides, node)}
            side, place, states = node
            if place in ("zero", "whole", "fraction"):
                pairs = zip(sides[side].components, states, strict=True)
                if all(c.accepts(state, place == "fraction") for c, state in pairs):
                    accepting.add(ids[node])
        rows.append(row)
        if len(ids) > _MAX_REMAINDERS:  # not when as many rows are there: then ten times as many may be waiting
            limit = budget.limits.automaton_bytes
            raise LimitExceeded("the numbers need too large an automaton", limit="automaton_bytes", value=limit, path=path)
    trimmed = trim(Dfa(_ALPHABET, tuple(rows), frozenset(accepting)))
    return minimise(trimmed) if trimmed.accepting else NOTHING


def _steps(sides: Sequence[_Side], node: _Node) -> list[tuple[int, _Node]]:
    side, place, states = node
    components = sides[side].components
    pairs = list(zip(components, states, strict=True))
    out: list[tuple[int, _Node]] = []
    if place in ("zero", "whole"):
        after = _all(c.point(state) for c, state in pairs)
        if after is not None:
            out.append((_POINT, (side, "point", after)))
    if place == "zero":
        return out
    for digit in range(10):
        if place in ("start", "whole"):
            after = _all(c.whole(state, digit) for c, state in pairs)
            then = "zero" if place == "start" and digit == 0 else "whole"
        else:
            after = _all(c.fraction(state, digit) for c, state in pairs)
            then = "fraction"
        if after is not None:
            out.append((digit, (side, then, after)))
    return out
