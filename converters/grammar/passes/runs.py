"""Runs: many characters of a loop written out as one more alternative, for llama.cpp to follow a token into.

llama.cpp follows a token into one alternative after the other, and works out what may come next of everything it meets, fit or
not. In a loop over the characters of a text, that is every way on, at every character. A row of characters that stands in one
piece has one way on; where it is asked first (see `grammar.order`), a token inside a text costs a step a character, and the
other ways on are met once a token. For printing only: it adds a second reading of the same text, and no text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import is_

from converters.grammar.charset import MAX_CODE_POINT, CharSet
from converters.grammar.expr import Alt, Chars, Expr, Grammar, Lit, Ref, Rep, Seq, Token
from converters.grammar.passes.look import look_of
from converters.grammar.passes.walk import FreshNames, below
from converters.limits import Budget

LENGTH = 32
"""Characters of a run: a token that goes past its end is followed into what begins there. A shorter text has no use for it."""
MIN_WIDTH = 20
"""So many characters a loop is over: digits make no long texts."""
MAX_RANGES = 16
MIN_WAYS_ON, MAX_WAYS_ON = 2, 12
"""How many ways may lead out of a loop. One costs too little to save it; many are too much text to be written again."""
MAX_REFS = 24
MAX_DEPTH, MAX_COUNT = 4, 8
"""Rules in one another, and repetitions, of which an escape may consist."""
NEARLY_ANY = MAX_CODE_POINT // 2
"""A class of more characters than this means "any other", which is seldom what comes."""


def write_runs(grammar: Grammar, budget: Budget, min_width: int = MIN_WIDTH, length: int = LENGTH) -> Grammar:
    """Add runs of `length` to the loops over at least `min_width` characters.

    Before → after: `root ::= "(" x; x ::= ")" | "?" y | [a-z] x` →
        root ::= "(" x
        x ::= ")" | "?" y | [a-z] x-2 | [a-z]{32} x
        x-2 ::= ")" | "?" y | [a-z] x-2
    Only where a loop is begun right after a character that it is not over: that one ended the run before. So at most one run
    of a loop is alive, however many ways a text is read in.
    """
    loops: dict[str, CharSet] = {}
    for name, expr in grammar.rules.items():
        chars = _loop_chars(name, expr) if name != grammar.root else None
        if chars is not None and len(chars) >= min_width:
            loops[name] = chars
    if not loops:
        return grammar
    return _Writer(grammar, loops, _Calls(grammar.rules, loops), length, budget).run()


def _loop_chars(name: str, rule: Expr) -> CharSet | None:
    """The characters that a rule is a loop over (the most, if there are several steps), if it is one worth runs."""
    if type(rule) is not Alt or not MIN_WAYS_ON < len(rule.options) <= MAX_WAYS_ON + 1:
        return None
    found = max(_step_chars(rule.options, name), key=len, default=None)
    if found is None or len(found.ranges) > MAX_RANGES or len(look_of(rule).refs) > MAX_REFS:
        return None
    return found


def _step_chars(options: Sequence[Expr], name: str) -> Iterator[CharSet]:
    """The characters of the alternatives that are one character and then the rule `name` again."""
    for option in options:
        if type(option) is Seq and len(option.items) == 2:
            first, then = option.items
            if type(first) is Chars and type(then) is Ref and then.name == name:
                yield first.chars


class _Calls:
    """Tells the calls of loops where none of their runs can be alive."""

    def __init__(self, rules: Mapping[str, Expr], loops: Mapping[str, CharSet]) -> None:
        self._rules = rules
        self._loops = loops
        self._short: dict[str, bool] = {}
        self._outside: dict[str, dict[str, bool]] = {name: {} for name in loops}

    def is_safe(self, items: Sequence[Expr], i: int) -> bool:
        """Does the call at `i` come after a character that the loop isn't over, with at most an escape or the like between?"""
        call = items[i]
        if type(call) is not Ref or call.name not in self._loops:
            return False
        chars = self._loops[call.name]
        is_open = False
        for item in items[i - 1 :: -1] if i else ():
            if type(item) is Lit:
                if self._leaves(item.text, call.name):
                    return True
            elif type(item) is Chars:
                if item.chars.isdisjoint(chars):
                    return True
            elif is_open or not self._is_short(item, MAX_DEPTH):
                return False
            else:
                is_open = True
        return False

    def _leaves(self, text: str, loop: str) -> bool:
        """Is a character of `text` none of the loop's? The last ones are looked at first: quotes and brackets stand there."""
        known = self._outside[loop]
        for char in reversed(text):
            if char not in known:
                known[char] = char not in self._loops[loop]
            if known[char]:
                return True
        return False

    def _is_short(self, expr: Expr, depth: int) -> bool:
        """Are the texts of `expr` bounded, and by little?"""
        if type(expr) is Ref:
            if expr.name not in self._short:
                self._short[expr.name] = False  # while it is looked for: a rule that comes back to itself
                self._short[expr.name] = depth > 0 and self._is_short(self._rules[expr.name], depth - 1)
            return self._short[expr.name]
        if type(expr) is Rep and (expr.max is None or expr.max > MAX_COUNT):
            return False
        return type(expr) is not Token and all(self._is_short(part, depth) for part in below(expr))


class _Writer:
    """Gives each loop its forms: with runs, under its own name; plain; and begun plain, with runs from its second character.

    A loop that is never called where none of its runs can be alive has only the plain form.
    """

    def __init__(self, grammar: Grammar, loops: Mapping[str, CharSet], calls: _Calls, length: int, budget: Budget) -> None:
        names = FreshNames(grammar.rules)
        self._grammar = grammar
        self._loops = loops
        self._calls = calls
        self._length = length
        self._budget = budget
        self._plain = {name: Ref(names.make(name)) for name in loops}
        self._entry = {name: Ref(names.make(name)) for name in loops}
        self._entered: set[str] = set()
        self._called: set[str] = set()

    def run(self) -> Grammar:
        """The grammar with its runs; the same object where there is none."""
        rules: dict[str, Expr] = {}
        ways_on: dict[str, list[Expr]] = {}
        for name, expr in self._grammar.rules.items():
            if name in self._loops:
                ways_on[name] = self._ways_on(name, expr)
                rules[name] = expr  # its place
            elif look_of(expr).refs.isdisjoint(self._loops):
                rules[name] = expr
            else:
                rules[name] = self._with_calls(name, expr)
        if not self._called:
            return self._grammar
        self._budget.check_deadline()
        for name, ways in ways_on.items():
            plain = self._plain[name]
            if name in self._called:
                run = Seq((Rep(Chars(self._loops[name]), self._length, self._length), Ref(name)))
                rules[name] = Alt((*ways, self._step(name, plain), run))
            else:
                del rules[name]
            rules[plain.name] = Alt((*ways, self._step(name, plain)))
            if name in self._entered:
                rules[self._entry[name].name] = Alt((*ways, self._step(name, Ref(name))))
        return Grammar(rules, self._grammar.root)

    def _ways_on(self, name: str, loop: Expr) -> list[Expr]:
        """The ways out of a loop."""
        assert type(loop) is Alt
        step = self._step(name, Ref(name))
        return [self._way(option, is_in_loop=True) for option in loop.options if option != step]

    def _step(self, name: str, then: Ref) -> Expr:
        return Seq((Chars(self._loops[name]), then))

    def _with_calls(self, name: str, expr: Expr) -> Expr:
        """A rule that has no runs itself, calling those that may have."""
        if type(expr) is not Alt:
            return self._way(expr, is_in_loop=False)
        is_in_loop = any(_step_chars(expr.options, name))
        options = [self._way(option, is_in_loop=is_in_loop) for option in expr.options]
        return expr if all(map(is_, options, expr.options)) else Alt(tuple(options))

    def _way(self, way: Expr, *, is_in_loop: bool) -> Expr:
        """One alternative. What is behind a single character is worked out wherever that character might come, so where it
        seldom does, the loop is called in the form that has no more ways on than it had."""
        way = self._only_safe(way)
        if type(way) is not Seq or len(way.items) < 2:
            return way
        first, second, *rest = way.items
        if type(second) is not Ref or second.name not in self._loops:
            return way
        is_char = type(first) is Chars or (type(first) is Lit and len(first.text) == 1)
        is_other = type(first) is Chars and len(first.chars) > NEARLY_ANY
        if not is_other and not (is_in_loop and is_char):
            return way
        self._entered.add(second.name)
        return Seq((first, self._entry[second.name], *rest))

    def _only_safe(self, expr: Expr) -> Expr:
        """`expr` with the plain form of the loops of which a run may be alive."""
        if type(expr) is Ref:
            return self._plain.get(expr.name, expr)
        if type(expr) is Seq:
            items = self._safe_items(expr.items)
            return expr if items is expr.items else Seq(items)
        if type(expr) is Alt:
            options = [self._only_safe(option) for option in expr.options]
            return expr if all(map(is_, options, expr.options)) else Alt(tuple(options))
        if type(expr) is Rep:
            item = self._only_safe(expr.item)
            return expr if item is expr.item else Rep(item, expr.min, expr.max)
        return expr

    def _safe_items(self, items: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The items of a sequence; the same tuple when nothing changed."""
        new: list[Expr] | None = None
        for i, item in enumerate(items):
            if type(item) is Lit or type(item) is Chars:
                continue
            if type(item) is not Ref:
                safe = self._only_safe(item)
            elif item.name not in self._loops:
                continue
            elif self._calls.is_safe(items, i):
                self._called.add(item.name)
                continue
            else:
                safe = self._plain[item.name]
            if safe is not item:
                new = new or list(items)
                new[i] = safe
        return items if new is None else tuple(new)
