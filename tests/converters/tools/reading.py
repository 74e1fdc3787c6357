"""How the tests here read a model's output: through the splitter, whole or cut, to parts and to calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from converters.constraint import Tool
from converters.tools.codecs import CODECS
from converters.tools.parts import ArgumentsDelta, CallEnded, CallStarted, ContentDelta, Part, joined
from converters.tools.splitter import ReasoningMarkers, Splitter


def read(
    codec: str | None, tools: Sequence[Tool], pieces: Iterable[str], reasoning: ReasoningMarkers | None = None
) -> list[Part]:
    """The parts of a text that comes in pieces, neighbours joined."""
    splitter = Splitter(CODECS[codec] if codec is not None else None, tools, reasoning)
    parts: list[Part] = []
    for piece in pieces:
        parts += splitter.feed(piece)
    return joined([*parts, *splitter.finish()])


@dataclass(frozen=True, slots=True)
class ReadCall:
    name: str
    arguments: str
    is_whole: bool


def calls_of(parts: Iterable[Part]) -> list[ReadCall]:
    """The calls, checked to come in order and one after the other."""
    calls: list[ReadCall] = []
    name = ""
    pieces: list[str] = []
    for part in parts:
        match part:
            case CallStarted(index, name):
                assert index == len(calls)
                pieces = []
            case ArgumentsDelta(index, text):
                assert index == len(calls)
                pieces.append(text)
            case CallEnded(index, is_whole):
                assert index == len(calls)
                calls.append(ReadCall(name, "".join(pieces), is_whole))
            case _:
                pass
    return calls


def content_of(parts: Iterable[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, ContentDelta))


def value_of(arguments: str) -> Any:
    """The value of a JSON text, numbers of any size told apart by value: 1e999 is an integer."""
    return json.loads(arguments, parse_float=_number)


def _number(text: str) -> int | float:
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() else float(number)
