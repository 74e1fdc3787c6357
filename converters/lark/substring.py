"""llguidance's `%regex {…}`: the joins of neighbouring chunks of a list, as an automaton."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from converters.automata.alphabet import partition
from converters.automata.dfa import Dfa
from converters.automata.minimise import minimise, trim
from converters.constraint import JsonValue
from converters.errors import InvalidSource, UnsupportedFeature
from converters.grammar.charset import CharSet
from converters.limits import Budget

_KINDS = ("substring_chunks", "substring_words", "substring_chars")

_Place = tuple[int, int]  # a chunk, and how many of its characters are read


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
    """Subset construction over the places where a text can be in the list: every chunk can be the first."""
    letters = sorted({char for chunk in chunks for char in chunk})
    alphabet, members = partition([CharSet.of(char) for char in letters])
    class_of = {char: members[i][0] for i, char in enumerate(letters)}
    start = frozenset((i, 0) for i in range(len(chunks) + 1))
    ids: dict[frozenset[_Place], int] = {start: 0}
    subsets = [start]
    rows: list[dict[int, int]] = []
    n_edges = 0
    for places in subsets:
        row: dict[int, int] = {}
        for char, reached in _steps(chunks, places, budget):
            if reached not in ids:
                ids[reached] = len(subsets)
                subsets.append(reached)
            row[class_of[char]] = ids[reached]
        rows.append(row)
        n_edges += len(row)
        budget.check_automaton(len(subsets), n_edges, "%regex")
    accepting = frozenset(i for i, places in enumerate(subsets) if any(n_read == 0 for _, n_read in places))
    return minimise(trim(Dfa(alphabet, tuple(rows), accepting)))


def _steps(chunks: list[str], places: frozenset[_Place], budget: Budget) -> Iterator[tuple[str, frozenset[_Place]]]:
    """The places after each next character."""
    after: dict[str, set[_Place]] = {}
    for chunk, n_read in places:
        budget.tick()
        if chunk < len(chunks):
            is_whole = n_read + 1 == len(chunks[chunk])
            after.setdefault(chunks[chunk][n_read], set()).add((chunk + 1, 0) if is_whole else (chunk, n_read + 1))
    return ((char, frozenset(reached)) for char, reached in after.items())
