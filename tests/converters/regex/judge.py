"""Texts in and near the language of a pattern, and what Python's `re` says of them."""

from __future__ import annotations

import random
import re

from converters.automata import Dfa, random_word

_STRAY = "aAbB0_- .\n\r\u2028@#$éßx1:/\t\u00a0😀"


def near(dfa: Dfa, rng: random.Random, n: int = 20, length: int = 10) -> list[str]:
    """About `n` different texts: words of the automaton, words changed at a place or two, and short ones."""
    texts = dict.fromkeys(["", "a", "ab", "\n", "0"])
    for _ in range(2 * n):
        word = random_word(dfa, rng, rng.randrange(length + 1)) or ""
        texts[word] = None
        texts[_changed(word, rng)] = None
        texts[_changed(_changed(word, rng), rng)] = None
        if len(texts) >= n + 5:
            break
    return [text for text in texts if "\0" not in text]  # no sampler can make a NUL


def _changed(text: str, rng: random.Random) -> str:
    at = rng.randint(0, len(text))
    stray = rng.choice(_STRAY)
    kind = rng.randrange(4)
    if kind == 0:
        return text[:at] + text[at + 1 :]
    if kind == 1:
        return text[:at] + stray + text[at + 1 :]
    if kind == 2:
        return text[:at] + text[at : at + 2][::-1] + text[at + 2 :]
    return text[:at] + stray + text[at:]


def matches(pattern: re.Pattern[str], mode: str, text: str) -> bool:
    """What `re` says."""
    return bool(pattern.search(text) if mode == "search" else pattern.fullmatch(text))
