"""One server for the official clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_server import LiveServer


@pytest.fixture(scope="session")
def live_server(default_model: Path) -> Iterator[LiveServer]:
    """The default model, 8 slots of 1024 tokens, behind an API key."""
    with LiveServer(default_model, "--parallel", "8", "--ctx", "1024", "--threads", "1", "--api-key", "sesame") as server:
        yield server
