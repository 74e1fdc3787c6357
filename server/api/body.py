"""A request's body as a JSON object, whatever Content-Type it came with."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import cast

from starlette.requests import ClientDisconnect, Request

from server.api.interrupt import ClientGone
from server.chat.types import JsonObject
from server.errors import wrong_type
from server.json_text import parse_json

_LARGE_BYTES = 256 * 1024  # above this the parser runs beside the event loop


async def read_json_object(request: Request) -> JsonObject:
    """The body. Raises InvalidJson, BadRequest for JSON that is no object, BodyTooLarge, ClientGone."""
    try:
        data = await request.body()
    except ClientDisconnect:
        raise ClientGone from None
    parse = partial(parse_json, data, max_depth=request.app.state.settings.request_limits.json_depth)
    value = await asyncio.to_thread(parse) if len(data) > _LARGE_BYTES else parse()
    if not isinstance(value, dict):
        raise wrong_type("the request body", "a JSON object", value)
    return cast(JsonObject, value)
