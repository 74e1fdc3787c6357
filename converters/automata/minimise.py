"""Trimming and minimisation: the same language, fewer states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from converters.automata.dfa import Dfa
from converters.automata.reach import reachable

Rows = Sequence[Mapping[int, int]]


def trim(dfa: Dfa) -> Dfa:
    """Only states that are reached from the start and reach acceptance; the start stays."""
    if len(dfa.accepting) == len(dfa.rows):
        return dfa
    backward: list[list[int]] = [[] for _ in dfa.rows]
    for state, row in enumerate(dfa.rows):
        for target in set(row.values()):
            backward[target].append(state)
    alive = reachable(dfa.accepting, backward.__getitem__)
    if len(alive) == len(dfa.rows):
        return dfa
    return _renumber(dfa, alive | {0})


def _renumber(dfa: Dfa, kept: set[int]) -> Dfa:
    """`dfa` without the states outside `kept`, in breadth-first order from the start."""
    ids, order = {0: 0}, [0]
    rows: list[dict[int, int]] = []
    for state in order:
        row: dict[int, int] = {}
        for c, target in dfa.rows[state].items():
            if target not in kept:
                continue
            if target not in ids:
                ids[target] = len(order)
                order.append(target)
            row[c] = ids[target]
        rows.append(row)
    return Dfa(dfa.alphabet, tuple(rows), frozenset(ids[s] for s in dfa.accepting if s in ids))


def minimise(dfa: Dfa) -> Dfa:
    """The minimal DFA, states in breadth-first order. Expects a trimmed one.

    Acyclic automata are merged bottom-up in linear time, the others by Hopcroft's partition refinement (m log n).
    """
    if len(dfa.rows) == 1:
        return dfa
    order = topological(dfa.rows)
    blocks = _hopcroft(dfa) if order is None else _merge_bottom_up(dfa, order)
    return _quotient(dfa, blocks)


def topological(rows: Rows) -> list[int] | None:
    """States with every target before its sources; None when there is a cycle."""
    n_open = [len(set(row.values())) for row in rows]
    backward: list[list[int]] = [[] for _ in rows]
    for state, row in enumerate(rows):
        for target in set(row.values()):
            backward[target].append(state)
    order = [s for s, n in enumerate(n_open) if n == 0]
    for state in order:
        for source in backward[state]:
            n_open[source] -= 1
            if n_open[source] == 0:
                order.append(source)
    return order if len(order) == len(rows) else None


def _merge_bottom_up(dfa: Dfa, order: list[int]) -> list[int]:
    """The block of each state: equal rows over merged targets are one state."""
    blocks = [0] * len(dfa.rows)
    seen: dict[tuple[bool, frozenset[tuple[int, int]]], int] = {}
    for state in order:
        row = frozenset((c, blocks[t]) for c, t in dfa.rows[state].items())
        blocks[state] = seen.setdefault((state in dfa.accepting, row), len(seen))
    return blocks


def _hopcroft(dfa: Dfa) -> list[int]:
    """The block of each state. A missing transition is a dead state that no live one equals."""
    sources: list[list[tuple[int, int]]] = [[] for _ in dfa.rows]
    for state, row in enumerate(dfa.rows):
        for c, target in row.items():
            sources[target].append((c, state))
    members = [set(dfa.accepting), set(range(len(dfa.rows))) - dfa.accepting]
    members = [block for block in members if block]
    block_of = [0] * len(dfa.rows)
    for b, block in enumerate(members):
        for state in block:
            block_of[state] = b
    todo = set(range(len(members)))
    while todo:
        splitter = members[todo.pop()]
        by_class: dict[int, set[int]] = {}
        for target in splitter:
            for c, state in sources[target]:
                by_class.setdefault(c, set()).add(state)
        for states in by_class.values():
            _split(states, members, block_of, todo)
    return block_of


def _split(states: set[int], members: list[set[int]], block_of: list[int], todo: set[int]) -> None:
    """Tell `states` from the rest of each block that they are in."""
    touched: dict[int, list[int]] = {}
    for state in states:
        touched.setdefault(block_of[state], []).append(state)
    for b, inside in touched.items():
        block = members[b]
        if len(inside) == len(block):
            continue
        part = set(inside)
        if 2 * len(part) <= len(block):
            block -= part
        else:
            members[b], part = part, block - part
        new = len(members)
        members.append(part)
        for state in part:
            block_of[state] = new
        todo.add(new)


def _quotient(dfa: Dfa, blocks: list[int]) -> Dfa:
    """One state per block, in breadth-first order."""
    ids: dict[int, int] = {blocks[0]: 0}
    order = [0]
    rows: list[dict[int, int]] = []
    finals: set[int] = set()
    for new, state in enumerate(order):
        if state in dfa.accepting:
            finals.add(new)
        row: dict[int, int] = {}
        for c, target in dfa.rows[state].items():
            block = blocks[target]
            if block not in ids:
                ids[block] = len(order)
                order.append(target)
            row[c] = ids[block]
        rows.append(row)
    return Dfa(dfa.alphabet, tuple(rows), frozenset(finals))
