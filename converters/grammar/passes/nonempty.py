"""Expressions without the empty string: what may be repeated, and what left recursion is untangled with."""

from __future__ import annotations

from typing_extensions import assert_never

from converters.grammar.expr import EMPTY, Alt, Chars, Expr, Grammar, Lit, Ref, Rep, Seq, Token, alt, rep, seq
from converters.grammar.passes.ending import drop_endless, drop_unreachable
from converters.grammar.passes.fixpoint import is_nullable, nullable_rules
from converters.grammar.passes.look import look_of
from converters.grammar.passes.walk import FreshNames, below
from converters.limits import Budget

MAX_INLINE_RESTS = 8


def strip_nullable_items(grammar: Grammar, budget: Budget, nullable: set[str] | None = None) -> Grammar:
    """What is repeated never matches the empty string, and a repetition of a repetition is one.

    Before → after: `root ::= x{2,5} ("b"*)+; x ::= "" | "a"` → `root ::= "a"{0,5} "b"*`
    llama.cpp takes a nullable item under `*` for left recursion, and `("a"?){0,1000}` has an astronomic number of readings.
    `nullable`: the rules that match the empty string, where they are known.
    """
    if not any(look_of(expr).repeats for expr in grammar.rules.values()):
        return grammar
    maker = NonEmpty(grammar, nullable_rules(grammar, budget) if nullable is None else set(nullable))
    rules = {name: _strip(expr, maker) if look_of(expr).repeats else expr for name, expr in grammar.rules.items()}
    while made := maker.take():
        budget.check_deadline()
        rules.update({name: _strip(expr, maker) for name, expr in made.items()})
    if all(rules[name] is expr for name, expr in grammar.rules.items()):
        return grammar
    return drop_unreachable(drop_endless(Grammar(rules, grammar.root), budget), budget)


def _strip(expr: Expr, maker: NonEmpty) -> Expr:
    parts = below(expr)
    if not parts:
        return expr
    new: list[Expr] = []
    changed = False
    for part in parts:
        stripped = _strip(part, maker)
        changed = changed or stripped is not part
        new.append(stripped)
    if type(expr) is Rep:
        return _strip_repetition(expr if not changed else Rep(new[0], expr.min, expr.max), maker)
    if not changed:
        return expr
    return seq(*new) if type(expr) is Seq else alt(*new)


def _strip_repetition(node: Rep, maker: NonEmpty) -> Expr:
    if is_nullable(node.item, maker.nullable):
        if node.max == 1:  # not repeated, and what makes the item nullable may be this very place
            return node
        return collapse(rep(_strip(maker.of(node.item), maker), 0, node.max))
    return collapse(node)


def collapse(expr: Expr) -> Expr:
    """A repetition of a repetition as one, where the counts leave no gap.

    Before → after: `("a"{1,3}){0,100}` → `"a"{0,300}`; `("a"{2}){3}` → `"a"{6}`; `("a"{2})*` stays.
    """
    while type(expr) is Rep and type(expr.item) is Rep:
        inner, low, high = expr.item, expr.min, expr.max
        if inner.max is None:
            has_gap = low == 0 and inner.min > 1
        elif inner.min == inner.max and low == high:
            has_gap = False
        else:
            has_gap = (inner.min > 1) if low == 0 else (low + 1) * inner.min > low * inner.max + 1
        if has_gap:
            return expr
        most = None if inner.max is None or high is None else high * inner.max
        expr = rep(inner.item, low * inner.min, most)
    return expr


class NonEmpty:
    """Makes expressions for a language less the empty string. `take` gives the rules that they need."""

    def __init__(self, grammar: Grammar, nullable: set[str]) -> None:
        self.nullable = nullable
        self._pending: dict[str, Expr] = {}
        self._promised: list[str] = []
        self._rests: dict[str, Expr] = {}
        self._grammar = grammar
        self.names = FreshNames(grammar.rules)
        self._made: dict[str, Ref] = {}

    def define(self, name: str, made: Ref) -> None:
        """Let `made` be the nonempty form of rule `name`, defined elsewhere."""
        self._made[name] = made

    def take(self) -> dict[str, Expr]:
        """The rules promised since the last call; making them may promise more."""
        promised, self._promised = self._promised, []
        for name in promised:
            self._pending[self._made[name].name] = self.of(self._rests.get(name) or self._grammar.rules[name])
        taken, self._pending = self._pending, {}
        return taken

    def of(self, expr: Expr) -> Expr:
        """The sentences of `expr` that aren't empty."""
        if not is_nullable(expr, self.nullable):
            return expr
        match expr:
            case Ref(name):
                return self._of_rule(name)
            case Seq(items):
                return self._of_sequence(items)
            case Alt(options):
                return alt(*[self.of(option) for option in options])
            case Rep(item, _, high):
                return rep(self.of(item), 1, high)
            case Lit() | Chars() | Token():
                raise AssertionError("a terminal is never empty")
            case _:
                assert_never(expr)

    def _of_rule(self, name: str) -> Ref:
        if name not in self._made:
            self._made[name] = Ref(self.names.make(f"{name}-nonempty"))
            self._promised.append(name)
        return self._made[name]

    def _of_sequence(self, items: tuple[Expr, ...]) -> Expr:
        """One of the items is the first that isn't empty; what follows it may be."""
        rests = self.rests(items)
        return alt(*[seq(self.of(item), rest) for item, rest in zip(items, rests, strict=True)])

    def rests(self, items: tuple[Expr, ...]) -> list[Expr]:
        """For each item what follows it; long ones share rules, so that all together have the size of `items`."""
        rests: list[Expr] = []
        rest: Expr = EMPTY
        for item in reversed(items):
            rests.append(rest)
            rest = seq(item, rest)
            if type(rest) is Seq and len(rest.items) > MAX_INLINE_RESTS:
                ref = Ref(self.names.make("rest"))
                self._pending[ref.name] = self._rests[ref.name] = rest
                if is_nullable(rest, self.nullable):
                    self.nullable.add(ref.name)
                rest = ref
        return rests[::-1]
