"""Waiting for a model on behalf of clients that don't ask again by themselves."""

from __future__ import annotations

import asyncio

from server.chat.model import LoadedModel, ModelManager
from server.errors import ModelLoading


async def wait_for_model(manager: ModelManager, name: str | None, patience_s: float) -> LoadedModel:
    """The model, loaded, however often it has to be asked for. Raises ModelLoading after `patience_s`, and as `engine` does."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + patience_s
    while True:
        try:
            return await manager.engine(name)
        except ModelLoading as error:
            pause_s = float(error.retry_after_s or 1)
            if clock() + pause_s > deadline:
                raise
        await asyncio.sleep(pause_s)
