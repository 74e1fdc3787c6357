"""The end of an object: members whose keys no `properties` declares, in any order.

A small automaton over members. Its state says which undeclared keys are still required, which "some member" conditions are
open, how many members there are (as far as that matters) and, where keys are few and must be told apart, which were used.
Free keys may repeat (no grammar can forbid that), so nothing here may rest on two of them being different.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from converters.automata import ANY_TEXT, Dfa, difference, intersection, of_string, of_strings, words
from converters.automata import count as n_texts
from converters.errors import UnsupportedFeature
from converters.grammar.expr import NEVER, Expr, Ref, alt, lit, opt, rep, seq
from converters.jsonschema.keys import KeyClass, class_dfa
from converters.jsonschema.shape import ANYTHING, SomeMember, Term
from converters.jsonschema.value import key_texts
from converters.record import record

if TYPE_CHECKING:
    from converters.jsonschema.lower import Lowering

MAX_STATES = 1500
MAX_FREE_REQUIRED = 4
_MAX_WORDS = 64


@record
class Entry:
    """A key and the grammar of its value."""

    key: str
    value: Expr
    required: bool


@record
class Others:
    """Members with undeclared keys, after the opening quote of the first: by its next character, and all else."""

    by_first: Mapping[str, Expr]
    rest: Expr


@record
class _Class:
    """Keys treated alike: their language (None: all undeclared), their value, and the open conditions that they meet."""

    keys: Dfa | None
    value: Term
    meets: frozenset[int]


@record
class _State:
    """`used` are the keys so far where they are told apart (None: they aren't). `needs_one`: some free member must come."""

    n_members: int
    required: frozenset[int]
    open: frozenset[int]
    used: frozenset[str] | None
    needs_one: bool = False


@dataclass(slots=True)
class Tail:
    """Members with undeclared keys: of `classes`, with every key of `required`, meeting every condition of `some`."""

    classes: Sequence[KeyClass]
    required: Sequence[Entry]
    some: Sequence[SomeMember]
    declared: Mapping[str, None]
    min: int
    max: int | None
    path: str
    lowering: Lowering
    hint: str
    _parts: list[_Class] = field(default_factory=list)
    _words: dict[str, Term] | None = None
    _rests: dict[_State, Ref] = field(default_factory=dict)
    _starts: dict[int, Expr] = field(default_factory=dict)
    _others: Others | None = None

    def __post_init__(self) -> None:
        if self.some and self.classes:
            self._parts = list(self._refined())
        else:
            self._parts = [_Class(c.keys, c.value, frozenset()) for c in self.classes]

    @property
    def may_be_absent(self) -> bool:
        """True when no member is needed here, counts aside."""
        return not self.required and not self.some

    def members(self, count: int) -> Expr:
        """One or more members after `count` others, without a comma before; NEVER when there can be none."""
        key = self._cap(count)
        if key not in self._starts:
            self._starts[key] = self._members(count)
        return self._starts[key]

    def _members(self, count: int) -> Expr:
        if not self._parts and not self.required:
            return NEVER
        low, high = max(0, self.min - count - 1), None if self.max is None else self.max - count - 1
        if high is not None and high < low:
            return NEVER
        if self.may_be_absent and low == 0:
            member = alt(*(self._member(part) for part in self._parts))
            expr = seq(member, rep(seq(self.lowering.layout.comma, member), 0, high))
        else:
            expr = self._walk(self._start(count))
        return expr if expr == NEVER else self.lowering.book.add(f"{self.hint}-more", expr)

    def by_first(self) -> Others | None:
        """One or more members; None where they aren't any number of one class without conditions."""
        if self._others is None and self._is_plain:
            keys = self.lowering.keys.others(self.declared)
            if keys is not None:
                (part,) = self._parts
                book, layout = self.lowering.book, self.lowering.layout
                value = self.lowering.value(part.value, f"{self.hint}-value")
                more = rep(seq(layout.comma, self._member(part)))
                then = book.add(f"{self.hint}-more", seq(layout.colon, value, more))
                by_first = {char: seq(key, then) for char, key in keys.by_first.items()}
                rest = alt(*(seq(key, then) for key in keys.rest))
                self._others = Others(by_first, book.add(f"{self.hint}-other", rest))
        return self._others

    @property
    def _is_plain(self) -> bool:
        plain = self.may_be_absent and self.max is None and self.min <= 1
        return plain and len(self._parts) == 1 and self._parts[0].keys is None

    def _member(self, part: _Class, value: Term | None = None) -> Expr:
        keys = self.lowering.keys
        texts = keys.except_for(self.declared) if part.keys is None else keys.of_language(part.keys)
        hint = f"{self.hint}-value"
        return seq(texts, self.lowering.layout.colon, self.lowering.value(part.value if value is None else value, hint))

    def _refined(self) -> Iterator[_Class]:
        """The classes cut up by which conditions their keys can meet."""
        budget = self.lowering.algebra.space.budget
        wanted = [class_dfa(some, self.lowering.algebra) for some in self.some]
        for c in self.classes:
            whole = c.keys
            if whole is None:
                whole = difference(ANY_TEXT, of_strings(self.declared, budget), budget)
            parts = [(whole, frozenset[int]())]
            for i, dfa in enumerate(wanted):
                inside = [(intersection(keys, dfa, budget), meets | {i}) for keys, meets in parts]
                parts = [*inside, *((difference(keys, dfa, budget), meets) for keys, meets in parts)]
                parts = [(keys, meets) for keys, meets in parts if not keys.is_empty()]
            yield from (_Class(keys, c.value, meets) for keys, meets in parts)

    def _valued(self) -> list[int]:
        """The conditions that ask something of the value."""
        return [i for i, some in enumerate(self.some) if some.value != ANYTHING]

    def _start(self, count: int) -> _State:
        """The state before the first member; keys are told apart where that is needed."""
        missing = self.min - count - len(self.required)
        valued = self._valued()
        required, conditions = frozenset(range(len(self.required))), frozenset(range(len(self.some)))
        if missing < 2 and len(valued) < 2 and not (valued and self.max is not None):
            return _State(count if self.max is not None else 0, required, conditions, None, missing > 0)
        self._words = self._words or self._told_apart(missing)
        return _State(count, required, conditions, frozenset())

    def _told_apart(self, missing: int) -> dict[str, Term]:
        """The keys one by one. Raises UnsupportedFeature when they are too many."""
        found: dict[str, Term] = {}
        for part in self._parts:
            n_words = None if part.keys is None else n_texts(part.keys)
            if part.keys is None or n_words is None:
                culprit = "minProperties over" if missing > 1 else "conditions on"
                path = self.path if missing > 1 or not self.some else self.some[0].path
                raise UnsupportedFeature(f"{culprit} several undeclared keys, which might repeat", path=path)
            if n_words + len(found) > _MAX_WORDS:
                raise UnsupportedFeature(f"more than {_MAX_WORDS} keys that must be told apart", path=self.path)
            found |= dict.fromkeys(words(part.keys), part.value)
        return found

    # -- the automaton -------------------------------------------------------------------------------------------------

    def _walk(self, start: _State) -> Expr:
        todo: list[_State] = []
        first = self._choice(start, todo)
        while todo:
            state = todo.pop()
            self.lowering.algebra.space.budget.tick()
            some = seq(self.lowering.layout.comma, self._choice(state, todo))
            self.lowering.book.define(self._rests[state], opt(some) if self._may_end(state) else some)
        return first

    def _rest(self, state: _State, todo: list[_State]) -> Ref:
        if state not in self._rests:
            if len(self._rests) >= MAX_STATES:
                raise UnsupportedFeature("too many combinations of undeclared keys", path=self.path)
            self._rests[state] = self.lowering.book.reserve(f"{self.hint}-more")
            todo.append(state)
        return self._rests[state]

    def _cap(self, count: int) -> int:
        return count if self.max is not None else min(count, self.min)

    def _may_end(self, state: _State) -> bool:
        enough = not state.needs_one and (state.used is None or state.n_members >= self.min)
        return enough and not state.required and not state.open

    def _choice(self, state: _State, todo: list[_State]) -> Expr:
        if self.max is not None and state.n_members >= self.max:
            return NEVER
        if self.max is not None or state.used is not None:
            state = replace(state, n_members=self._cap(state.n_members + 1))
        options: list[Expr] = []
        for i in sorted(state.required):
            entry = self.required[i]
            texts = alt(*map(lit, key_texts(entry.key)))
            rest = self._rest(replace(state, required=state.required - {i}), todo)
            options.append(seq(texts, self.lowering.layout.colon, entry.value, rest))
        if state.used is not None:
            options.extend(self._of_words(state, state.used, todo))
        else:
            options.extend(self._of_classes(replace(state, needs_one=False), todo))
        return alt(*options)

    def _of_classes(self, state: _State, todo: list[_State]) -> Iterator[Expr]:
        valued = [i for i in self._valued() if i in state.open]
        for part in self._parts:
            met = part.meets - frozenset(valued)
            yield seq(self._member(part), self._rest(replace(state, open=state.open - met), todo))
            for i in valued:  # the witness comes last, so that no repetition of its key can follow
                after = replace(state, open=state.open - met - {i})
                value = self.lowering.algebra.simplify(part.value | self.some[i].value)
                if i in part.meets and self._may_end(after) and not self.lowering.algebra.is_empty(value):
                    yield self._member(part, value)

    def _of_words(self, state: _State, used: frozenset[str], todo: list[_State]) -> Iterator[Expr]:
        parts = [part for part in self._parts if part.keys is not None]
        for word, plain in (self._words or {}).items():
            if word in used:
                continue
            meets = frozenset().union(*(part.meets for part in parts if part.keys and part.keys.accepts(word)))
            met = meets - frozenset(self._valued())
            choices: list[tuple[Term, frozenset[int]]] = [(plain, met)]
            for i in self._valued():
                if i in meets & state.open:
                    choices += [(value | self.some[i].value, done | {i}) for value, done in choices]
            for value, done in choices:
                term = self.lowering.algebra.simplify(value)
                if not self.lowering.algebra.is_empty(term):
                    after = replace(state, open=state.open - done, used=used | {word})
                    yield seq(self._member(_Class(of_string(word), term, meets)), self._rest(after, todo))
