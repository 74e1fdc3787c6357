"""Properties of rules that depend on one another: computed for all rules at once, by a work list."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from converters.grammar.expr import Alt, Expr, Grammar, Ref, Rep, Seq
from converters.grammar.passes.look import look_of
from converters.limits import Budget

Holds = Callable[[Expr, set[str]], bool]
SWEEPS = 3
"""How often all rules are looked at before a work list pays."""


def least_set(rules: Mapping[str, Expr], holds: Holds, budget: Budget) -> set[str]:
    """The smallest set of rules such that a rule is in it when `holds(its expression, the set)`.

    `holds` must be monotone: a larger set never makes it false.
    """
    found: set[str] = set()
    todo = pending = list(rules)
    for _ in range(SWEEPS):
        budget.check_deadline()
        new = {name for name in todo if _found_now(name, rules, holds, found)}
        if not new:
            return found
        pending = [name for name in reversed(pending) if name not in found]  # what all share comes first, else users do
        todo = [name for name in pending if not new.isdisjoint(look_of(rules[name]).refs)]
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
        for used in look_of(rules[name]).refs:
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
    if type(expr) is Ref:
        return expr.name in nullable
    if type(expr) is Seq:
        for item in expr.items:  # noqa: SIM110 (twice as fast as `all`; this runs for every rule)
            if not is_nullable(item, nullable):
                return False
        return True
    if type(expr) is Alt:
        for option in expr.options:  # noqa: SIM110
            if is_nullable(option, nullable):
                return True
        return False
    return type(expr) is Rep and (expr.min == 0 or is_nullable(expr.item, nullable))


def ending_rules(grammar: Grammar, budget: Budget) -> set[str]:
    """The rules that have a sentence at all."""
    return least_set(grammar.rules, _rule_can_end, budget)


def _rule_can_end(expr: Expr, ending: set[str]) -> bool:
    """Most rules refer only to such rules, and have no NEVER in them."""
    look = look_of(expr)
    return (look.is_plain and ending.issuperset(look.refs)) or can_end(expr, ending)


def can_end(expr: Expr, ending: set[str]) -> bool:
    """True when `expr` has a sentence, if only the rules in `ending` have any."""
    if type(expr) is Ref:
        return expr.name in ending
    if type(expr) is Seq:
        for item in expr.items:  # noqa: SIM110
            if not can_end(item, ending):
                return False
        return True
    if type(expr) is Alt:
        for option in expr.options:  # noqa: SIM110
            if can_end(option, ending):
                return True
        return False
    return type(expr) is not Rep or expr.min == 0 or can_end(expr.item, ending)


def left_refs(expr: Expr, nullable: set[str]) -> list[str]:
    """The rules that a sentence of `expr` may begin with, once for every place where they stand."""
    look = look_of(expr)
    if nullable.isdisjoint(look.refs):
        if look.left is None:
            look.left = tuple(_left_refs(expr, set()))
        return list(look.left)
    return _left_refs(expr, nullable)


def _left_refs(expr: Expr, nullable: set[str]) -> list[str]:
    found: list[str] = []
    _collect_left_refs(expr, nullable, found)
    return found


def _collect_left_refs(expr: Expr, nullable: set[str], found: list[str]) -> None:
    if type(expr) is Ref:
        found.append(expr.name)
    elif type(expr) is Seq:
        for item in expr.items:
            _collect_left_refs(item, nullable, found)
            if not is_nullable(item, nullable):
                return
    elif type(expr) is Alt:
        for option in expr.options:
            _collect_left_refs(option, nullable, found)
    elif type(expr) is Rep:
        _collect_left_refs(expr.item, nullable, found)


def reached_from(names: Iterable[str], rules: Mapping[str, Expr], budget: Budget) -> set[str]:
    """`names` and all rules that they lead to."""
    reached = set(names)
    todo = list(reached)
    while todo:
        budget.tick()
        new = look_of(rules[todo.pop()]).refs - reached
        reached |= new
        todo.extend(new)
    return reached


def recursive_parts(rules: Mapping[str, Expr]) -> dict[str, frozenset[str]]:
    """Each rule that leads back to itself, with all that do so together."""
    graph = {name: look_of(expr).refs for name, expr in rules.items()}
    parts: dict[str, frozenset[str]] = {}
    for component in components(graph):
        if len(component) > 1 or component[0] in graph[component[0]]:
            parts |= dict.fromkeys(component, frozenset(component))
    return parts


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
