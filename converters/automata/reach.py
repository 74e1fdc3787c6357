"""What can be reached in a graph, which is given by the ways on from each of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def reachable(starts: Iterable[Node], ways: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """`starts`, and every node that `ways` lead to from there."""
    seen = set(starts)
    todo = list(seen)
    while todo:
        for node in ways(todo.pop()):
            if node not in seen:
                seen.add(node)
                todo.append(node)
    return seen
