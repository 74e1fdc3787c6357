"""Anthropic's routes. Models have its shape only for clients that send its version header: the path is OpenAI's too."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from server.api.anthropic.errors import REQUEST_ID, draw_request_id
from server.api.anthropic.messages import Encoder, decode_request, encode_completion
from server.api.body import read_decoded
from server.api.page import page
from server.api.respond import Answer, json_response, respond
from server.api.timestamp import timestamp
from server.model_status import ModelStatus

_N_MOST_MODELS = 1000  # of a page


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
    """A page of the models that a request may name; never waits for a model."""
    state = request.app.state
    models = [_model(status, state.started_s) for status in await state.manager.describe_all()]
    return _respond(page(models, request.query_params, _N_MOST_MODELS, after="after_id", before="before_id"))


@router.get("/models/{name:path}", include_in_schema=False)
async def retrieve_model(name: str, request: Request) -> Response:
    """One model."""
    state = request.app.state
    return _respond(_model(await state.manager.describe(name), state.started_s))


def _model(status: ModelStatus, started_s: float) -> dict[str, object]:
    details, name = status.details, status.alias
    created_at = timestamp(started_s if details is None else details.modified_s)
    n_ctx = status.n_ctx_slot or (details and details.n_ctx_train)
    model = {"type": "model", "id": name, "display_name": name, "created_at": created_at, "lifecycle": "active"}
    return {**model, "max_input_tokens": n_ctx, "max_tokens": n_ctx}


def _respond(content: dict[str, Any]) -> Response:
    return json_response(content, headers={REQUEST_ID: draw_request_id()})
