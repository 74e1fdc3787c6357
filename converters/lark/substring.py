"""llguidance's `%regex {…}`: the joins of neighbouring chunks of a list, as an automaton."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from converters.automata.alphabet import partition
from converters.automata.dfa import Dfa
from converters.automata.minimise import minimise
from converters.automata.nfa import Nfa
from converters.constraint import JsonValue
from converters.errors import InvalidSource, UnsupportedFeature
from converters.grammar.charset import CharSet
from converters.limits import Budget

_KINDS = ("substring_chunks", "substring_words", "substring_chars")

_WHAT = "%regex"


def substring_dfa(spec: JsonValue, budget: Budget) -> Dfa:
    """The language of `%regex spec`: `"".join(chunks[n:m])` for any n and m.

    The errors that it raises have no place: the caller knows it.
    """
    assert isinstance(spec, Mapping)
    unknown = [name for name in spec if name not in _KINDS]
    if unknown:
        raise UnsupportedFeature(f"the key {unknown[0]!r} of %regex is not supported: only {', '.join(_KINDS)}")
    if len(spec) != 1:
        raise InvalidSource(f"%regex takes exactly one of {', '.join(_KINDS)}")
    ((kind, value),) = spec.items()
    return _dfa_of_chunks(_chunks(kind, value), budget)


def _chunks(kind: str, value: JsonValue) -> list[str]:
    if kind == "substring_chunks":
        if not isinstance(value, list) or not all(isinstance(chunk, str) for chunk in value):
            raise InvalidSource("substring_chunks takes a list of strings")
        return [chunk for chunk in value if chunk]
    if not isinstance(value, str):
        raise InvalidSource(f"{kind} takes a string")
    if kind == "substring_chars":
        return list(value)
    return ["".join(run) for _, run in groupby(value, key=_word_class)]


def _word_class(char: str) -> int:
    """Words, whitespace and the rest: a chunk of substring_words is a longest run of one of them."""
    return 0 if char.isspace() else 1 if char.isalnum() or char == "_" else 2


def _dfa_of_chunks(chunks: list[str], budget: Budget) -> Dfa:
    """The factor automaton over whole chunks, and these written out in characters."""
    rows = _factors(chunks, budget)
    if all(len(chunk) == 1 for chunk in chunks):
        letters = sorted(set(chunks))
        alphabet, members = partition([CharSet.of(letter) for letter in letters])
        class_of = {letter: members[i][0] for i, letter in enumerate(letters)}
        by_class = tuple({class_of[letter]: target for letter, target in row.items()} for row in rows)
        return minimise(Dfa(alphabet, by_class, frozenset(range(len(rows)))))
    nfa = Nfa(budget, _WHAT)
    states = [nfa.state() for _ in rows]
    nfa.accepting.update(states)
    for state, row in zip(states, rows, strict=True):
        for chunk, target in row.items():
            then = states[target]
            for char in reversed(chunk[1:]):
                then = nfa.read(CharSet.of(char), then)
            nfa.arcs[state].append((nfa.set_id(CharSet.of(chunk[0])), then))
    return nfa.determinize(states[0])


def _factors(word: list[str], budget: Budget) -> list[dict[str, int]]:
    """The suffix automaton of `word`, every state of it accepting: linear in its length (Blumer et al., 1985)."""
    rows: list[dict[str, int]] = [{}]
    lengths, links = [0], [-1]
    last = n_edges = 0
    for symbol in word:
        budget.tick()
        budget.check_automaton(len(rows), n_edges, _WHAT)
        new = len(rows)
        rows.append({})
        lengths.append(lengths[last] + 1)
        links.append(0)
        at = last
        while at >= 0 and symbol not in rows[at]:
            rows[at][symbol] = new
            n_edges += 1
            at = links[at]
        if at >= 0:
            target = rows[at][symbol]
            if lengths[target] > lengths[at] + 1:
                target = _cloned(rows, lengths, links, at, symbol)
                n_edges += len(rows[target])
            links[new] = target
        last = new
    return rows


def _cloned(rows: list[dict[str, int]], lengths: list[int], links: list[int], at: int, symbol: str) -> int:
    """A copy of the state that `symbol` leads to from `at`, for the shorter texts that lead there."""
    target, clone = rows[at][symbol], len(rows)
    rows.append(dict(rows[target]))
    lengths.append(lengths[at] + 1)
    links.append(links[target])
    links[target] = clone
    while at >= 0 and rows[at].get(symbol) == target:
        rows[at][symbol] = clone
        at = links[at]
    return clone
