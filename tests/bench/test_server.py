"""Figures of the whole server, with the default model, on a machine that does nothing else: `python3 dev.py bench`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest

from tests.live.test_server import EIGHT, check_texts, compile_all, gaps_beside_a_compile, run_one, run_together
from tests.live_server import LiveServer

pytestmark = pytest.mark.bench


def _rate(run: Callable[[], list[tuple[list[str], int]]]) -> float:
    """Completion tokens a second."""
    started = time.monotonic()
    replies = run()
    seconds = time.monotonic() - started
    check_texts(replies)
    return sum(n for _, n in replies) / seconds


def test_together_is_faster_than_in_turn(measured_server: LiveServer) -> None:
    """8 constraints, n=2, 16 slots: at once against one after another, in turn, median of 5 rounds."""
    measured_server.chat(max_tokens=4)
    compile_all(measured_server)
    ratios = []
    for number in range(5):  # every round has a prompt of its own, so that none is read from the prompt cache
        prompt = f"{number} times: write what you like."
        alone = _rate(lambda prompt=f"First {prompt}": [run_one(measured_server, fields, prompt) for fields, _ in EIGHT])
        together = _rate(lambda prompt=f"Then {prompt}": run_together(measured_server, prompt))
        ratios.append(together / alone)
        print(f"\none after another {alone:.1f} tok/s, together {together:.1f} tok/s, ratio {ratios[-1]:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f}")
    assert statistics.median(ratios) >= 1.3


def test_a_compile_does_not_stall_a_stream(measured_server: LiveServer) -> None:
    assert max(gaps_beside_a_compile(measured_server)) < 0.15
