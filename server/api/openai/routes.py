"""OpenAI's routes. Each is decode, generate, answer; the rest is elsewhere."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.body import read_decoded
from server.api.openai import chat, completions, embeddings
from server.api.openai.models import encode_model
from server.api.respond import json_response, respond

router = APIRouter()
router.include_router(embeddings.router)


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
    """Every model that a request may name, with what is known of it; never waits for a model."""
    state = request.app.state
    models = [encode_model(status, state.started_s) for status in await state.manager.describe_all()]
    return json_response({"object": "list", "data": models})


@router.get("/models/{name:path}")
async def retrieve_model(name: str, request: Request) -> Response:
    """One model."""
    state = request.app.state
    return json_response(encode_model(await state.manager.describe(name), state.started_s))
