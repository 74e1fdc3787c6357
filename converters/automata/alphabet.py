"""Compressed alphabets: character classes that a construction tells apart.

An alphabet is a tuple of disjoint character sets; a class is an index into it. Characters in no class have no transition.
Automata with different alphabets meet in their joint refinement. No states here.
"""

from __future__ import annotations

from collections.abc import Sequence

from converters.grammar.charset import CharSet

Alphabet = tuple[CharSet, ...]


def partition(sets: Sequence[CharSet]) -> tuple[Alphabet, list[tuple[int, ...]]]:
    """The coarsest alphabet in which every set is a union of classes, and the classes of each set.

    One sweep over the sorted ends of all ranges: n log n in their number.
    """
    toggles: dict[int, int] = {}
    for i, charset in enumerate(sets):
        bit = 1 << i
        for lo, hi in charset.ranges:
            toggles[lo] = toggles.get(lo, 0) ^ bit
            toggles[hi + 1] = toggles.get(hi + 1, 0) ^ bit
    groups = _group(toggles)
    members: list[list[int]] = [[] for _ in sets]
    for index, mask in enumerate(groups):
        while mask:
            low = mask & -mask
            members[low.bit_length() - 1].append(index)
            mask ^= low
    alphabet = tuple(CharSet(tuple(ranges)) for ranges in groups.values())
    return alphabet, [tuple(classes) for classes in members]


def _group(toggles: dict[int, int]) -> dict[int, list[tuple[int, int]]]:
    """Ranges by the sets (a bit mask) that hold them; characters of no set are left out."""
    groups: dict[int, list[tuple[int, int]]] = {}
    mask = start = 0
    for point in sorted(toggles):
        change = toggles[point]
        if not change:
            continue
        if mask:
            groups.setdefault(mask, []).append((start, point - 1))
        mask, start = mask ^ change, point
    return groups


def refine(a: Alphabet, b: Alphabet) -> tuple[Alphabet, list[tuple[int, int]]]:
    """The joint refinement of two alphabets, and for each of its classes the class in `a` and in `b` (-1: in none)."""
    if a == b:
        return a, [(i, i) for i in range(len(a))]
    joint, members = partition([*a, *b])
    of_a, of_b = [-1] * len(joint), [-1] * len(joint)
    for i, classes in enumerate(members):
        side, base = (of_a, 0) if i < len(a) else (of_b, len(a))
        for c in classes:
            side[c] = i - base
    return joint, list(zip(of_a, of_b, strict=True))


def union(alphabet: Alphabet, classes: Sequence[int]) -> CharSet:
    """The characters of `classes`."""
    if len(classes) == 1:
        return alphabet[classes[0]]
    return CharSet.from_ranges(r for c in classes for r in alphabet[c].ranges)
