"""/v1/models: OpenAI's model objects, with what else can be told of a model under `meta` and `status` (llama.cpp's names)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.respond import json_response
from server.chat.capability import capabilities
from server.model_status import ModelStatus

router = APIRouter()

_STATES = {"ready": "loaded", "restarting": "loaded", "loading": "loading", "stopped": "unloaded", "failed": "failed"}


@router.get("/v1/models")
@router.get("/models", include_in_schema=False)
async def list_models(request: Request) -> Response:
    """Every model that a request may name, with what is known of it; never waits for a model."""
    state = request.app.state
    models = [encode_model(status, state.started_s) for status in await state.manager.describe_all()]
    return json_response({"object": "list", "data": models})


@router.get("/v1/models/{name:path}")
@router.get("/models/{name:path}", include_in_schema=False)
async def retrieve_model(name: str, request: Request) -> Response:
    """One model."""
    state = request.app.state
    return json_response(encode_model(await state.manager.describe(name), state.started_s))


def encode_model(status: ModelStatus, started_s: int) -> dict[str, Any]:
    """A model; `created` is when its file was written, or where that isn't here, when the server started."""
    details = status.details
    return {
        "id": status.alias,
        "object": "model",
        "created": int(details.modified_s) if details is not None else started_s,
        "owned_by": "gramserve",
        "status": {"value": _STATES[status.state]},
        "capabilities": list(capabilities(status)),
        "meta": _meta(status),
    }


def _meta(status: ModelStatus) -> dict[str, Any] | None:
    """None for a model that hasn't been fetched."""
    details = status.details
    if details is None:
        return None
    return {
        "n_params": details.n_params,
        "size": details.size_bytes,
        "n_ctx_train": details.n_ctx_train,
        "n_ctx": status.n_ctx_slot,
        "n_slots": status.n_slots,
        "n_embd": details.n_embd,
        "architecture": details.architecture,
        "quantization": details.quantization,
        "memory": status.memory_bytes,
    }
