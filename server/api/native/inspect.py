"""/props and /slots, in llama.cpp's shapes: how a model is set up, and what its slots are at."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.respond import json_response
from server.chat.model import LoadedModel, SlotState
from server.chat.types import Sampling

router = APIRouter()

_SEED_ANY = 0xFFFFFFFF  # llama.cpp's word for a seed that is drawn


@router.get("/props")
async def props(request: Request, model: str | None = None) -> Response:
    """How the model (`?model=`; the default one) is set up."""
    manager = request.app.state.manager
    loaded = await manager.engine(model)
    status = await manager.describe(loaded.name)
    path = status.details.path.name if status.details is not None else ""  # clients are told no paths of this machine
    return json_response({**_props(loaded), "model_path": path, "total_slots": loaded.engine.info.n_slots})


@router.get("/slots")
async def slots(request: Request, model: str | None = None) -> Response:
    """What each slot of the model is at."""
    loaded = await request.app.state.manager.engine(model)
    return json_response([_slot(state, loaded.engine.info.n_ctx_slot) for state in await loaded.engine.slots()])


def _props(model: LoadedModel) -> dict[str, Any]:
    info = model.engine.info
    return {
        "default_generation_settings": {"n_ctx": info.n_ctx_slot, "params": _default_params()},
        "model_alias": model.name,
        "modalities": {"vision": False, "audio": False},
        "chat_template": model.template or info.chat_template or "",
        "bos_token": info.bos_token,
        "eos_token": info.eos_token,
        "build_info": f"gramserve {_version()}",
        "is_sleeping": False,
    }


def _default_params() -> dict[str, Any]:
    """The sampler's defaults under llama.cpp's names."""
    params = asdict(Sampling())
    params["seed"] = _SEED_ANY
    return {name: list(value) if isinstance(value, tuple) else value for name, value in params.items()}


def _version() -> str:
    try:
        return version("gramserve")
    except PackageNotFoundError:
        return "unknown"


def _slot(state: SlotState, n_ctx: int) -> dict[str, Any]:
    is_processing = state.request is not None
    return {
        "id": state.slot,
        "id_task": state.request if state.request is not None else -1,
        "n_ctx": n_ctx,
        "speculative": False,
        "is_processing": is_processing,
        "n_prompt_tokens": state.n_prompt,
        "n_prompt_tokens_processed": state.n_prompt_read,
        "next_token": [{"has_next_token": is_processing, "n_remain": state.n_left, "n_decoded": state.n_decoded}],
    }
