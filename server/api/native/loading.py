"""/models/load and /models/unload, as llama.cpp's router has them: Open WebUI manages models by them."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.body import read_decoded
from server.api.fields import read_model_name
from server.api.respond import json_response
from server.chat.types import JsonObject
from server.values import missing

router = APIRouter()


@router.post("/models/load")
async def load(request: Request) -> Response:
    """{"model"}: begin to load it; /v1/models tells when it is there."""
    request.app.state.manager.load(await read_decoded(request, _model_name))
    return json_response({"success": True})


@router.post("/models/unload")
async def unload(request: Request) -> Response:
    """{"model"}: end its process, when what runs on it is done."""
    request.app.state.manager.unload(await read_decoded(request, _model_name))
    return json_response({"success": True})


def _model_name(body: JsonObject) -> str:
    name = read_model_name(body)
    if name is None:
        raise missing("model")
    return name
