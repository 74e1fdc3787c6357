"""Left recursion turned into right recursion: direct, indirect, and hidden behind what may be empty.

Rules that begin with one another form a left-linear system A_i = A_1 t_1i | … | A_n t_ni | b_i. A sentence of A_i starts with
some b_j and then grows by tails until it is an A_i, so with C_ji for "what an A_j still needs to become an A_i":

    A_i ::= b_1 C_1i | … | b_n C_ni        C_ji ::= t_jk C_ki | … | (nothing, when j = i)

All of it is done for the sentences that aren't empty, so that neither b nor t can hide a recursion again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from converters.errors import UnsupportedFeature
from converters.grammar.expr import EMPTY, NEVER, Alt, Chars, Expr, Grammar, Lit, Ref, Rep, Seq, alt, rep, seq
from converters.grammar.passes.corners import LeftCorners
from converters.grammar.passes.fixpoint import is_nullable, left_refs
from converters.grammar.passes.nonempty import NonEmpty
from converters.limits import Budget

MAX_RULES = 60
MAX_ROUNDS = 8


def remove_left_recursion(grammar: Grammar, budget: Budget) -> Grammar:
    """No rule begins with itself. Raises UnsupportedFeature, naming a rule, when that would take too many rules.

    Before → after: `root ::= root "a" | "b"` → `root ::= "b" "a"*`
    """
    for _ in range(MAX_ROUNDS):
        corners = LeftCorners.of(grammar, budget)
        recursive = corners.recursive_parts
        if not recursive:
            return grammar
        if max(map(len, recursive)) > MAX_RULES:
            raise _unsupported(max(recursive, key=len))
        maker = NonEmpty(grammar, corners.nullable)
        rules = dict(grammar.rules)
        systems = [_Untangling(part, grammar, maker, rules) for part in recursive]  # one may need the names of another
        for system in systems:
            budget.check_deadline()
            system.run()
        while made := maker.take():
            budget.check_deadline()
            rules.update(made)
        grammar = Grammar(rules, grammar.root)
    raise _unsupported(recursive[0])


def _unsupported(rules: list[str]) -> UnsupportedFeature:
    return UnsupportedFeature(f"rule {min(rules)!r} is left-recursive in a way that can't be rewritten within bounds")


@dataclass(slots=True)
class _Equation:
    """A_i: the tails by the rule they follow, and the sentences that begin with no rule of the system."""

    tails: dict[str, list[Expr]] = field(default_factory=dict)
    solid: Expr = NEVER


class _Untangling:
    """One strongly connected part of the left-corner graph."""

    def __init__(self, part: list[str], grammar: Grammar, maker: NonEmpty, rules: dict[str, Expr]) -> None:
        self.part = sorted(part, key=list(grammar.rules).index)
        self.members = set(part)
        self.grammar = grammar
        self.maker = maker
        self.rules = rules
        self.nonempty = {name: self._nonempty_ref(name) for name in self.part}

    def _nonempty_ref(self, name: str) -> Ref:
        if name not in self.maker.nullable:
            return Ref(name)
        ref = Ref(self.maker.names.make(f"{name}-nonempty"))
        self.maker.define(name, ref)
        return ref

    def run(self) -> None:
        equations = {name: self._equation(name) for name in self.part}
        for name, ref in self.nonempty.items():
            if ref.name != name:
                self.rules[name] = alt(ref, EMPTY)
        if len(self.part) == 1:
            self._solve_one(equations[self.part[0]])
        else:
            self._solve(equations)

    def _solve_one(self, equation: _Equation) -> None:
        """A ::= b t*. Where a tail ends with A itself, its b does: what A takes beyond that, the repetition takes as well.

        Before → after: `e ::= e "+" e | "1"` → `e ::= "1" ("+" "1")*`, not the ambiguous `"1" ("+" e)*`
        """
        (name,) = self.part
        solid = self.maker.of(equation.solid)
        tails = equation.tails.get(name, [])
        if any(_replace_last(tail, name, EMPTY) != tail for tail in tails):
            solid = self._named("start", solid)
            last = alt(solid, EMPTY) if name in self.maker.nullable else solid
            tails = [_replace_last(tail, name, last) for tail in tails]
        self.rules[self.nonempty[name].name] = seq(solid, rep(alt(*[self.maker.of(tail) for tail in tails])))

    def _solve(self, equations: dict[str, _Equation]) -> None:
        solids = {name: self._named("start", self.maker.of(equation.solid)) for name, equation in equations.items()}
        steps, same = self._steps(equations)
        needs: dict[tuple[str, str], Ref] = {}
        for i in self.part:
            for j in self.part:
                needs[j, i] = Ref(self.maker.names.make(f"{i}-after-{j}"))
        for (j, i), ref in needs.items():
            options = [seq(tail, needs[k, i]) for via in same[j] for tail, k in steps[via]]
            self.rules[ref.name] = alt(*options, *([EMPTY] if i in same[j] else []))
        for i in self.part:
            self.rules[self.nonempty[i].name] = alt(*[seq(solids[j], needs[j, i]) for j in self.part])

    def _steps(self, equations: dict[str, _Equation]) -> tuple[dict[str, list[tuple[Expr, str]]], dict[str, list[str]]]:
        """By rule: the tails that make it another, and all that it is already, as it stands (itself among them)."""
        steps: dict[str, list[tuple[Expr, str]]] = {name: [] for name in self.part}
        direct: dict[str, set[str]] = {name: set() for name in self.part}
        for i, equation in equations.items():
            for j, tails in equation.tails.items():
                step = alt(*[self.maker.of(tail) for tail in tails])
                if step != NEVER:
                    steps[j].append((self._named("tail", step), i))
                if any(is_nullable(tail, self.maker.nullable) for tail in tails):
                    direct[j].add(i)
        return steps, {name: _closure(name, direct) for name in self.part}

    def _named(self, hint: str, expr: Expr) -> Expr:
        if isinstance(expr, (Ref, Chars)) or expr == NEVER or (isinstance(expr, Lit) and len(expr.text) < 8):
            return expr
        ref = Ref(self.maker.names.make(hint))
        self.rules[ref.name] = expr
        return ref

    # ---- equations

    def _equation(self, name: str) -> _Equation:
        equation = _Equation()
        tails, equation.solid = self._split(self.grammar.rules[name])
        for head, tail in tails:
            equation.tails.setdefault(head, []).append(tail)
        return equation

    def _split(self, expr: Expr) -> tuple[list[tuple[str, Expr]], Expr]:
        """`expr` as (rule of the system, tail) pairs, and the sentences that begin with none; a head stands for the nonempty
        sentences of its rule."""
        if self.members.isdisjoint(left_refs(expr, self.maker.nullable)):
            return [], expr
        if isinstance(expr, Ref):
            return [(expr.name, EMPTY)], EMPTY if expr.name in self.maker.nullable else NEVER
        if isinstance(expr, Alt):
            split = [self._split(option) for option in expr.options]
            return [pair for pairs, _ in split for pair in pairs], alt(*[solid for _, solid in split])
        if isinstance(expr, Rep):
            rest = rep(expr.item, max(expr.min - 1, 0), None if expr.max is None else expr.max - 1)
            pairs, solid = self._split(seq(expr.item, rest))
            return pairs, alt(solid, EMPTY) if expr.min == 0 else solid
        assert isinstance(expr, Seq)
        return self._split_sequence(expr)

    def _split_sequence(self, expr: Seq) -> tuple[list[tuple[str, Expr]], Expr]:
        """Item by item, as long as those before may be empty."""
        pairs: list[tuple[str, Expr]] = []
        solids: list[Expr] = []
        for item, rest in zip(expr.items, self.maker.rests(expr.items), strict=True):
            heads, solid = self._split(item)
            pairs.extend([(head, seq(tail, rest)) for head, tail in heads])
            if not is_nullable(solid, self.maker.nullable):
                return pairs, alt(*solids, seq(solid, rest))
            solids.append(seq(self.maker.of(solid), rest))
        return pairs, alt(*solids, EMPTY)


def _replace_last(expr: Expr, name: str, last: Expr) -> Expr:
    """`expr` with `last` in the place of rule `name` wherever that ends it."""
    if isinstance(expr, Ref):
        return last if expr.name == name else expr
    if isinstance(expr, Seq) and expr.items:
        return seq(*expr.items[:-1], _replace_last(expr.items[-1], name, last))
    if isinstance(expr, Alt):
        return alt(*[_replace_last(option, name, last) for option in expr.options])
    if isinstance(expr, Rep) and expr.max == 1:
        return rep(_replace_last(expr.item, name, last), expr.min, 1)
    return expr


def _closure(start: str, direct: dict[str, set[str]]) -> list[str]:
    reached = {start: None}
    todo = [start]
    while todo:
        for name in sorted(direct[todo.pop()]):
            if name not in reached:
                reached[name] = None
                todo.append(name)
    return list(reached)
