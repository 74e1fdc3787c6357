"""Properties of rules that depend on one another: computed for all rules at once, by a work list."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from converters.grammar.expr import Alt, Expr, Grammar, Ref, Rep, Seq
from converters.grammar.passes.walk import refs
from converters.limits import Budget

Holds = Callable[[Expr, set[str]], bool]
Known: TypeAlias = "Mapping[str, list[str]] | None"
"""The rules that each rule of a grammar refers to, when a `Survey` has been made."""
SWEEPS = 3
"""How often all rules are looked at before a work list pays."""


def least_set(rules: Mapping[str, Expr], holds: Holds, budget: Budget, sure: set[str] | None = None) -> set[str]:
    """The smallest set of rules such that a rule is in it when `holds(its expression, the set)`; those in `sure` are in it.

    `holds` must be monotone: a larger set never makes it false.
    """
    found = sure or set()
    pending = [name for name in reversed(list(rules)) if name not in found]  # rules tend to come after those that use them
    for _ in range(SWEEPS):
        budget.check_deadline()
        left = [name for name in pending if not _found_now(name, rules, holds, found)]
        if len(left) == len(pending):
            return found
        pending = left
    _finish(rules, holds, found, pending, budget)
    return found


def _found_now(name: str, rules: Mapping[str, Expr], holds: Holds, found: set[str]) -> bool:
    is_member = holds(rules[name], found)
    if is_member:
        found.add(name)
    return is_member


def _finish(rules: Mapping[str, Expr], holds: Holds, found: set[str], pending: list[str], budget: Budget) -> None:
    """By a work list: each rule is looked at again only when one that it refers to has been found."""
    used_by: dict[str, list[str]] = {name: [] for name in rules}
    for name in pending:
        for used in set(refs(rules[name])):
            used_by[used].append(name)
    todo = deque(pending)
    while todo:
        budget.tick()
        name = todo.popleft()
        if name not in found and holds(rules[name], found):
            found.add(name)
            todo.extend([user for user in used_by[name] if user not in found])


def nullable_rules(grammar: Grammar, budget: Budget) -> set[str]:
    """The rules that match the empty string."""
    return least_set(grammar.rules, is_nullable, budget)


def is_nullable(expr: Expr, nullable: set[str]) -> bool:
    """True when `expr` matches the empty string, if the rules in `nullable` do."""
    if isinstance(expr, Ref):
        return expr.name in nullable
    if isinstance(expr, Seq):
        return all(is_nullable(item, nullable) for item in expr.items)
    if isinstance(expr, Alt):
        return any(is_nullable(option, nullable) for option in expr.options)
    return isinstance(expr, Rep) and (expr.min == 0 or is_nullable(expr.item, nullable))


def ending_rules(grammar: Grammar, budget: Budget, known: Known = None) -> set[str]:
    """The rules that have a sentence at all: first those that refer only to such rules and have no NEVER in them."""
    sure: set[str] = set()
    if known is not None:
        for name in reversed(list(known)):
            if sure.issuperset(known[name]):
                sure.add(name)
        if len(sure) == len(grammar.rules):
            return sure
    return least_set(grammar.rules, can_end, budget, sure)


def can_end(expr: Expr, ending: set[str]) -> bool:
    """True when `expr` has a sentence, if only the rules in `ending` have any."""
    if isinstance(expr, Ref):
        return expr.name in ending
    if isinstance(expr, Seq):
        return all(can_end(item, ending) for item in expr.items)
    if isinstance(expr, Alt):
        return any(can_end(option, ending) for option in expr.options)
    return not isinstance(expr, Rep) or expr.min == 0 or can_end(expr.item, ending)


def left_refs(expr: Expr, nullable: set[str]) -> list[str]:
    """The rules that a sentence of `expr` may begin with, once for every place where they stand."""
    found: list[str] = []
    _collect_left_refs(expr, nullable, found)
    return found


def _collect_left_refs(expr: Expr, nullable: set[str], found: list[str]) -> None:
    if isinstance(expr, Ref):
        found.append(expr.name)
    elif isinstance(expr, Seq):
        for item in expr.items:
            _collect_left_refs(item, nullable, found)
            if not is_nullable(item, nullable):
                return
    elif isinstance(expr, Alt):
        for option in expr.options:
            _collect_left_refs(option, nullable, found)
    elif isinstance(expr, Rep):
        _collect_left_refs(expr.item, nullable, found)


def components(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components of `graph`, each after those it leads to (Tarjan's algorithm, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    found: list[list[str]] = []
    for start in graph:
        if start in index:
            continue
        index[start] = low[start] = len(index)
        path.append(start)
        on_path.add(start)
        work = [(start, iter(graph[start]))]
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    path.append(successor)
                    on_path.add(successor)
                    work.append((successor, iter(graph[successor])))
                    break
                if successor in on_path:
                    low[node] = min(low[node], index[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found.append(_take_component(path, on_path, node))
    return found


def _take_component(path: list[str], on_path: set[str], root: str) -> list[str]:
    component: list[str] = []
    while not component or component[-1] != root:
        component.append(path.pop())
        on_path.discard(component[-1])
    return component
