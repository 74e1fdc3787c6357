"""Terminals to expressions. A terminal is regular, so it becomes one deterministic automaton, whatever it was built from.

What is written in strings, ranges, regexes and operators is joined to one pattern, as Lark does it, so that a lookbehind in
one part sees the part before. Only what no pattern can say (a lazy end, `&`, `~`, `%regex`) is put together from automata.
Rules, and what may stand between two terminals, are `lower`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from typing_extensions import assert_never

from converters.automata.algebra import complement, intersection, union
from converters.automata.dfa import Dfa
from converters.automata.lower import to_expr
from converters.automata.minimise import minimise, trim
from converters.automata.nfa import concatenated, repeated
from converters.errors import ConversionError, InvalidSource, LimitExceeded, Unsatisfiable, UnsupportedFeature
from converters.grammar.charset import CharSet
from converters.grammar.expr import EMPTY, NEVER, Chars, Expr, Lit, RuleBook, chars, lit, seq
from converters.lark.definitions import COMMON, Definitions, names_in, walk
from converters.lark.literals import (
    LiteralError,
    RegexLiteral,
    case_variants,
    decode_regex,
    decode_string,
    ends_lazily,
    greedy_after_lazy,
    has_lazy,
    has_lookaround,
    is_regex,
    pattern_of_range,
    pattern_of_regex,
    pattern_of_text,
)
from converters.lark.pattern import Pattern, join_choice, join_sequence, placed, repeat
from converters.lark.substring import substring_dfa
from converters.lark.syntax import MAX_COUNT
from converters.lark.tree import (
    LIBRARY,
    Both,
    Call,
    Choice,
    Foreign,
    Json,
    Literal,
    Name,
    Node,
    Not,
    Repeat,
    Sequence,
    Span,
    Special,
    Structured,
    offset_of,
    without_place,
)
from converters.limits import Budget
from converters.regex import lower_regex, parse, regex_dfa

MAX_PATTERN = 64 * 1024
"""Characters of the pattern that one terminal joins to; all of them together may have sixteen times as many."""


@dataclass(frozen=True, slots=True)
class _Traits:
    """How a terminal must be compiled. `is_open`: its end is lazy, so what follows it in a sequence decides where it ends."""

    has_lazy: bool = False
    is_open: bool = False
    has_algebra: bool = False

    @property
    def needs_automaton(self) -> bool:
        """No single pattern says it."""
        return self.has_lazy or self.has_algebra


class Terminals:
    """Lowers terminals into rules of `book`, one for each name."""

    def __init__(self, definitions: Definitions, book: RuleBook, budget: Budget) -> None:
        self.definitions = definitions
        self.book = book
        self.budget = budget
        self._exprs: dict[str, Expr] = {}
        self._patterns: dict[str, Pattern] = {}
        self._dfas: dict[str, Dfa] = {}
        self._automata: dict[Node, Dfa | None] = {}
        self._traits: dict[str, _Traits] = {}
        self._n_joined = 0
        for name in _dependencies_first(definitions, budget):
            self._traits[name] = self._traits_of(definitions.terminals[name].body)

    def lower(self, node: Node) -> Expr:
        """The text of one use of a terminal: a name, a string, a range, a regex or `%regex`."""
        node = self._resolved(node)
        match node:
            case Literal(raw) if not is_regex(raw):
                text, fold_case = self._text(node)
                return seq(*(chars(CharSet.of(case_variants(c))) for c in text)) if fold_case else lit(text)
            case Span():
                return chars(self._span(node))
            case Name(name):
                return self._named(name)
            case _:
                return self._regular(node, "regex")

    def automaton(self, node: Node) -> Dfa | None:
        """The terminal as an automaton; None where it is too large for one."""
        node = self._resolved(node)
        key = without_place(node)
        if key not in self._automata:
            try:
                self._automata[key] = self._dfa(self._settled(node))
            except LimitExceeded as error:
                if error.limit != "automaton_bytes":
                    raise
                self._automata[key] = None
        return self._automata[key]

    def ignored(self) -> list[Dfa]:
        """The terminals of `%ignore`, without the empty text."""
        dfas: list[Dfa] = []
        for statement in self.definitions.ignored:
            with self._placed("%ignore", statement.offset):
                dfas.append(without_empty(self._dfa(self._settled(statement.body))))
        return [dfa for dfa in dfas if not dfa.is_empty()]

    def _named(self, name: str) -> Expr:
        if name not in self._exprs:
            definition = self.definitions.terminals[name]
            with self._placed(f"terminal {name}", definition.offset):
                expr = self._regular(definition.body, name)
            if expr == NEVER:
                self.definitions.note(f"terminal {name} matches no text")
            is_short = isinstance(expr, (Lit, Chars)) or expr in (EMPTY, NEVER)
            self._exprs[name] = expr if is_short else self.book.add(name.removesuffix(f".{COMMON}"), expr)
        return self._exprs[name]

    def _regular(self, node: Node, hint: str) -> Expr:
        """A terminal's expression: counts stay counts where a pattern says it all."""
        node = self._settled(node)
        self._note_lookaround(node, hint)
        if self._traits_of(node).needs_automaton:
            return to_expr(self._dfa(node), self.book, hint)
        pattern = self._pattern(node)
        with self._placed_pattern(pattern):
            try:
                return lower_regex(pattern.text, "match", self.book, self.budget, hint=hint)
            except Unsatisfiable:
                return NEVER

    # -- what a name stands for

    def _resolved(self, node: Node) -> Node:
        """Through names that only stand for a name, a string or a range."""
        while isinstance(node, Name):
            body = self.definitions.terminals[node.name].body
            if not isinstance(body, (Name, Span)) and not (isinstance(body, Literal) and not is_regex(body.raw)):
                break
            node = body
        return node

    def _settled(self, node: Node) -> Node:
        """`node`, after everything that it names is compiled as far as it needs: terminals nest to any depth."""
        todo = [name for name in names_in(node) if name not in self._patterns]
        while todo:
            self.budget.tick()
            body = self.definitions.terminals[todo[-1]].body
            missing = [name for name in names_in(body) if name not in self._patterns]
            if missing:
                todo.extend(missing)
            else:
                self._settle(todo.pop(), body)
        return node

    def _settle(self, name: str, body: Node) -> None:
        traits = self._traits[name]
        if name in self._patterns:
            return
        with self._placed(f"terminal {name}", self.definitions.terminals[name].offset):
            self._patterns[name] = Pattern("") if traits.has_algebra else self._pattern(body)
            if traits.needs_automaton and not traits.is_open:
                self._dfas[name] = self._dfa(body)
        self._n_joined += len(self._patterns[name].text)
        if self._n_joined > 16 * MAX_PATTERN:
            raise self._too_long(self.definitions.terminals[name].offset)

    def _too_long(self, offset: int) -> LimitExceeded:
        return LimitExceeded(
            f"a terminal is longer than {MAX_PATTERN} characters when the terminals in it are written out",
            limit="terminal_pattern", value=MAX_PATTERN, position=self.definitions.position(offset),
        )  # fmt: skip

    # -- how a terminal must be compiled

    def _traits_of(self, node: Node) -> _Traits:
        match node:
            case Literal(raw) if is_regex(raw):
                literal = self._regex_literal(node)
                return _Traits(has_lazy(literal), ends_lazily(literal))
            case Name(name):
                return self._traits[name]
            case Sequence(items) if items:
                parts = [self._traits_of(item) for item in items]
                return _merged(parts, is_open=parts[-1].is_open)
            case Choice(options):
                parts = [self._traits_of(option) for option in options]
                return _merged(parts, is_open=any(part.is_open for part in parts))
            case Repeat(item):
                return self._traits_of(item)
            case Both() | Not() | Structured():
                return _Traits(has_algebra=True)
            case _:
                return _Traits()

    # -- as a pattern

    def _pattern(self, node: Node) -> Pattern:
        pattern = self._joined(node)
        if len(pattern.text) > MAX_PATTERN:
            raise self._too_long(offset_of(node))
        return pattern

    def _joined(self, node: Node) -> Pattern:
        match node:
            case Literal(raw) if is_regex(raw):
                return self._regex(node)
            case Literal():
                text, fold_case = self._text(node)
                return Pattern(pattern_of_text(text, fold_case), is_atom=len(text) == 1)
            case Span():
                span = self._span(node)
                return Pattern(pattern_of_range(chr(span.first), chr(span.ranges[-1][1])), is_atom=True)
            case Name(name, offset):
                if self._traits[name].has_algebra:
                    raise self._unsupported("a lazy quantifier beside &, ~ or %regex is not supported", offset)
                pattern = self._patterns[name]
                if len(pattern.text) > MAX_PATTERN:
                    raise self._too_long(offset)
                return pattern
            case Sequence(items):
                return join_sequence([self._pattern(item) for item in items]) if items else Pattern("")
            case Choice(options):
                return join_choice([self._pattern(option) for option in options])
            case Repeat(item):
                low, high = checked_counts(node, self.definitions)
                return repeat(self._pattern(item), low, high)
            case Both() | Not() | Structured():
                raise self._unsupported("a lazy quantifier beside &, ~ or %regex is not supported", offset_of(node))
            case Call() | Special() | Json() | Foreign():
                raise AssertionError(f"not a terminal: {node}")
            case _:
                assert_never(node)

    def _regex(self, node: Literal) -> Pattern:
        literal = self._regex_literal(node)
        begin = node.offset + 1
        self._check_regex(literal, begin)
        text, parts = pattern_of_regex(literal)
        sources = () if node.offset == LIBRARY else tuple((start, size, begin + at) for start, size, at in parts)
        return Pattern(text, sources, is_atom=True)

    def _check_regex(self, literal: RegexLiteral, offset: int) -> None:
        """A regex must be one by itself: `/a)(b/` is none, though it is between parentheses."""
        flags = "(?x)" if "x" in literal.flags else ""
        try:
            parse(flags + literal.source)
        except ConversionError as error:
            at = max(error.position.offset - len(flags), 0) if error.position else 0
            raise placed(error, "a regex", self.definitions.position(offset + at)) from None

    # -- as an automaton

    def _dfa(self, node: Node) -> Dfa:
        """The automaton of a terminal whose names are settled."""
        traits = self._traits_of(node)
        if not traits.needs_automaton:
            return self._pattern_dfa(node)
        match node:
            case Literal():
                return self._lazy_dfa(node)
            case Name(name):
                return self._dfas[name] if name in self._dfas else self._dfa(self.definitions.terminals[name].body)
            case Sequence(items):
                if any(self._traits_of(item).is_open for item in items):
                    return self._lazy_dfa(node)
                return concatenated([self._dfa(item) for item in items], self.budget, "a terminal")
            case Choice(options):
                dfas = [self._dfa(option) for option in options]
                return reduce(lambda a, b: union(a, b, self.budget, "a terminal"), dfas)
            case Both(items):
                dfas = [self._dfa(item) for item in items]
                return reduce(lambda a, b: intersection(a, b, self.budget, "a terminal"), dfas)
            case Not(item):
                return complement(self._dfa(item), self.budget, "a terminal")
            case Repeat(item):
                if traits.is_open:
                    return self._lazy_dfa(node)
                low, high = checked_counts(node, self.definitions)
                return repeated(self._dfa(item), low, high, self.budget, "a terminal")
            case Structured(offset):
                with self._placed("%regex", offset):
                    return substring_dfa(self.definitions.document.blocks[offset], self.budget)
            case Span() | Call() | Special() | Json() | Foreign():
                raise AssertionError(f"never needs an automaton: {node}")
            case _:
                assert_never(node)

    def _pattern_dfa(self, node: Node) -> Dfa:
        pattern = self._pattern(node)
        with self._placed_pattern(pattern):
            return regex_dfa(pattern.text, "match", self.budget)

    def _lazy_dfa(self, node: Node) -> Dfa:
        """A terminal with a lazy quantifier ends where it first can: no word of it is the beginning of another."""
        pattern = self._pattern(node)
        greedy = greedy_after_lazy(pattern.text)
        if greedy is not None:
            source = pattern.source_offset(greedy)
            raise self._unsupported(
                "a greedy quantifier after a lazy one leaves open where the terminal ends: this is not supported",
                offset_of(node) if source is None else source,
            )
        return _first_ends(self._pattern_dfa(node))

    # -- literals

    def _regex_literal(self, node: Literal) -> RegexLiteral:
        with self._literal_place(node):
            return decode_regex(node.raw)

    def _text(self, node: Literal) -> tuple[str, bool]:
        with self._literal_place(node):
            return decode_string(node.raw)

    def _span(self, node: Span) -> CharSet:
        ends = []
        for raw in (node.first, node.last):
            text, fold_case = self._text(Literal(raw, node.offset))
            if len(text) != 1 or fold_case:
                raise InvalidSource(
                    f"a range goes from one character to another, not {raw}", position=self.definitions.position(node.offset)
                )
            ends.append(ord(text))
        if ends[0] > ends[1]:
            raise InvalidSource(
                f"the range {node.first}..{node.last} is empty", position=self.definitions.position(node.offset)
            )
        return CharSet.span(ends[0], ends[1])

    # -- errors and notes

    @contextmanager
    def _literal_place(self, node: Literal) -> Iterator[None]:
        try:
            yield
        except LiteralError as error:
            kind = UnsupportedFeature if error.is_ambiguous else InvalidSource
            offset = LIBRARY if node.offset == LIBRARY else node.offset + error.offset
            raise kind(error.reason, position=self.definitions.position(offset)) from None

    @contextmanager
    def _placed(self, what: str, offset: int) -> Iterator[None]:
        """Errors without a place come from `offset`."""
        try:
            yield
        except ConversionError as error:
            if error.position is not None:
                raise
            raise placed(error, what, self.definitions.position(offset)) from None

    @contextmanager
    def _placed_pattern(self, pattern: Pattern) -> Iterator[None]:
        """Errors of the regex compiler come from where the regex stands, if that can be told."""
        try:
            yield
        except ConversionError as error:
            source = None if error.position is None else pattern.source_offset(error.position.offset)
            if source is None and len(pattern.sources) == 1:
                source = pattern.sources[0][2]
            raise placed(error, "a regex", None if source is None else self.definitions.position(source)) from None

    def _unsupported(self, reason: str, offset: int) -> UnsupportedFeature:
        return UnsupportedFeature(reason, position=self.definitions.position(offset))

    def _note_lookaround(self, node: Node, hint: str) -> None:
        regexes = (part for part in walk(node) if isinstance(part, Literal) and is_regex(part.raw))
        if any(has_lookaround(self._regex_literal(regex)) for regex in regexes):
            self.definitions.note(f"anchors and look-around in {hint} see the text of the terminal only")


def checked_counts(node: Repeat, definitions: Definitions) -> tuple[int, int | None]:
    """The counts of a repetition, checked."""
    low, high = node.min, node.max
    if low < 0 or (high is not None and high < low):
        raise InvalidSource(f"the repetition {low} to {high} is empty", position=definitions.position(node.offset))
    if max(low, high or 0) > MAX_COUNT:
        raise LimitExceeded(
            f"a repetition counts further than {MAX_COUNT}",
            limit="repetition", value=MAX_COUNT, position=definitions.position(node.offset),
        )  # fmt: skip
    return low, high


def _merged(parts: list[_Traits], *, is_open: bool) -> _Traits:
    return _Traits(any(part.has_lazy for part in parts), is_open, any(part.has_algebra for part in parts))


def _first_ends(dfa: Dfa) -> Dfa:
    """The words with no shorter word at their beginning."""
    rows = tuple({} if state in dfa.accepting else row for state, row in enumerate(dfa.rows))
    return minimise(trim(Dfa(dfa.alphabet, rows, dfa.accepting)))


def without_empty(dfa: Dfa) -> Dfa:
    """The words but the empty one: the old start moves to the end, a copy that doesn't accept takes its place."""
    if 0 not in dfa.accepting:
        return dfa
    old_start = dfa.n_states
    rows = [{c: t or old_start for c, t in row.items()} for row in dfa.rows]
    accepting = {state or old_start for state in dfa.accepting}
    return minimise(trim(Dfa(dfa.alphabet, (*rows, rows[0]), frozenset(accepting))))


def _dependencies_first(definitions: Definitions, budget: Budget) -> list[str]:
    """The names of all terminals, each after those in it. Raises InvalidSource when one is inside itself."""
    order: list[str] = []
    is_done: dict[str, bool] = {}
    for root in definitions.terminals:
        todo = [(root, False)]
        while todo:
            budget.tick()
            name, was_entered = todo.pop()
            if was_entered:
                is_done[name] = True
                order.append(name)
            elif name not in is_done:
                is_done[name] = False
                todo.append((name, True))
                for inner in names_in(definitions.terminals[name].body):
                    if is_done.get(inner) is False:
                        raise InvalidSource(
                            f"terminal {name!r} contains itself: only rules can be recursive",
                            position=definitions.position(definitions.terminals[name].offset),
                        )
                    todo.append((inner, False))
    return order
