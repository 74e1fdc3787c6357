"""One server for all live tests that don't kill it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_server import LiveServer


@pytest.fixture(scope="session")
def live_server(default_model: Path) -> Iterator[LiveServer]:
    """The default model, 16 slots of 1024 tokens; one thread, which suffers least from whatever else runs."""
    with LiveServer(default_model, "--parallel", "16", "--ctx", "1024", "--threads", "1") as server:
        yield server
