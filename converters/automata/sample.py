"""Words of a language: the shortest, random ones, all of them, how many. All expect a trimmed automaton."""

from __future__ import annotations

import random
from collections.abc import Iterator

from converters.automata.dfa import Dfa
from converters.automata.minimise import topological
from converters.grammar.charset import CharSet

_PRINTABLE = CharSet.span(0x20, 0x7E)


def distances(dfa: Dfa) -> list[int]:
    """For each state, how many characters at least are missing to a whole word."""
    backward: list[list[int]] = [[] for _ in dfa.rows]
    for state, row in enumerate(dfa.rows):
        for target in set(row.values()):
            backward[target].append(state)
    distance = [-1] * dfa.n_states
    queue = list(dfa.accepting)
    for state in queue:
        distance[state] = 0
    for state in queue:
        for source in backward[state]:
            if distance[source] < 0:
                distance[source] = distance[state] + 1
                queue.append(source)
    return distance


def shortest(dfa: Dfa) -> str | None:
    """A shortest word, printable ASCII where it can be; None for the empty language."""
    if dfa.is_empty():
        return None
    distance = distances(dfa)
    state = 0
    text: list[str] = []
    while state not in dfa.accepting:
        steps = [(c, t) for c, t in dfa.rows[state].items() if distance[t] == distance[state] - 1]
        c, state = min(steps, key=lambda step: not dfa.alphabet[step[0]] & _PRINTABLE)
        chars = dfa.alphabet[c]
        text.append(chr((chars & _PRINTABLE or chars).first))
    return "".join(text)


def random_word(dfa: Dfa, rng: random.Random, target_length: int = 20) -> str | None:
    """A random word that turns home after about `target_length` characters; None for the empty language."""
    if dfa.is_empty():
        return None
    distance = distances(dfa)
    state = 0
    text: list[str] = []
    while True:
        if state in dfa.accepting and (len(text) >= target_length or not dfa.rows[state] or rng.random() < 0.1):
            return "".join(text)
        steps = list(dfa.rows[state].items())
        if len(text) >= target_length:
            steps = [(c, t) for c, t in steps if distance[t] < distance[state]]
        c, state = rng.choice(steps)
        text.append(_random_char(dfa.alphabet[c], rng))


def _random_char(chars: CharSet, rng: random.Random) -> str:
    pool = chars
    if rng.random() < 0.7:
        pool = chars & _PRINTABLE or chars
    lo, hi = rng.choice(pool.ranges)
    return chr(rng.randint(lo, hi))


def count(dfa: Dfa) -> int | None:
    """How many words; None when there is no end of them."""
    order = topological(dfa.rows)
    if order is None:
        return None
    sizes = [len(chars) for chars in dfa.alphabet]
    totals = [0] * dfa.n_states
    for state in order:
        own = 1 if state in dfa.accepting else 0
        totals[state] = own + sum(sizes[c] * totals[t] for c, t in dfa.rows[state].items())
    return totals[0]


def words(dfa: Dfa) -> Iterator[str]:
    """Every word: shorter before longer, then by code point. Without end for an infinite language."""
    level: list[tuple[str, int]] = [("", 0)]
    while level:
        yield from (text for text, state in level if state in dfa.accepting)
        level = [
            (text + chr(point), target)
            for text, state in level
            for point, target in sorted((p, t) for c, t in dfa.rows[state].items() for p in dfa.alphabet[c])
        ]
