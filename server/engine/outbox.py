"""When the parent hears what came of a step.

Telling it wakes the parent, which then needs a core that a decode needs too. Decodes use every core; the drawing of tokens
after them uses one. So what a step brought waits for the end of the next decode, where nobody minds a little wait.
"""

from __future__ import annotations

from collections.abc import Callable

from server.engine.messages import EngineEvent, StepOutput, TextChunk

_LONGEST_S = 0.05  # a step that takes longer than this tells at once: its reader would see the wait, its decode gains little

Emit = Callable[[StepOutput], None]


class Outbox:
    """The events of the steps, in order. `emit` sends some."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._held: tuple[EngineEvent, ...] = ()

    def put(self, events: tuple[EngineEvent, ...], step_s: float, *, has_read: bool, goes_on: bool) -> None:
        """What came of a step that took `step_s` seconds. More text of choices that go on may be held until `flush`.

        `has_read`: it read a prompt, so that somebody waits for a first word. `goes_on`: the next step decodes for sure.
        """
        self._held += events
        is_mere_text = all(isinstance(event, TextChunk) for event in events)
        if not (goes_on and is_mere_text and step_s <= _LONGEST_S) or has_read:
            self.flush()

    def flush(self) -> None:
        """Send what is held."""
        held, self._held = self._held, ()
        if held:
            self._emit(StepOutput(held))
