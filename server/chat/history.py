"""Pieces of an assistant's turn -> whole messages, for dialects in which reasoning, text and calls are entries of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from server.chat.types import Message

_THOUGHT, _TEXT, _CALLS = range(3)


def join_pieces(pieces: Iterable[Message]) -> tuple[Message, ...]:
    """Reasoning, then text, then calls in a row are one message of the assistant; all other messages stay as they are.

    A piece with empty reasoning and nothing else is left out: it was reasoning that can't be read here.
    """
    messages: list[Message] = []
    for piece in pieces:
        if piece.reasoning == "" and _stage(piece) == _THOUGHT:
            continue
        if messages and _goes_on(messages[-1], piece):
            last = messages.pop()
            reasoning = "\n".join(text for text in (last.reasoning, piece.reasoning) if text) or None
            calls = last.tool_calls + piece.tool_calls
            piece = replace(last, content=last.content + piece.content, tool_calls=calls, reasoning=reasoning)
        messages.append(piece)
    return tuple(messages)


def _goes_on(last: Message, piece: Message) -> bool:
    if last.role != "assistant" or piece.role != "assistant":
        return False
    return _stage(last) < _stage(piece) or _stage(last) == _stage(piece) != _TEXT


def _stage(message: Message) -> int:
    """How far a turn has come."""
    if message.tool_calls:
        return _CALLS
    return _THOUGHT if message.reasoning is not None and not message.content else _TEXT
