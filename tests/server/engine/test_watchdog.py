"""The watchdog barks at what doesn't return, and at nothing else; the model's process ends then, and another one follows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from server.engine.client import ProcessClient
from server.engine.messages import EngineRequest, ModelSpec
from server.engine.watchdog import Watchdog
from server.errors import EngineDied


@contextmanager
def in_a_thread(watchdog: Watchdog, what: str) -> Iterator[None]:
    """Something that lasts as long as the block."""
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with watchdog.watch(what):
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(10)
    yield
    leave.set()
    thread.join()


def test_only_one_call_that_lasts_counts() -> None:
    watchdog = Watchdog(3, lambda what: None)
    for _ in range(10):
        with watchdog.watch("short"):
            assert watchdog.tick() is None
    with in_a_thread(watchdog, "long"):
        for _ in range(3):
            with watchdog.watch("short"):
                assert watchdog.tick() is None
        assert watchdog.tick() == "long"
    assert watchdog.tick() is None


def test_it_barks_once() -> None:
    heard: list[str] = []
    barked = threading.Event()

    def hear(what: str) -> None:
        heard.append(what)
        barked.set()

    watchdog = Watchdog(0.05, hear, tick_s=0.01)
    watchdog.start()
    with in_a_thread(watchdog, "long"):
        assert barked.wait(5)
    assert heard == ["long"]


async def test_a_sampler_that_hangs_ends_the_process_and_the_next_request_is_served(
    tiny_bpe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the child imports at its start makes the draws of one request hang."""
    (tmp_path / "sitecustomize.py").write_text(HANGING)
    monkeypatch.syspath_prepend(str(tmp_path))
    client = ProcessClient(ModelSpec(str(tiny_bpe), n_ctx=256, n_slots=2, n_threads=1, hang_timeout_s=1.0))
    await client.start()
    try:
        with pytest.raises(EngineDied, match="takes too long"):
            async for _ in client.generate(EngineRequest(0, "the cat", max_tokens=77)):
                pass
        events = [event async for event in client.generate(EngineRequest(0, "the cat", max_tokens=5))]
        assert events
    finally:
        await client.stop()


HANGING = """
import sys, threading, time

def replace_go_on():
    while not hasattr(sys.modules.get("server.engine.core"), "Core"):
        time.sleep(0.001)
    core = sys.modules["server.engine.core"].Core
    go_on = core._go_on

    def hang(self, sequence, logits):
        if sequence.job.max_new == 77:
            time.sleep(60)
        go_on(self, sequence, logits)

    core._go_on = hang

threading.Thread(target=replace_go_on, daemon=True).start()
"""
