"""A choice's text told apart: content, reasoning, calls. Between the engine's chunks and the events of every dialect."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from typing_extensions import assert_never

from converters.constraint import Tool
from converters.tools import parts
from converters.tools.codec import Codec
from converters.tools.splitter import ReasoningMarkers, Splitter
from server.chat.types import ArgumentsDelta, CallStarted, Event, ReasoningDelta, TextDelta, TokenLogprobs


def draw_call_id() -> str:
    """A call's id, unique as far as anybody can tell."""
    return f"call_{secrets.token_hex(12)}"


@dataclass(frozen=True, slots=True)
class TurnFormat:
    """What may stand in an answer beside content: calls of `tools` in the codec's form, and reasoning."""

    codec: Codec | None = None
    tools: tuple[Tool, ...] = ()
    reasoning: ReasoningMarkers | None = None

    @property
    def is_plain(self) -> bool:
        """Nothing but content."""
        return self.reasoning is None and (self.codec is None or not self.tools)


@dataclass(slots=True)
class Turn:
    """One choice of a format that isn't plain. `index` is its number in the whole answer."""

    index: int
    format: TurnFormat
    draw_id: Callable[[], str] = draw_call_id
    _splitter: Splitter = field(init=False)

    def __post_init__(self) -> None:
        self._splitter = Splitter(self.format.codec, self.format.tools, self.format.reasoning)

    def feed(self, text: str, logprobs: tuple[TokenLogprobs, ...] = ()) -> list[Event]:
        """The events of the next piece of text; its logprobs go with its content, or with an empty delta."""
        events = [event for part in self._splitter.feed(text) for event in self._events(part)]
        return [TextDelta(self.index, "", logprobs), *events] if logprobs else events

    def finish(self) -> list[Event]:
        """The events of what was held back; the text is over."""
        return [event for part in self._splitter.finish() for event in self._events(part)]

    def _events(self, part: parts.Part) -> list[Event]:
        match part:
            case parts.ContentDelta(text=text) | parts.Unfinished(text=text):
                return [TextDelta(self.index, text)]
            case parts.ReasoningDelta(text=text):
                return [ReasoningDelta(self.index, text)]
            case parts.CallStarted(index=call, name=name):
                is_custom = any(tool.name == name and tool.input is not None for tool in self.format.tools)
                return [CallStarted(self.index, call, self.draw_id(), name, is_custom)]
            case parts.ArgumentsDelta(index=call, text=text):
                return [ArgumentsDelta(self.index, call, text)]
            case parts.CallEnded():
                return []
            case _:
                assert_never(part)
