"""OpenAI's routes. Each is decode, generate, answer; the rest is elsewhere."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.body import read_decoded
from server.api.openai import chat, completions
from server.api.respond import respond

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
