"""What llama.cpp does before the first token: it follows every way in which rules begin with rules, one by one."""

from __future__ import annotations

from converters.errors import LimitExceeded
from converters.grammar.expr import Grammar
from converters.grammar.passes.fixpoint import components, left_refs, nullable_rules

MAX_WAYS = 200_000
MAX_DEPTH = 5_000


def check_left_corners(grammar: Grammar) -> None:
    """Raise LimitExceeded when rules begin with rules in too many ways or too deep for llama.cpp's recursive check.

    `a ::= b "x" | b "y"; b ::= c "x" | c "y"; …` doubles with every rule, there and in the stacks that it keeps.
    """
    nullable = nullable_rules(grammar)
    graph = {name: left_refs(expr, nullable) for name, expr in grammar.rules.items()}
    ways: dict[str, int] = {}
    depth: dict[str, int] = {}
    for (name,) in components(graph):
        ways[name] = 1 + sum([ways[used] for used in graph[name]])
        depth[name] = 1 + max([depth[used] for used in graph[name]], default=0)
        if ways[name] > MAX_WAYS:
            reason = f"rule {name!r} can begin in more than {MAX_WAYS} ways"
            raise LimitExceeded(reason, limit="grammar_ambiguity", value=MAX_WAYS)
        if depth[name] > MAX_DEPTH:
            reason = f"rules begin with one another in a chain of more than {MAX_DEPTH}"
            raise LimitExceeded(reason, limit="grammar_nesting", value=MAX_DEPTH)
