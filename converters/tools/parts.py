"""What a model's output consists of, told apart: content, reasoning, calls. The splitter yields these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thought before it answered."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """Call number `index` (from 0) is one of `name`, a name of the request's tools, byte for byte."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of the JSON text of the call's arguments; of a custom tool's call, more of its input. Joined, exactly that text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The call is over. `is_whole` is False when the text ended inside it, or went on as no call does."""

    index: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The text ended after the opening of a call and before its name was known. `text` is what there was of it."""

    text: str


Part: TypeAlias = ContentDelta | ReasoningDelta | CallStarted | ArgumentsDelta | CallEnded | Unfinished


def joined(parts: Iterable[Part]) -> list[Part]:
    """The same parts with neighbouring deltas of one kind made one: equal for every way of cutting the text."""
    result: list[Part] = []
    for part in parts:
        last = result[-1] if result else None
        if isinstance(part, (ContentDelta, ReasoningDelta, ArgumentsDelta)) and type(last) is type(part):
            assert isinstance(last, (ContentDelta, ReasoningDelta, ArgumentsDelta))
            result[-1] = replace(last, text=last.text + part.text)
        else:
            result.append(part)
    return result
