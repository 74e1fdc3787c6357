"""Strings: pattern, format, length and what is excluded as one regular language, spelled as JSON text.

Lengths alone stay counts; everything else is one automaton, so no pattern can ever close the string.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache, reduce

from converters.automata import (
    ANY_TEXT,
    DUMPS,
    JSON,
    Dfa,
    Spelling,
    bounded,
    complement,
    difference,
    intersection,
    of_strings,
    shortest,
    to_expr,
)
from converters.automata.kept import kept_automata
from converters.automata.spelling import spelled
from converters.errors import ConversionError, LimitExceeded
from converters.grammar.charset import ANY, CharSet
from converters.grammar.expr import EMPTY, NEVER, Alt, Chars, Expr, Lit, Ref, RuleBook, Seq, alt, lit, rep, seq
from converters.jsonschema.counted import counted_expr
from converters.jsonschema.formats import format_dfa
from converters.jsonschema.schema import Format, Pattern
from converters.jsonschema.shape import StringFacts
from converters.limits import Budget

QUOTE, BACKSLASH = lit('"'), lit("\\")
_SPELLINGS = {"json": JSON, "dumps": DUMPS}
_PATTERNS = kept_automata(max_size=200_000)


class Strings:
    """The languages of patterns, formats and string facts of one compile, each worked out once."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._tests: dict[Pattern | Format, Dfa] = {}
        self._languages: dict[StringFacts, Dfa] = {}

    def test(self, test: Pattern | Format) -> Callable[[str], bool]:
        """The predicate of a pattern or a format."""
        return self.test_dfa(test).accepts

    def test_dfa(self, test: Pattern | Format) -> Dfa:
        """The strings that pass a test. Raises with the pointer of the test's keyword."""
        if test not in self._tests:
            from converters.regex import regex_dfa

            try:
                if isinstance(test, Pattern):
                    pattern = test.pattern
                    self._tests[test] = _PATTERNS.get(pattern, lambda: regex_dfa(pattern, "search", self._budget))
                else:
                    self._tests[test] = format_dfa(test.name)
            except ConversionError as error:
                if error.path is None:
                    error.path = test.path
                raise
        return self._tests[test]

    def language(self, facts: StringFacts) -> Dfa:
        """The strings of `facts` as one automaton. Raises LimitExceeded with the pointers of its keywords."""
        if facts not in self._languages:
            paths = " and ".join(sorted(test.path for test, _ in facts.tests))
            try:
                self._languages[facts] = self._work_out(facts)
            except LimitExceeded as error:
                if error.path is None:
                    error.path = paths
                raise
        return self._languages[facts]

    def _work_out(self, facts: StringFacts) -> Dfa:
        budget, what = self._budget, _named(facts)
        parts = [
            self.test_dfa(test) if positive else complement(self.test_dfa(test), budget, what)
            for test, positive in sorted(facts.tests, key=lambda pair: (not pair[1], repr(pair[0])))
        ]
        dfa = reduce(lambda a, b: intersection(a, b, budget, what), parts) if parts else ANY_TEXT
        if facts.excluded:
            dfa = difference(dfa, of_strings(facts.excluded, budget), budget, what)
        return bounded(dfa, facts.min, facts.max, budget, what) if facts.min or facts.max is not None else dfa

    def is_empty(self, facts: StringFacts) -> bool:
        """True when no string is among `facts`."""
        if facts.max is not None and facts.min > facts.max:
            return True
        if not facts.tests and (facts.max is None or facts.max > 4):
            return False
        try:
            return self.language(facts).is_empty()
        except LimitExceeded:
            word = shortest(self.language(replace(facts, min=0, max=None)))
            return word is None or (facts.max is not None and len(word) > facts.max)

    def expr(self, facts: StringFacts, book: RuleBook, chars: Characters) -> Expr:
        """The JSON texts of `facts`."""
        if not facts.tests and not facts.excluded:
            if facts.min == 0 and facts.max is None:
                return seq(QUOTE, chars.to_the_end())
            if facts.max is None:
                return seq(QUOTE, rep(chars.any(), facts.min, facts.min), chars.to_the_end())
            return seq(QUOTE, rep(chars.any(), facts.min, facts.max), QUOTE)
        try:
            expr = to_expr(self.language(facts), book, "text", JSON, self._budget)
        except LimitExceeded:
            whole = self.language(replace(facts, min=0, max=None))
            counted = counted_expr(whole, facts.min, facts.max, book, self._budget)
            if counted is None:
                raise
            expr = counted
        return NEVER if expr == NEVER else seq(QUOTE, expr, QUOTE)


def _named(facts: StringFacts) -> str:
    """The keywords that make up a language, for an error."""
    tests = sorted("pattern" if isinstance(test, Pattern) else "format" for test, _ in facts.tests)
    lengths = ["minLength"] * (facts.min > 0) + ["maxLength"] * (facts.max is not None)
    return " and ".join([*tests, *lengths]) or "a list of strings"


class Characters:
    """The shared rules of one spelling: any one character, and all that may follow inside a string up to its closing quote."""

    def __init__(self, book: RuleBook, spelling: Spelling, hint: str) -> None:
        self._book = book
        self._spelling = spelling
        self._hint = hint
        self._escaped: Ref | None = None
        self._any: Ref | None = None
        self._end: Ref | None = None

    @property
    def raw(self) -> CharSet:
        """The characters that stand for themselves."""
        return self._spelling.raw

    def escaped(self) -> Ref:
        """What may follow a backslash."""
        if self._escaped is None:
            self._escaped = self._book.add(f"{self._hint}-escape", escape_tail(self._spelling.name))
        return self._escaped

    def escape(self) -> Expr:
        """An escape: a backslash and what may follow it."""
        return seq(BACKSLASH, self.escaped())

    def any(self) -> Ref:
        """One character."""
        if self._any is None:
            self._any = self._book.add(self._hint, alt(Chars(self.raw), self.escape()))
        return self._any

    def to_the_end(self) -> Ref:
        """Any characters and the closing quote. Right recursion: llama.cpp walks it with fewer steps than a repetition."""
        if self._end is None:
            self._end = self._book.reserve(f"{self._hint}s")
            self._book.define(self._end, _to_the_end(self._spelling.name, self.escaped().name, self._end.name))
        return self._end


@lru_cache(256)
def _to_the_end(spelling: str, escaped: str, end: str) -> Expr:
    """The rule called `end`. The same object in every compile: what passes found out about it is kept with it."""
    return Alt((QUOTE, Seq((Chars(_SPELLINGS[spelling].raw), Ref(end))), Seq((BACKSLASH, Ref(escaped), Ref(end)))))


@cache
def escape_tail(spelling: str) -> Expr:
    """What may follow the backslash in a spelling, told by its name."""
    char = spelled([(ANY, EMPTY)], _SPELLINGS[spelling])
    assert isinstance(char, Alt)
    (escape,) = char.options[1:]
    assert isinstance(escape, Seq)
    first, *rest = escape.items
    assert isinstance(first, Lit)
    return seq(lit(first.text[1:]), *rest)
