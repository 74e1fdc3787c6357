"""Texts full of special tokens, in parts: llama.cpp's own partition of a text takes time quadratic in their number.

20,000 of them, 250 KB, take it 20 seconds, and nothing can interrupt that. Cut in front of a special token, the parts have
the same tokens as the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_PER_PART = 256
_NEVER = re.compile(r"(?!)")


class SpecialCuts:
    """Cuts texts in front of special tokens, given by their texts."""

    def __init__(self, specials: Iterable[str]) -> None:
        longest_first = sorted({text for text in specials if text}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else _NEVER

    def parts(self, text: str, per_part: int = _PER_PART) -> Iterator[str]:
        """`text` in parts that each begin, but for the first, with a special token and have at most `per_part` of them."""
        begin = 0
        for number, match in enumerate(self._pattern.finditer(text)):
            if number and number % per_part == 0:
                yield text[begin : match.start()]
                begin = match.start()
        yield text[begin:]
