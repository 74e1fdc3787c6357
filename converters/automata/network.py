"""A grammar as a network of automata: what of it is regular is made deterministic, only true recursion stays a call.

Each rule that contains itself, other than at its end, becomes one automaton over characters and calls; the rules that don't
are written into it, and if asked those sentences of a called rule that need no call themselves. So no text is read in two ways
but for what calls leave open: `x* x*`, `("a" | "ab")*`, `item{0,400} item*` have one reading. The language is kept. Which
grammars need it is `converters.grammar.match.probe`'s to say.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from typing_extensions import assert_never

from converters.automata.algebra import difference
from converters.automata.dfa import EMPTY_TEXT, Dfa
from converters.automata.lower import joined, to_expr
from converters.automata.minimise import minimise, trim
from converters.automata.nfa import Nfa
from converters.errors import LimitExceeded
from converters.grammar.charset import MAX_CODE_POINT, CharSet
from converters.grammar.expr import (
    EMPTY,
    Alt,
    Chars,
    Expr,
    Grammar,
    Lit,
    Ref,
    Rep,
    RuleBook,
    Seq,
    Token,
    alt,
    chars,
    children,
    rep,
    seq,
)
from converters.grammar.passes.fixpoint import components, is_nullable, nullable_rules
from converters.grammar.passes.nonempty import collapse
from converters.grammar.passes.walk import nodes, refs
from converters.limits import Budget

SHARE_S = 0.5
_SIZES = (3000, 100)
"""What is written into a rule unrolls to at most so many characters; else it is called. The second where the first fails."""
_MAX_SHORT = 12
"""Nodes of a rule that is written out wherever it is called."""
_WHAT = "a rule of the grammar"


def determinized(grammar: Grammar, splits_calls: bool, budget: Budget) -> Grammar | None:
    """`grammar` with its regular parts deterministic; None where their automata are too large.

    `splits_calls`: sentences of a called rule that need no call themselves are written at its calls, a longer text. Expects
    the form of `passes.prepare`, and gives one that wants it again. None as well where they take longer than SHARE_S.

    Before → after: `root ::= x* x*; x ::= "a" | "ab"` → `root ::= "a" rest | ""; rest ::= "b"? ("a" rest | "")`
    """
    share = Budget(replace(budget.limits, compile_s=min(SHARE_S, budget.limits.compile_s)))
    for size in _SIZES:
        rewritten = _written_out(grammar, size, splits_calls, share)
        if rewritten is not None:
            return rewritten
    return None


def _written_out(grammar: Grammar, size: int, splits_calls: bool, budget: Budget) -> Grammar | None:
    try:
        return _Network(grammar, size, splits_calls, budget).run()
    except LimitExceeded:
        return None


@dataclass(slots=True)
class _Network:
    grammar: Grammar
    max_size: int
    splits_calls: bool
    budget: Budget
    nullable: set[str] = field(init=False)
    recursive: set[str] = field(init=False)
    sizes: dict[str, int] = field(init=False, default_factory=dict)
    book: RuleBook = field(init=False, default_factory=RuleBook)
    rules: dict[str, Expr] = field(init=False, default_factory=dict)
    short: dict[str, Expr] = field(init=False, default_factory=dict)
    symbols: dict[Expr, CharSet] = field(init=False, default_factory=dict)
    called: list[Expr] = field(init=False, default_factory=list)
    units: dict[Expr, Ref] = field(init=False, default_factory=dict)
    todo: list[Expr] = field(init=False, default_factory=list)

    def run(self) -> Grammar:
        rules = self.grammar.rules
        self.nullable = nullable_rules(self.grammar, self.budget)
        parts = components({name: refs(expr) for name, expr in rules.items()})
        self.recursive = {name for part in parts if self._embeds(set(part)) for name in part}
        for part in parts:
            self._measure(part)
            for name in part:
                self._simplify(name)
        root = Ref(self.grammar.root)
        automata: dict[Ref, Dfa] = {}
        entry = self._automaton(root)
        while self.todo:
            unit = self.todo.pop()
            automata[self.units[unit]] = self._automaton(unit)
        if self.splits_calls:
            entry = self._split_calls(entry, automata)
        for ref, dfa in automata.items():
            self.book.define(ref, self._expr(dfa, ref.name))
        expr = self._expr(entry, root.name)
        return self.book.build(alt(expr, EMPTY) if is_nullable(rules[root.name], self.nullable) else expr)

    def _embeds(self, part: set[str]) -> bool:
        """Does a rule of these, which refer to one another, refer to one of them other than at its end?"""
        return any(_refers_inside(self.grammar.rules[name], part) for name in part)

    def _measure(self, part: list[str]) -> None:
        """How many characters each rule unrolls to; a rule that can only be called counts as one."""
        self.sizes.update(dict.fromkeys(part, 1))
        if part[0] not in self.recursive:
            size = sum([self.size(self.grammar.rules[name]) for name in part])
            self.sizes.update(dict.fromkeys(part, size))

    def _simplify(self, name: str) -> None:
        """A short rule without calls is written where it is called, to see what repetitions stand side by side."""
        self.rules[name] = expr = self.simplified(self.grammar.rules[name])
        below = nodes(expr)
        if len(below) <= _MAX_SHORT and not any(isinstance(node, Ref) for node in below):
            self.short[name] = expr

    def simplified(self, expr: Expr) -> Expr:
        """`expr` with repetitions joined where counts would multiply: `(x x*){9} x*` is `x{9,}`."""
        if isinstance(expr, Ref):
            return self.short.get(expr.name, expr)
        if isinstance(expr, Seq):
            return joined(seq(*map(self.simplified, expr.items)))
        if isinstance(expr, Alt):
            return alt(*map(self.simplified, expr.options))
        return collapse(rep(self.simplified(expr.item), expr.min, expr.max)) if isinstance(expr, Rep) else expr

    def size(self, expr: Expr) -> int:
        if isinstance(expr, Lit):
            return len(expr.text)
        if isinstance(expr, Ref):
            return self.sizes[expr.name]
        if isinstance(expr, Rep):
            return self.size(expr.item) * max(1, expr.min if expr.max is None else expr.max)
        return sum([self.size(part) for part in children(expr)]) if isinstance(expr, (Seq, Alt)) else 1

    # ---- calls

    def symbol(self, meant: Expr) -> CharSet:
        """The character past Unicode's last one that stands for `meant`, a token or a call."""
        if meant not in self.symbols:
            point = MAX_CODE_POINT + 1 + len(self.called)
            self.symbols[meant] = CharSet(((point, point),))
            self.called.append(meant)
        return self.symbols[meant]

    def unit(self, expr: Expr) -> Ref:
        """The rule for the sentences of `expr` that aren't empty."""
        if expr not in self.units:
            self.units[expr] = self.book.reserve(expr.name if isinstance(expr, Ref) else "item")
            self.todo.append(expr)
        return self.units[expr]

    # ---- automata

    def _automaton(self, unit: Expr) -> Dfa:
        """The sentences of a unit that aren't empty, over characters and symbols."""
        builder = _Builder(self, Nfa(self.budget, _WHAT))
        start = builder.run(unit)
        return difference(builder.nfa.determinize(start), EMPTY_TEXT, self.budget, _WHAT)

    def _split_calls(self, entry: Dfa, automata: dict[Ref, Dfa]) -> Dfa:
        """Write those sentences of a called rule that have no call in them at its calls: only the others are called.

        Before → after: `x ::= "(" x* ")" | "a"+` → `x ::= "(" ("a" | x)* ")"`, less what `x` has without a call
        """
        calls: dict[Expr, tuple[Ref, Dfa]] = {}
        for ref, dfa in list(automata.items()):
            if (split := self._split(ref, dfa)) is not None:
                rest, plain = calls[ref] = split
                automata[rest] = difference(dfa, plain, self.budget, _WHAT)
        if not calls:
            return entry
        for ref, dfa in automata.items():
            automata[ref] = self._with_split_calls(dfa, calls)
        return self._with_split_calls(entry, calls)

    def _split(self, ref: Ref, dfa: Dfa) -> tuple[Ref, Dfa] | None:
        """The rule for the sentences of `ref` with a call in them, and the automaton of the others; None if there are none."""
        called = [i for i, charset in enumerate(dfa.alphabet) if charset.ranges[-1][1] > MAX_CODE_POINT]
        rows = tuple({c: target for c, target in row.items() if c not in called} for row in dfa.rows)
        plain = minimise(trim(Dfa(dfa.alphabet, rows, dfa.accepting)))
        if plain.is_empty() or plain.n_states > self.max_size:
            return None
        return self.book.reserve(ref.name), plain

    def _with_split_calls(self, dfa: Dfa, calls: dict[Expr, tuple[Ref, Dfa]]) -> Dfa:
        nfa = Nfa(self.budget, _WHAT)
        states = [nfa.state() for _ in dfa.rows]
        plain_entries: dict[tuple[Expr, int], int] = {}
        for state, row in enumerate(dfa.rows):
            for c, target in row.items():
                charset, meant = self._meanings(dfa.alphabet[c])
                if charset:
                    nfa.arcs[state].append((nfa.set_id(charset), target))
                for expr in meant:
                    rest, plain = calls.get(expr, (expr, None))
                    nfa.arcs[state].append((nfa.set_id(self.symbol(rest)), target))
                    if plain is not None and (expr, target) not in plain_entries:
                        plain_entries[expr, target] = nfa.embed(plain, target)
                    if plain is not None:
                        nfa.moves[state].append(plain_entries[expr, target])
        nfa.accepting.update(dfa.accepting)
        return nfa.determinize(states[0])

    def _meanings(self, charset: CharSet) -> tuple[CharSet, list[Expr]]:
        """The characters, and what the symbols mean."""
        plain = CharSet(tuple((low, min(high, MAX_CODE_POINT)) for low, high in charset.ranges if low <= MAX_CODE_POINT))
        points = (point for low, high in charset.ranges for point in range(max(low, MAX_CODE_POINT + 1), high + 1))
        return plain, [self.called[point - MAX_CODE_POINT - 1] for point in points]

    def _expr(self, dfa: Dfa, hint: str) -> Expr:
        """The automaton as an expression; `_CallingBook` puts the calls into the rules that it makes."""
        book = _CallingBook(self)
        return book.spelled(to_expr(dfa, book, hint, None, self.budget))

    def spell(self, expr: Expr) -> Expr:
        """`expr` with calls in the place of their symbols."""
        match expr:
            case Chars(charset):
                if charset.ranges[-1][1] <= MAX_CODE_POINT:
                    return expr
                plain, meant = self._meanings(charset)
                return alt(chars(plain), *meant)
            case Seq(items):
                return seq(*map(self.spell, items))
            case Alt(options):
                return alt(*map(self.spell, options))
            case Rep(item, low, high):
                return rep(self.spell(item), low, high)
            case Lit() | Ref() | Token():
                return expr
            case _:
                assert_never(expr)


class _CallingBook(RuleBook):
    """The rules of one automaton on their way into the network's book."""

    def __init__(self, network: _Network) -> None:
        super().__init__()
        self._network = network

    def reserve(self, hint: str) -> Ref:
        return self._network.book.reserve(hint)

    def define(self, ref: Ref, expr: Expr) -> Ref:
        return self._network.book.define(ref, self._network.spell(expr))

    def spelled(self, expr: Expr) -> Expr:
        return self._network.spell(expr)


class _Builder:
    """One unit's automaton, built backwards. A call at the unit's end is a move, any other one of a recursive rule a symbol."""

    def __init__(self, network: _Network, nfa: Nfa) -> None:
        self.network = network
        self.nfa = nfa
        self.entries: dict[tuple[str, int], int] = {}
        self.todo: list[tuple[str, int]] = []
        self.end = nfa.state()
        nfa.accepting.add(self.end)

    def run(self, unit: Expr) -> int:
        """The state before `unit`."""
        start = self.nfa.state(self._entry(unit.name, self.end) if isinstance(unit, Ref) else self._before(unit, self.end))
        rules = self.network.rules
        while self.todo:
            name, then = self.todo.pop()
            self.nfa.moves[self.entries[name, then]].append(self._before(rules[name], then))
        return start

    def _entry(self, name: str, then: int) -> int:
        """The state before rule `name` written out, with `then` after it."""
        if (name, then) not in self.entries:
            self.entries[name, then] = self.nfa.state()
            self.todo.append((name, then))
        return self.entries[name, then]

    def _before(self, expr: Expr, then: int) -> int:
        """The state before `expr`, with `then` after it."""
        match expr:
            case Lit(text):
                for char in reversed(text):
                    then = self.nfa.read(CharSet.of(char), then)
                return then
            case Chars(charset):
                return self.nfa.read(charset, then)
            case Token():
                return self.nfa.read(self.network.symbol(expr), then)
            case Ref(name):
                return self._before_rule(name, then)
            case Seq(items):
                for item in reversed(items):
                    then = self._before(item, then)
                return then
            case Alt(options):
                return self.nfa.state(*[self._before(option, then) for option in options])
            case Rep():
                return self._before_repetition(expr, then)
            case _:
                assert_never(expr)

    def _before_rule(self, name: str, then: int) -> int:
        network = self.network
        is_called = name in network.recursive or network.sizes[name] > network.max_size
        if then == self.end or not is_called:
            return self._entry(name, then)
        state = self.nfa.read(network.symbol(network.unit(Ref(name))), then)
        return self.nfa.state(state, then) if name in network.nullable else state

    def _before_repetition(self, node: Rep, then: int) -> int:
        low, high = node.min, node.max
        n_copies = low if high is None else high
        if n_copies > 1 and self.network.size(node) > self.network.max_size:
            return self._before_large(node, then)
        state = then
        if high is None:
            state = self.nfa.state(then)
            self.nfa.moves[state].append(self._before(node.item, state))
        else:
            for _ in range(high - low):
                state = self.nfa.state(self._before(node.item, state), then)
        for _ in range(low):
            state = self._before(node.item, state)
        return state

    def _before_large(self, node: Rep, then: int) -> int:
        """Counts that stay counts: their item becomes a unit of its own."""
        item = node.item if isinstance(node.item, (Chars, Token)) else self.network.unit(node.item)
        low = 0 if is_nullable(node.item, self.network.nullable) else node.min
        state = self.nfa.read(self.network.symbol(rep(item, max(low, 1), node.max)), then)
        return state if low else self.nfa.state(state, then)


def _refers_inside(expr: Expr, names: set[str], at_end: bool = True) -> bool:
    """Is there a reference to one of `names` in `expr` that something may follow?"""
    if isinstance(expr, Ref):
        return not at_end and expr.name in names
    if isinstance(expr, Seq):
        return any(_refers_inside(item, names, at_end and i == len(expr.items) - 1) for i, item in enumerate(expr.items))
    if isinstance(expr, Alt):
        return any(_refers_inside(option, names, at_end) for option in expr.options)
    return isinstance(expr, Rep) and _refers_inside(expr.item, names, at_end and expr.max == 1)
