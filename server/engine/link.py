"""The seam between a client and what runs the model: another process (`process`) or threads of this one (`local`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from server.engine.messages import ToChild, ToParent


class LinkClosed(Exception):
    """The other side is gone, or going."""


class Link(Protocol):
    """A running engine. Its callbacks are called on the event loop, the death of the engine once, as the last."""

    def send(self, message: ToChild) -> None:
        """Pass a message on without waiting; silently nothing where the other side is gone."""

    def close(self) -> None:
        """End the other side at once. No callback comes after this."""


OnMessage: TypeAlias = Callable[[ToParent], None]
OnDeath: TypeAlias = Callable[[str], None]
"""Gets the engine's last words."""

Connect: TypeAlias = Callable[[OnMessage, OnDeath], Link]
"""Starts an engine; the first messages to expect are Ready or LoadFailed."""
