"""Which rules begin with which: where left recursion is, and what llama.cpp does before the first token.

llama.cpp follows every way in which rules begin with rules, one by one and by recursion.
"""

from __future__ import annotations

from dataclasses import dataclass

from converters.errors import LimitExceeded
from converters.grammar.expr import Grammar
from converters.grammar.passes.fixpoint import components, left_refs, nullable_rules
from converters.limits import Budget

MAX_WAYS = 50_000
MAX_DEPTH = 5_000


@dataclass(frozen=True, slots=True)
class LeftCorners:
    """The left-corner graph of a grammar: for each rule the rules that it may begin with, once for each place."""

    nullable: set[str]
    graph: dict[str, list[str]]
    parts: list[list[str]]

    @staticmethod
    def of(grammar: Grammar, budget: Budget, nullable: set[str] | None = None) -> LeftCorners:
        """The graph, and its strongly connected parts, each after those it leads to. `nullable`, where it is known already."""
        nullable = nullable_rules(grammar, budget) if nullable is None else nullable
        graph = {name: left_refs(expr, nullable) for name, expr in grammar.rules.items()}
        budget.check_deadline()
        return LeftCorners(nullable, graph, components(graph))

    @property
    def recursive_parts(self) -> list[list[str]]:
        """The sets of rules that begin with one another."""
        return [part for part in self.parts if len(part) > 1 or part[0] in self.graph[part[0]]]

    def check(self) -> None:
        """Raise LimitExceeded when rules (none left-recursive) begin with rules in too many ways or too deep for llama.cpp.

        `a ::= p "x" | q "y"; p ::= b "1"; q ::= b "2"; b ::= …` doubles with every such rule, there and in the stacks kept.
        """
        ways: dict[str, int] = {}
        depth: dict[str, int] = {}
        for (name,) in self.parts:
            first = self.graph[name]
            ways[name] = 1 + sum([ways[used] for used in first]) if first else 1
            depth[name] = 1 + max([depth[used] for used in first]) if first else 1
            if ways[name] > MAX_WAYS:
                reason = f"rule {name!r} can begin in more than {MAX_WAYS} ways"
                raise LimitExceeded(reason, limit="grammar_ambiguity", value=MAX_WAYS)
            if depth[name] > MAX_DEPTH:
                reason = f"rules begin with one another in a chain of more than {MAX_DEPTH}"
                raise LimitExceeded(reason, limit="grammar_nesting", value=MAX_DEPTH)
