"""Automata that are kept: made once, forgotten in their order, never more than allowed."""

from __future__ import annotations

from threading import Barrier, Thread

from converters.automata import Dfa, of_length, of_string
from converters.automata.kept import Kept, kept_automata


def test_made_once() -> None:
    kept, made = kept_automata(max_size=120), list[int]()

    def get(n: int) -> Dfa:
        def make() -> Dfa:
            made.append(n)
            return of_length(n, n)

        return kept.get(n, make)

    for n in (9, 8, 9, 8):
        assert get(n).accepts("x" * n)
    assert made == [9, 8]
    assert 0 < kept.size <= 120


def test_what_was_not_asked_for_longest_is_forgotten() -> None:
    kept, made = kept_automata(max_size=50), list[str]()

    def get(text: str) -> None:
        def make() -> Dfa:
            made.append(text)
            return of_string(text)

        kept.get(text, make)

    words = [a + b for a in "abcdef" for b in "uvwxyz"]
    for word in words:
        get(word)
        get("zz")  # used again and again, so it stays
    assert 0 < kept.size <= 50
    get(words[-1])
    get(words[0])
    assert made == [words[0], "zz", *words[1:], words[0]]


def test_a_large_one_is_not_kept() -> None:
    kept = kept_automata(max_size=100)
    large = of_length(20, 20)
    assert kept.get("large", lambda: large) is large
    assert kept.size == 0
    wide = of_string("".join(map(chr, range(40, 100))))
    assert wide.n_states > 50
    kept.get("wide", lambda: wide)
    assert kept.size == 0


def test_two_threads_that_make_the_same_one_count_it_once() -> None:
    kept, both_make = kept_automata(max_size=100), Barrier(2, timeout=30)

    def make() -> Dfa:
        both_make.wait()
        return of_length(5, 5)

    threads = [Thread(target=kept.get, args=("five", make)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = kept_automata(max_size=100)
    alone.get("five", lambda: of_length(5, 5))
    assert kept.size == alone.size > 0


def test_anything_can_be_kept_by_its_size() -> None:
    kept = Kept[str](max_size=100, size_of=len)
    for n in range(30):
        assert kept.get(n, lambda n=n: str(n) * 4) == str(n) * 4  # type: ignore[misc]
        assert kept.size <= 100
    assert kept.get("long", lambda: "x" * 11) == "x" * 11
    assert kept.get("long", lambda: "y" * 11) == "y" * 11  # more than a tenth is made again
