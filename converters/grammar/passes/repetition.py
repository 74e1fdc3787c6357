"""Counted repetition, split so that llama.cpp reads it exactly and keeps few stacks.

llama.cpp takes a maximum above 2000 for none, refuses a minimum above it, and multiplies nested counts that stand in one
rule. So no printed count is larger than CHAIN, every counted item is one symbol, and larger counts become named blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_

from converters.errors import LimitExceeded
from converters.grammar.expr import EMPTY, Alt, Chars, Expr, Grammar, Lit, Ref, Rep, Seq, alt, rep, seq
from converters.grammar.passes.look import look_of
from converters.grammar.passes.symbol import SHARED, is_loop, is_symbol, needs_split
from converters.grammar.passes.walk import FreshNames
from converters.limits import Budget

CHAIN = 1000
"""The largest count that is printed as such: llama.cpp makes one rule of each optional item, and walks them one by one."""
CHAIN_OF_RULES = 1999
"""The same where a rule is repeated: in blocks it is read on two stacks, which double again wherever it contains itself."""
MAX_TOTAL = 200_000
"""What all printed counts may add up to: llama.cpp makes so many rules, for every sequence that it starts."""
BLOCK = 256
"""How many items make a block where a count is larger than CHAIN."""


def split_repetitions(grammar: Grammar, budget: Budget) -> Grammar:
    """Rewrite counts into what llama.cpp reads as it is meant.

    Before → after: `root ::= ("a" "b"?){0,2500}` →
        root ::= up-to-11
        up-to-11 ::= times up-to-10 | up-to-2    (and so on, 9 times, down to `up-to`, which takes the 196 that are left)
        times ::= item{256}
        up-to-2 ::= item{0,255}
        item ::= "a" "b"?
    One block is walked while the count may go on, beside one tail that may end at any item: two stacks, not 2500.
    """
    splitter = _Splitter(grammar)
    rules: dict[str, Expr] = {}
    for name, expr in grammar.rules.items():
        budget.check_deadline()
        rules[name] = splitter.split(expr) if look_of(expr).splits else expr
    _check_total(splitter.rules)
    if all(rules[name] is expr for name, expr in grammar.rules.items()):
        return grammar
    return Grammar({**rules, **splitter.rules}, grammar.root)


def _check_total(counted: Mapping[str, Expr]) -> None:
    total = sum([node.max or node.min for node in counted.values() if type(node) is Rep])
    if total > MAX_TOTAL:
        reason = f"the counts of the repetitions add up to {total}, more than {MAX_TOTAL}"
        raise LimitExceeded(reason, limit="repetition_total", value=MAX_TOTAL)


class _Splitter:
    def __init__(self, grammar: Grammar) -> None:
        self.rules: dict[str, Expr] = {}
        self._names = FreshNames(grammar.rules)
        self._made: dict[Expr, Expr] = {}

    def split(self, expr: Expr) -> Expr:
        if type(expr) is Rep:
            item = self.split(expr.item)
            node = expr if item is expr.item else Rep(item, expr.min, expr.max)
            return self._split_rep(node) if needs_split(node) else node
        if type(expr) is Seq:
            items = self._split_each(expr.items)
            return expr if items is expr.items else seq(*items)
        if type(expr) is Alt:
            options = self._split_each(expr.options)
            return expr if options is expr.options else alt(*options)
        return expr

    def _split_each(self, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """`split` of each; the same tuple when nothing changed."""
        new = [expr if type(expr) is Lit or type(expr) is Ref or type(expr) is Chars else self.split(expr) for expr in exprs]
        return exprs if all(map(is_, new, exprs)) else tuple(new)

    def _split_rep(self, node: Rep) -> Expr:
        if node.max == 1:  # `(x | "")` is one level for llama.cpp, `(x)?` is two
            return alt(node.item, EMPTY)
        if is_loop(node):
            return self._loop(node.item)
        item = node.item if is_symbol(node.item) else self._rule("item", node.item)
        required = self._exactly(item, node.min)
        if node.max is None:
            return seq(required, rep(item))
        return seq(required, self._up_to(item, node.max - node.min))

    def _loop(self, item: Expr) -> Expr:
        """`x*` as `more ::= x more | ""`: one level, where `(x)*` is two."""
        key = Rep(item, 0, None)
        found = self._made.get(key)
        if found is None:
            more = found = self._made[key] = Ref(self._names.make("more"))
            options = item.options if type(item) is Alt else (item,)
            self.rules[more.name] = alt(*[seq(option, more) for option in options], EMPTY)
        return found

    def _rule(self, hint: str, expr: Expr) -> Expr:
        """The rule for `expr`: equal expressions share one."""
        found = self._made.get(expr)
        if found is None:
            found = self._made[expr] = self._named(hint, expr)
        return found

    def _exactly(self, item: Expr, count: int) -> Expr:
        if count <= SHARED:
            return rep(item, count, count)
        if count <= BLOCK:
            return self._rule("times", Rep(item, count, count))
        block = self._rule("block", Rep(item, BLOCK, BLOCK))
        return seq(self._exactly(block, count // BLOCK), self._exactly(item, count % BLOCK))

    def _up_to(self, item: Expr, count: int) -> Expr:
        if count <= SHARED:
            return rep(item, 0, count)
        if count <= (CHAIN_OF_RULES if type(item) is Ref else CHAIN):
            return self._rule("up-to", Rep(item, 0, count))
        counted = Rep(item, 0, count)
        if counted not in self._made:
            self._made[counted] = self._blocks_up_to(item, count)
        return self._made[counted]

    def _blocks_up_to(self, item: Expr, count: int) -> Expr:
        """Whole blocks followed by less than a block; every count has one derivation, so no two stacks mean the same."""
        size = BLOCK
        while count // size >= BLOCK:
            size *= BLOCK
        block = self._exactly(item, size)
        tail = self._up_to(item, size - 1)
        blocks = self._up_to(item, count % size)
        for _ in range(count // size):
            blocks = self._named("up-to", alt(seq(block, blocks), tail))
        return blocks

    def _named(self, hint: str, expr: Expr) -> Ref:
        ref = Ref(self._names.make(hint))
        self.rules[ref.name] = expr
        return ref
