"""When a step's events are told: mere text after the next decode, everything else, and all that nobody would tell, at once."""

from __future__ import annotations

import threading
from collections import Counter
from queue import SimpleQueue

import pytest

from server.engine.core import Core, Inbox
from server.engine.intake import Intake
from server.engine.messages import (
    Cancel,
    EngineRequest,
    Failed,
    FailureKind,
    Finished,
    Sampling,
    Shutdown,
    Started,
    StepOutput,
    TextChunk,
)
from server.engine.outbox import Outbox
from tests.server.engine.fake_backend import FakeBackend

TEXT = (TextChunk(1, 0, "a", 1),)
MORE = (TextChunk(1, 0, "b", 1),)


class Told:
    """An outbox, and what it told so far."""

    def __init__(self) -> None:
        self.outputs: list[StepOutput] = []
        self.outbox = Outbox(self.outputs.append)

    def put(self, *events: object, step_s: float = 0.01, has_read: bool = False, goes_on: bool = True) -> None:
        self.outbox.put(events, step_s, has_read=has_read, goes_on=goes_on)  # type: ignore[arg-type]

    @property
    def events(self) -> list[object]:
        return [event for output in self.outputs for event in output.events]


def test_mere_text_waits_for_the_flush() -> None:
    told = Told()
    told.put(*TEXT)
    assert told.events == []
    told.outbox.flush()
    told.outbox.flush()
    assert [output.events for output in told.outputs] == [TEXT]


@pytest.mark.parametrize(
    "news", [Started(2, 3, 3), Failed(2, FailureKind.QUEUE_FULL, "full")], ids=lambda event: type(event).__name__
)
def test_news_takes_along_what_was_held(news: object) -> None:
    told = Told()
    told.put(*TEXT)
    told.put(*MORE, news)
    assert told.events == [*TEXT, *MORE, news]


@pytest.mark.parametrize("reason", [{"step_s": 0.06}, {"has_read": True}, {"goes_on": False}], ids=str)
def test_text_that_nobody_would_tell_soon_is_told_at_once(reason: dict[str, float]) -> None:
    told = Told()
    told.put(*TEXT, **reason)  # type: ignore[arg-type]
    assert told.events == [*TEXT]


def test_nothing_is_told_of_nothing() -> None:
    told = Told()
    told.put(goes_on=False)
    told.outbox.flush()
    assert told.outputs == []


class Timeline(FakeBackend):
    """A backend that notes its decodes beside what a core tells."""

    def __init__(self, *texts: str, n_slots: int = 4) -> None:
        super().__init__(n_slots=n_slots, script=lambda seed: texts[seed % len(texts)])
        self.notes: list[str] = []
        self.inbox: Inbox = SimpleQueue()
        self.core = Core(self)
        self.intake = Intake(self, SimpleQueue(), lambda message: None)
        self.at_decode: dict[int, object] = {}

    def decode(self, batch: object) -> None:
        super().decode(batch)  # type: ignore[arg-type]
        self.notes.append("decode")
        if (message := self.at_decode.get(self.notes.count("decode"))) is not None:
            self.inbox.put(message)  # type: ignore[arg-type]

    def ask(self, id: int, seed: int = 0, n: int = 1) -> None:
        self.inbox.put(self.intake.prepare(EngineRequest(id, "prompt", n=n, max_tokens=50, sampling=Sampling(seed=seed))))

    def run(self) -> list[str]:
        """Decodes and told texts, one after another, until all is done. Fails where the core sleeps on something untold."""
        thread = threading.Thread(target=self.core.run, args=(self.inbox, self._note), daemon=True)
        thread.start()
        thread.join(0.5)
        self.inbox.put(Shutdown())
        thread.join(5)
        assert not thread.is_alive()
        return self.notes

    def _note(self, output: StepOutput) -> None:
        self.notes.extend(
            event.text if isinstance(event, TextChunk) else type(event).__name__
            for event in output.events
            if isinstance(event, (TextChunk, Finished, Started))
        )


def test_the_first_token_comes_at_once_and_the_others_after_the_next_decode() -> None:
    backend = Timeline("abcd")
    backend.ask(1)
    assert backend.run() == ["decode", "Started", "a", "decode", "decode", "b", "decode", "c", "decode", "d", "Finished"]


def test_texts_of_neighbours_are_told_together_and_an_end_takes_them_along() -> None:
    backend = Timeline("abcd", "xy")
    backend.ask(1)
    backend.ask(2, seed=1)
    notes = [note for note in backend.run() if note != "decode"]
    assert notes == ["Started", "Started", "a", "x", "b", "y", "c", "Finished", "d", "Finished"]


def test_a_cancel_leaves_nothing_untold() -> None:
    """Nothing decodes after it, so nothing else would tell the last text."""
    backend = Timeline("a" * 40)
    backend.at_decode[4] = Cancel(1)
    backend.ask(1)
    assert backend.run().count("a") == 4


def test_more_choices_than_slots() -> None:
    backend = Timeline("abc", n_slots=2)
    backend.ask(1, n=5)
    notes = backend.run()
    assert notes.count("Finished") == 5
    assert Counter("".join(note for note in notes if note in ("a", "b", "c", "ab"))) == dict.fromkeys("abc", 5)


def test_a_failing_decode_tells_what_was_held_before_it() -> None:
    backend = Timeline("abcdef")
    backend.fail_at = frozenset({4})
    backend.ask(1)
    assert [note for note in backend.run() if note != "decode"] == ["Started", "a", "b", "c"]
