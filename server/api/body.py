"""A request's body as a JSON object, whatever Content-Type it came with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, cast

from starlette.requests import ClientDisconnect, Request

from server.api.interrupt import ClientGone
from server.chat.types import JsonObject
from server.errors import wrong_type
from server.json_text import LARGE_BYTES, parse_json

Decoded = TypeVar("Decoded")


async def read_json_object(request: Request) -> JsonObject:
    """The body. Raises InvalidJson, BadRequest for JSON that is no object, BodyTooLarge, ClientGone."""
    return await read_decoded(request, lambda body: body)


async def read_decoded(request: Request, decode: Callable[[JsonObject], Decoded]) -> Decoded:
    """What `decode` makes of the body, in a thread where that takes long. Raises what `decode` does, and as above."""
    try:
        data = await request.body()
    except ClientDisconnect:
        raise ClientGone from None
    limits = request.app.state.settings.request_limits

    def work() -> Decoded:
        value = parse_json(data, max_depth=limits.json_depth, max_values=limits.json_values)
        if not isinstance(value, dict):
            raise wrong_type("the request body", "a JSON object", value)
        return decode(cast(JsonObject, value))

    return await asyncio.to_thread(work) if len(data) > LARGE_BYTES else work()
