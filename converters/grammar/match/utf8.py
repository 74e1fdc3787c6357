"""Half characters, read as llama.cpp reads them: a token may end inside one.

llama.cpp checks the bytes that continue a half character of the token before, and no others.
"""

from __future__ import annotations

from dataclasses import dataclass

_LENGTH_BY_HIGH_BITS = (1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 2, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Partial:
    """The bits of a character seen so far, and how many bytes of it are missing (1 to 3)."""

    value: int
    n_missing: int

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The code points that this can become, or None when it can only become an overlong form."""
        if self.n_missing == 1 and self.value < 2:
            return None
        low = self.value << (6 * self.n_missing)
        high = low | ((1 << (6 * self.n_missing)) - 1)
        if low == 0:
            low = {2: 1 << 11, 3: 1 << 16}.get(self.n_missing, 0)
        return low, high


def decode_piece(piece: bytes, before: Partial | None) -> tuple[list[int], Partial | None] | None:
    """The code points of a token's piece after the half character `before`, and the half character it ends in.

    None when llama.cpp refuses the piece whatever the grammar. Bytes after a NUL don't count.
    """
    data = piece.split(b"\0", 1)[0]
    if not data:
        return None
    points: list[int] = []
    at, n_missing, value = 0, 0, 0
    if before is not None:
        value, n_missing = before.value, before.n_missing
        while at < len(data) and n_missing:
            if data[at] >> 6 != 2:
                return None
            value = (value << 6) + (data[at] & 0x3F)
            at, n_missing = at + 1, n_missing - 1
        if not n_missing:
            points.append(value)
    while at < len(data):
        n_missing = _LENGTH_BY_HIGH_BITS[data[at] >> 4] - 1
        if n_missing < 0:
            return None
        value = data[at] & ((1 << (7 - n_missing)) - 1)
        at += 1
        while at < len(data) and n_missing:
            value = (value << 6) + (data[at] & 0x3F)
            at, n_missing = at + 1, n_missing - 1
        if not n_missing:
            points.append(value)
    return points, Partial(value, n_missing) if n_missing else None
