"""The parent's side of a model process: what the rest of the server may ask of an engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from server.engine.messages import EngineEvent, EngineRequest, ModelInfo, ModelState


class EngineClient(Protocol):
    """One loaded model. Two forms: a child process, and in-process with a fake backend for tests.

    All methods run on the event loop and none blocks it.
    """

    @property
    def state(self) -> ModelState:
        """Where the model's process stands; never waits for it."""

    @property
    def info(self) -> ModelInfo:
        """What is known of the loaded model. Raises ModelLoading before it is ready."""

    async def start(self) -> ModelInfo:
        """Load the model. Raises EngineStartFailed with the child's last words."""

    async def stop(self) -> None:
        """End the child, at once."""

    async def put_grammar(self, key: str, gbnf: str, tables: bytes) -> None:
        """Make a grammar known under `key`; sending it twice costs nothing."""

    def generate(self, request: EngineRequest) -> AsyncIterator[EngineEvent]:
        """The request's events, Started first. Closing the iterator cancels the request.

        `request.id` is set by the client. A Failed event of the whole request is raised as its `server.errors` class
        (ContextOverflow, ConstraintRejected, QueueFull …), a dead child as EngineDied; Failed events of one choice are yielded.
        """

    async def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> tuple[int, ...]:
        """Token ids of `text`."""

    async def detokenize(self, tokens: tuple[int, ...]) -> bytes:
        """The bytes that `tokens` spell, special tokens included."""

    def set_busy(self, busy: bool) -> None:
        """Tell the child that something heavy runs beside it (it then decodes with one thread fewer)."""
