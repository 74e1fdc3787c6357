"""OpenAI's routes. Each is decode, generate, answer; the rest is elsewhere."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.body import read_decoded
from server.api.openai import chat, completions
from server.api.respond import json_response, respond
from server.errors import ModelNotFound

router = APIRouter()


@router.post("/chat/completions")
async def create_chat_completion(request: Request) -> Response:
    """A chat completion, whole or streamed."""
    state = request.app.state
    limits = state.settings.request_limits
    decoded, fields = await read_decoded(request, lambda body: chat.decode_request(body, limits))
    return await respond(request, state.service.generate(decoded), chat.answer(fields), state.drain)


@router.post("/completions")
async def create_completion(request: Request) -> Response:
    """A text completion, whole or streamed."""
    state = request.app.state
    limits = state.settings.request_limits
    decoded, fields = await read_decoded(request, lambda body: completions.decode_request(body, limits))
    return await respond(request, state.service.generate(decoded), completions.answer(decoded, fields), state.drain)


@router.get("/models")
async def list_models(request: Request) -> Response:
    """Every model that a request may name; never waits for a model."""
    names = request.app.state.manager.names()
    return json_response({"object": "list", "data": [_model(name, request.app.state.started_s) for name in names]})


@router.get("/models/{name:path}")
async def retrieve_model(name: str, request: Request) -> Response:
    """One model."""
    if name not in request.app.state.manager.names():
        raise ModelNotFound(f"model {name!r} not found", param="model")
    return json_response(_model(name, request.app.state.started_s))


def _model(name: str, created_s: int) -> dict[str, object]:
    return {"id": name, "object": "model", "created": created_s, "owned_by": "gramserve"}
