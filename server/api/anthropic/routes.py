"""Anthropic's routes. Models have its shape only for clients that send its version header: the path is OpenAI's too."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from server.api.anthropic.errors import REQUEST_ID, draw_request_id
from server.api.anthropic.messages import Encoder, decode_request, encode_completion
from server.api.body import read_decoded
from server.api.respond import Answer, json_response, respond
from server.errors import BadRequest, ModelNotFound


def speaks_anthropic(scope: Scope) -> bool:
    """Whether a request is of this dialect, whatever its path."""
    return "anthropic-version" in Headers(scope=scope) or scope["path"].startswith("/v1/messages")


class _VersionedRoute(APIRoute):
    """A route that exists only for this dialect's clients."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As every route, for them."""
        return super().matches(scope) if speaks_anthropic(scope) else (Match.NONE, {})


router = APIRouter(route_class=_VersionedRoute)


@router.post("/messages")
async def create_message(request: Request) -> Response:
    """A message, whole or streamed."""
    state = request.app.state
    limits = state.settings.request_limits
    decoded, fields = await read_decoded(request, lambda body: decode_request(body, limits))
    request_id = draw_request_id()
    stream = Encoder(fields.shows_thinking, request_id) if fields.stream else None
    answer = Answer(stream, lambda completion: encode_completion(completion, fields.shows_thinking))
    response = await respond(request, state.service.generate(decoded), answer, state.drain)
    response.headers[REQUEST_ID] = request_id
    return response


@router.post("/messages/count_tokens")
async def count_tokens(request: Request) -> Response:
    """The tokens that a message's prompt would have."""
    state = request.app.state
    limits = state.settings.request_limits
    decoded, _ = await read_decoded(request, lambda body: decode_request(body, limits, is_counted=True))
    return _respond({"input_tokens": await state.service.count_prompt_tokens(decoded)})


@router.get("/models", include_in_schema=False)
async def list_models(request: Request) -> Response:
    """A page of the models that a request may name: from the first on, after one, or before one."""
    names, asked = list(request.app.state.manager.names()), request.query_params
    for cursor in {"before_id", "after_id"} & set(asked):
        if asked[cursor] not in names:
            raise BadRequest(f"{cursor}: there is no model {asked[cursor]!r}", param=cursor)
    limit = asked.get("limit", "20")
    if not re.fullmatch("[1-9][0-9]{0,2}|1000", limit):
        raise BadRequest("limit must be a number from 1 to 1000", param="limit")
    first = names.index(asked["after_id"]) + 1 if "after_id" in asked else 0
    rest = names[first : names.index(asked["before_id"]) if "before_id" in asked else None]
    page = rest[-int(limit) :] if "before_id" in asked else rest[: int(limit)]
    data = [_model(name, request.app.state.started_s) for name in page]
    ends = {"first_id": page[0] if page else None, "last_id": page[-1] if page else None}
    return _respond({"data": data, "has_more": len(page) < len(rest), **ends})


@router.get("/models/{name:path}", include_in_schema=False)
async def retrieve_model(name: str, request: Request) -> Response:
    """One model."""
    if name not in request.app.state.manager.names():
        raise ModelNotFound(f"there is no model {name!r}", param="model")
    return _respond(_model(name, request.app.state.started_s))


def _model(name: str, created_s: int) -> dict[str, object]:
    created_at = datetime.fromtimestamp(created_s, timezone.utc).isoformat()
    return {"type": "model", "id": name, "display_name": name, "created_at": created_at, "lifecycle": "active"}


def _respond(content: dict[str, object]) -> Response:
    return json_response(content, headers={REQUEST_ID: draw_request_id()})
