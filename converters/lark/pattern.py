"""Patterns joined from the parts of a terminal, with the places where their parts stood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from converters.errors import ConversionError, LimitExceeded, Position


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regex in our dialect. `sources`: (start in `text`, length, offset in the Lark source) of the pieces from there.

    `is_atom`: a quantifier after it takes all of it; `is_choice`: beside something else it needs a group.
    """

    text: str
    sources: tuple[tuple[int, int, int], ...] = ()
    is_atom: bool = False
    is_choice: bool = False

    def grouped(self) -> Pattern:
        """The same, as an atom."""
        return self if self.is_atom else _concatenated([Pattern("(?:"), self, Pattern(")")], is_atom=True)

    def source_offset(self, offset: int) -> int | None:
        """Where character `offset` of `text` stands in the Lark source."""
        for start, length, source in self.sources:
            if start <= offset < start + max(length, 1):
                return source
        return None


def join_sequence(parts: Sequence[Pattern]) -> Pattern:
    """One after the other."""
    if len(parts) == 1:
        return parts[0]
    return _concatenated([part.grouped() if part.is_choice else part for part in parts])


def join_choice(parts: Sequence[Pattern]) -> Pattern:
    """One of them."""
    if len(parts) == 1:
        return parts[0]
    bar = Pattern("|")
    return _concatenated([piece for part in parts for piece in (bar, part)][1:], is_choice=True)


def repeat(part: Pattern, low: int, high: int | None) -> Pattern:
    """`low` to `high` times."""
    match low, high:
        case 0, None:
            quantifier = "*"
        case 1, None:
            quantifier = "+"
        case 0, 1:
            quantifier = "?"
        case _:
            quantifier = f"{{{low},{'' if high is None else high}}}"
    return _concatenated([part.grouped(), Pattern(quantifier)])


def _concatenated(parts: Sequence[Pattern], *, is_atom: bool = False, is_choice: bool = False) -> Pattern:
    sources: list[tuple[int, int, int]] = []
    length = 0
    for part in parts:
        sources.extend((start + length, size, offset) for start, size, offset in part.sources)
        length += len(part.text)
    return Pattern("".join(part.text for part in parts), tuple(sources), is_atom, is_choice)


def placed(error: ConversionError, what: str, position: Position | None) -> ConversionError:
    """`error` of something that was compiled for `what`, with its place in the Lark source."""
    reason = error.reason if what in error.reason else f"{error.reason}, in {what}"
    if isinstance(error, LimitExceeded):
        return LimitExceeded(reason, limit=error.limit, value=error.value, path=error.path, position=position)
    return type(error)(reason, path=error.path, position=position)
