"""Fixtures that more than one part of the tests needs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.default_model import default_model_path
from tests.live_server import LiveServer
from tests.oracle import Oracle


def pytest_collection() -> None:
    """Next to nothing that collecting the tests makes is garbage, and looking for some takes seconds."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What is collected stays for good: garbage collections need not look at it.

    A full one would take half a second in the process that measures the times of streams and compiles. Nor need they come as
    often as they do by default, which takes a tenth of the processor time of the fast tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 20, 50)
    gc.enable()


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The GGUF file of the default model, for tests marked `live`."""
    return default_model_path()


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """llama.cpp's grammar sampler over a tiny vocabulary: every byte, some longer pieces, some special tokens."""
    with Oracle() as opened:
        yield opened


@pytest.fixture(scope="session")
def model_oracle(default_model: Path) -> Iterator[Oracle]:
    """llama.cpp's grammar sampler over the default model's vocabulary, for tests with a marker."""
    with Oracle(default_model) as opened:
        yield opened


@pytest.fixture(scope="module")
def measured_server(default_model: Path) -> Iterator[LiveServer]:
    """The default model, 16 slots, the server's own choice of threads, and limits high enough for compiles of two seconds."""
    limits = ("--limit", "automaton_bytes=1000000000000000000", "--limit", "compiled_regex_bytes=1000000000")
    with LiveServer(default_model, "--parallel", "16", "--ctx", "1024", *limits) as server:
        yield server
