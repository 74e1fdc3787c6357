"""Pieces of an assistant's turn -> whole messages, for dialects in which reasoning, text and calls are entries of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from server.chat.types import Message

_THOUGHT, _TEXT, _CALLS = range(3)


def join_pieces(pieces: Iterable[Message]) -> tuple[Message, ...]:
    """Reasoning, then text, then calls in a row are one message of the assistant; all other messages stay as they are.

    A piece with empty reasoning and nothing else is left out: it was reasoning that can't be read here.
    """
    turns: list[list[Message]] = []
    for piece in pieces:
        if piece.reasoning == "" and _stage(piece) == _THOUGHT:
            continue
        if turns and _goes_on(turns[-1][-1], piece):
            turns[-1].append(piece)
        else:
            turns.append([piece])
    return tuple(_joined(turn) for turn in turns)


def _joined(turn: Sequence[Message]) -> Message:
    if len(turn) == 1:
        return turn[0]
    return replace(
        turn[0],
        content="".join(piece.content for piece in turn),
        tool_calls=tuple(call for piece in turn for call in piece.tool_calls),
        reasoning="\n".join(piece.reasoning for piece in turn if piece.reasoning) or None,
    )


def _goes_on(last: Message, piece: Message) -> bool:
    if last.role != "assistant" or piece.role != "assistant":
        return False
    return _stage(last) < _stage(piece) or _stage(last) == _stage(piece) != _TEXT


def _stage(message: Message) -> int:
    """How far a turn has come with this piece."""
    if message.tool_calls:
        return _CALLS
    return _THOUGHT if message.reasoning is not None and not message.content else _TEXT
