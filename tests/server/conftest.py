"""Fixtures of the server's fast tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.server.fakes import Served, serve


@pytest_asyncio.fixture
async def served() -> AsyncIterator[Served]:
    """The app over a fake engine that says "Hello"."""
    async with serve() as opened:
        yield opened
