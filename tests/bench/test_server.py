"""Figures of the whole server, with the default model, on a machine that does nothing else: `python3 dev.py bench`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.live.test_server import EIGHT, Entry, check_texts, compile_all, run_one, run_together
from tests.live_server import LiveServer

pytestmark = pytest.mark.bench


def _rate(entries: list[Entry], run: Callable[[], list[tuple[list[str], int]]]) -> float:
    """Completion tokens a second."""
    started = time.monotonic()
    replies = run()
    seconds = time.monotonic() - started
    check_texts(replies, entries)
    return sum(n for _, n in replies) / seconds


def run_in_turn(server: LiveServer, prompt: str, entries: list[Entry]) -> list[tuple[list[str], int]]:
    """The eight requests, one after another."""
    return [run_one(server, fields, f"{i} {prompt}") for i, (fields, _) in enumerate(entries)]


LONG: list[Entry] = [
    (
        {"guided_choice": [f"{'over the hill and far away, ' * 12}{end}" for end in ("home", "not yet")]},
        "(over .*){12}home|(over .*){12}not yet",
    ),
    ({"guided_regex": "[a-z]{200,240}"}, "[a-z]{200,240}"),
    ({"guided_regex": "([0-9]{4}-[0-9]{2}-[0-9]{2} ){14}"}, "([0-9]{4}-[0-9]{2}-[0-9]{2} ){14}"),
    ({"grammar": 'root ::= ("ab" | "cd"){120}'}, "(ab|cd){120}"),
    (
        {"guided_json": {"type": "array", "items": {"enum": ["red", "blue"]}, "minItems": 30, "maxItems": 30}},
        r'\[("(red|blue)"(, ?)?){30}\]',
    ),
    ({"structured_outputs": {"regex": "[A-Z][a-z]{5,9}( [a-z]{3,7}){40}"}}, "[A-Z][a-z]{5,9}( [a-z]{3,7}){40}"),
    ({"guided_grammar": 'start: WORD (" " WORD)~44\nWORD: /[a-z]{2,6}/'}, "[a-z]{2,6}( [a-z]{2,6}){44}"),
    ({"json_schema": {"type": "string", "minLength": 250, "maxLength": 280, "pattern": "^[a-z ]*$"}}, '"[a-z ]{250,280}"'),
]


@pytest.mark.parametrize("entries", [EIGHT, LONG], ids=["short", "long"])
def test_together_is_faster_than_in_turn(measured_server: LiveServer, entries: list[Entry]) -> None:
    """8 constraints, n=2, 16 slots: at once against one after another, in turn, median of 7 rounds.

    Reading a prompt costs the same either way: answers of some 25 tokens gain less than those of 100.
    """
    measured_server.chat(max_tokens=4)
    compile_all(measured_server, entries)
    ratios = []
    for number in range(7):  # no two requests have the same prompt
        alone = _rate(entries, partial(run_in_turn, measured_server, f"to {number}: write.", entries))
        together = _rate(entries, partial(run_together, measured_server, f"and {number}: write.", entries))
        ratios.append(together / alone)
        print(f"\none after another {alone:.1f} tok/s, together {together:.1f} tok/s, ratio {ratios[-1]:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f}")
    assert statistics.median(ratios) >= 1.3
