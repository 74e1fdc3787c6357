"""Tree to automaton: an NFA built backwards, then the subset construction; with assertions, the one of `assertion`."""

from __future__ import annotations

from typing_extensions import assert_never

from converters.automata import Dfa, Nfa, difference, intersection
from converters.grammar.charset import ANY
from converters.limits import Budget
from converters.regex.assertion import Guard, GuardedNfa, determinize
from converters.regex.edges import beside_any_text
from converters.regex.tree import At, Cat, Class, Look, Node, Or, Repeat, cat


def tree_dfa(node: Node, budget: Budget, what: str) -> Dfa:
    """The minimal automaton of the texts that `node` matches from end to end. `what` names the source in errors.

    Look-aheads at the start and look-behinds at the end are about the whole text: set algebra does them.
    """
    items: list[Node] = list(node.items) if isinstance(node, Cat) else [node]
    conditions: dict[Look, None] = {}
    while items and isinstance(first := items[0], Look) and not first.behind:
        conditions[first] = None
        del items[0]
    while items and isinstance(last := items[-1], Look) and last.behind:
        conditions[last] = None
        del items[-1]
    dfa = _plain_dfa(cat(items), budget, what)
    for look in conditions:
        texts = tree_dfa(beside_any_text(look.item, "left" if look.behind else "right"), budget, what)
        dfa = (difference if look.negated else intersection)(dfa, texts, budget, what)
    return dfa


def tree_nfa(node: Node, budget: Budget, what: str) -> tuple[Nfa, int] | None:
    """The automaton of `node` as it stands, and its start; None where assertions need another one."""
    builder = _Builder(budget, what)
    start = builder.build(node, builder.accept)
    return None if builder.guarded.guards else (builder.nfa, start)


def _plain_dfa(node: Node, budget: Budget, what: str) -> Dfa:
    builder = _Builder(budget, what)
    start = builder.build(node, builder.accept)
    if not builder.guarded.guards:
        return builder.nfa.determinize(start)
    return determinize(builder.guarded, start)


ANY_CHAR = Class(ANY)


class _Builder:
    """States for a tree, each built with the state that follows it."""

    def __init__(self, budget: Budget, what: str) -> None:
        self.nfa = Nfa(budget, what)
        self.accept = self.nfa.state()
        self.nfa.accepting.add(self.accept)
        self.guarded = GuardedNfa(self.nfa, success=self.nfa.state())

    def build(self, node: Node, then: int) -> int:
        """The state from which `node` and then what follows is read."""
        match node:
            case Class(chars):
                return self.nfa.read(chars, then) if chars else self.nfa.state()
            case Cat(items):
                for item in reversed(items):
                    then = self.build(item, then)
                return then
            case Or(options):
                return self.nfa.state(*[self.build(option, then) for option in options])
            case Repeat(item, low, high):
                return self.repeat(item, low, high, then)
            case At(anchor):
                return self.guard(Guard(anchor=anchor), then)
            case Look(item, behind, negated):
                start = self.build(item, self.guarded.success)
                if behind:
                    self.guarded.trackers.append(start)
                    return self.guard(Guard(tracker=len(self.guarded.trackers) - 1, negated=negated), then)
                return self.guard(Guard(ahead=start, negated=negated), then)
            case _:
                assert_never(node)

    def repeat(self, item: Node, low: int, high: int | None, then: int) -> int:
        """`item` `low` to `high` times, unrolled."""
        end = then
        if item == ANY_CHAR and low == 0 and high is None and then == self.accept:
            return self.nfa.any_text(then)
        if high is None:
            then = self.nfa.state(end)
            self.nfa.moves[then].append(self.build(item, then))
        else:
            for _ in range(high - low):
                then = self.nfa.state(self.build(item, then), end)
        for _ in range(low):
            then = self.build(item, then)
        return then

    def guard(self, guard: Guard, then: int) -> int:
        """A state that goes on to `then` where `guard` holds."""
        state = self.nfa.state()
        self.guarded.guards[state] = (guard, then)
        return state
