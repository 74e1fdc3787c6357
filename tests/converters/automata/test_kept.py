"""Automata that are kept: made once, forgotten in their order, never more than allowed."""

from __future__ import annotations

from converters.automata import Dfa, of_length
from converters.automata.kept import KeptAutomata


def test_made_once_and_forgotten_in_order() -> None:
    kept, made = KeptAutomata(max_states=100), list[int]()

    def get(n: int) -> Dfa:
        def make() -> Dfa:
            made.append(n)
            return of_length(n, n)

        return kept.get(n, make)

    for n in (9, 8, 9, 8):
        assert get(n).accepts("x" * n)
    assert made == [9, 8]
    for n in range(9):
        get(n)
        get(9)  # used again and again, so it stays
    assert made.count(9) == 1
    assert kept.n_states <= 100


def test_a_large_one_is_not_kept() -> None:
    kept = KeptAutomata(max_states=100)
    large = of_length(20, 20)
    assert kept.get("large", lambda: large) is large
    assert kept.n_states == 0
