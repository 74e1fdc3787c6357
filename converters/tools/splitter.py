"""Tells apart what a model writes: content, reasoning, calls. One splitter for every format, whole answers and streams.

    splitter = Splitter(CODECS["hermes"], tools)
    parts = splitter.feed("Let me see.\n<tool_") + splitter.feed('call>\n{"name": "now", "arguments": {}}') + splitter.finish()

The parts (neighbours joined) don't depend on how the text was cut. Text that only looks like the beginning of an opening is
held back until that is known. Whitespace before, between and after calls, and around reasoning, is nobody's content,
unless the reply is held by a constraint (`ReasoningMarkers.gap`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from converters.constraint import Tool
from converters.tools.codec import Codec, Opening
from converters.tools.parts import ContentDelta, Part, ReasoningDelta, Unfinished
from converters.tools.reader import Mismatch, Reader, Reading, TextEnded, n_held
from converters.tools.writer import CallWriter


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """What stands around a model's thinking. `is_inside`: the prompt has opened the block, the answer begins in it.

    gap: exactly what parts the end from an answer that a constraint holds, whose own whitespace counts; None: any whitespace.
    """

    start: str
    end: str
    is_inside: bool = False
    gap: str | None = None


class Splitter:
    """Feed it the text of one answer in any pieces, then `finish`; each returns the parts that are certain by then.

    Without a codec, or without tools, nothing is a call. Only names of `tools` make one: anything else stays content.
    """

    def __init__(self, codec: Codec | None, tools: Sequence[Tool] = (), reasoning: ReasoningMarkers | None = None) -> None:
        self._parts: list[Part] = []
        self._reader = Reader()
        self._writer = CallWriter(tools, self._reader, self._parts)
        self._codec = codec if tools else None
        self._reasoning = reasoning
        self._space = ""
        self._has_content = False
        self._parser = self._read()
        next(self._parser)

    @property
    def n_calls(self) -> int:
        """Calls that have ended."""
        return self._writer.n_calls

    def feed(self, text: str) -> list[Part]:
        """The next piece of the text."""
        self._reader.text += text
        return self._run()

    def finish(self) -> list[Part]:
        """The text is over."""
        self._reader.is_closed = True
        return self._run()

    def _run(self) -> list[Part]:
        next(self._parser, None)
        parts = self._parts[:]
        self._parts.clear()
        return parts

    # ---- the answer

    def _read(self) -> Reading[None]:
        yield
        if self._reasoning is not None:
            yield from self._read_reasoning(self._reasoning)
        yield from self._read_bare_calls()
        yield from self._read_answer()
        if self._space and (self._has_content or not self._writer.n_calls):  # content since the last call
            self._parts.append(ContentDelta(self._space))

    def _read_answer(self) -> Reading[None]:
        """Content, and the calls in it that have an opening of their own."""
        openings = [opening.text for opening in self._openings(is_at_start=False)]
        while (opening := (yield from self._read_content(openings))) is not None:
            yield from self._read_calls(opening)

    def _openings(self, is_at_start: bool) -> list[Opening]:
        return [o for o in self._codec.openings if o.is_at_start == is_at_start] if self._codec is not None else []

    def _read_content(self, openings: Sequence[str]) -> Reading[str | None]:
        """Content up to the next opening, which is kept and read; None: up to the end."""
        reader = self._reader
        while True:
            found = [(at, opening) for opening in openings if (at := reader.text.find(opening, reader.pos)) >= 0]
            if found:
                at, opening = min(found)
                self._content(reader.text[reader.pos : at])
                reader.pos = at
                reader.keep()
                reader.pos += len(opening)
                return opening
            end = len(reader.text) - (0 if reader.is_closed else n_held(reader.rest, openings))
            self._content(reader.text[reader.pos : end])
            reader.pos = end
            reader.forget()
            if not (yield from reader.more()):
                self._content(reader.rest)
                reader.pos = len(reader.text)
                return None

    def _read_bare_calls(self) -> Reading[None]:
        """Calls that only their place tells: at the start of the answer."""
        openings = self._openings(is_at_start=True)
        while openings and (yield from self._reader.takes_space()):
            self._space += self._reader.text[self._reader.pos - 1]
        for opening in openings:
            self._reader.keep()
            if (yield from self._reader.takes(opening.text)):
                return (yield from self._read_calls(opening.text))
            self._reader.commit()

    def _read_calls(self, opening: str) -> Reading[None]:
        """What follows an opening: calls, or content after all."""
        reader, writer = self._reader, self._writer
        assert self._codec is not None
        space, self._space = self._space, ""
        n_before = writer.n_calls
        try:
            yield from self._codec.read(opening, reader, writer)
            reader.commit()
            self._has_content = False
        except (Mismatch, TextEnded) as stop:
            was_open = writer.is_open
            if was_open:
                writer.end(is_whole=False)
            reader.go_back()
            if isinstance(stop, TextEnded):
                self._give_up(was_open)
            elif writer.n_calls > n_before:
                self._has_content = False
            else:
                self._space = space
                self._content(opening)
                reader.pos += len(opening)

    def _give_up(self, was_open: bool) -> None:
        """The text has ended inside a call, or before its name was known."""
        rest = self._reader.rest
        self._reader.pos = len(self._reader.text)
        if rest.strip() and not was_open:
            self._parts.append(Unfinished(rest))

    def _content(self, text: str) -> None:
        """Content; its last whitespace waits, for a call may follow."""
        if self._codec is None:
            self._emit(text)
            return
        body = text.rstrip()
        if body:
            self._emit(self._space + body)
            self._space = ""
        self._space += text[len(body) :]

    def _emit(self, text: str) -> None:
        if text:
            self._has_content = True
            self._parts.append(ContentDelta(text))

    # ---- reasoning

    def _read_reasoning(self, markers: ReasoningMarkers) -> Reading[None]:
        """The block at the start of the answer, if there is one."""
        reader = self._reader
        reader.keep()
        if not markers.is_inside and not (yield from reader.skips(markers.start)):
            reader.go_back()
            return
        reader.commit()
        yield from self._skip_space()
        space = ""
        while True:
            at = reader.text.find(markers.end, reader.pos)
            end = at if at >= 0 else len(reader.text) - (0 if reader.is_closed else n_held(reader.rest, (markers.end,)))
            space = self._think(space + reader.text[reader.pos : end])
            reader.pos = end
            reader.forget()
            if at >= 0:
                reader.pos += len(markers.end)
                return (yield from self._skip_gap(markers.gap))
            if not (yield from reader.more()) and not reader.rest:
                return

    def _think(self, text: str) -> str:
        """More reasoning; returns the whitespace at its end, which waits."""
        body = text.rstrip()
        if body:
            self._parts.append(ReasoningDelta(body))
        return text[len(body) :]

    def _skip_gap(self, gap: str | None) -> Reading[None]:
        if gap is None:
            yield from self._skip_space()
        elif not (yield from self._reader.takes(gap)) and self._reader.is_closed:
            self._reader.takes_begun(gap)

    def _skip_space(self) -> Reading[None]:
        while (yield from self._reader.takes_space()):
            pass
