"""The routes of /v1/responses: create one, and what may be done with one that was kept."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.body import read_decoded
from server.api.bounded import BoundedStore
from server.api.page import page
from server.api.respond import Answer, json_response, respond
from server.api.responses.encoder import Encoder
from server.api.responses.items import ItemReader, Kept
from server.api.responses.request import Asked, decode_request
from server.chat.truncation import fit_to_context
from server.chat.types import JsonObject
from server.errors import BadRequest, ResourceNotFound, UnsupportedParameter
from server.settings import RequestLimits

router = APIRouter()

MAX_PAGE = 100


@router.post("/responses")
async def create_response(request: Request) -> Response:
    """A response, whole or streamed."""
    state = request.app.state
    asked = await _asked(request)
    encoder = Encoder(asked, partial(_keep, state.responses, asked, state.settings.request_limits))
    events = state.service.generate(asked.request)
    if asked.fields.stream:
        return await respond(request, events, Answer(encoder, encoder.encode_completion), state.drain)
    return await respond(request, encoder.watch(events), Answer(None, encoder.encode_completion), state.drain)


async def _asked(request: Request) -> Asked:
    """The request, without what has to go for `truncation`."""
    state = request.app.state
    limits = state.settings.request_limits
    asked = await read_decoded(request, lambda body: decode_request(body, limits, state.responses))
    if asked.fields.truncation != "auto":
        return asked
    return replace(asked, request=await fit_to_context(state.service, asked.request))


@router.post("/responses/input_tokens")
async def count_input_tokens(request: Request) -> Response:
    """The tokens that a response's prompt would have."""
    n_tokens = await request.app.state.service.count_prompt_tokens((await _asked(request)).request)
    return json_response({"object": "response.input_tokens", "input_tokens": n_tokens})


def _keep(store: BoundedStore[Kept], asked: Asked, limits: RequestLimits, response: JsonObject) -> None:
    """Keep a response that is over with everything that came before it, unless `store` is false."""
    if asked.fields.store is False:
        return
    output = ItemReader(limits, store).read(response["output"], "output")  # its ids are new: nothing to compare with
    kept = Kept(response, (*asked.items, *output), len(asked.items))
    store.add(str(response["id"]), kept, kept.n_bytes)


@router.get("/responses/{response_id}")
async def retrieve_response(response_id: str, request: Request) -> Response:
    """A kept response."""
    if request.query_params.get("stream", "false").lower() not in ("false", "0"):
        raise UnsupportedParameter("stream is not supported: a response that is over isn't streamed again", param="stream")
    return json_response(_kept(response_id, request).response)


@router.delete("/responses/{response_id}")
async def delete_response(response_id: str, request: Request) -> Response:
    """Forget a response. Those that continue it have its items themselves."""
    _kept(response_id, request)
    request.app.state.responses.delete(response_id)
    return json_response({"id": response_id, "object": "response", "deleted": True})


@router.post("/responses/{response_id}/cancel")
async def cancel_response(response_id: str, request: Request) -> Response:
    """Always an error: only responses in the background can be cancelled so, and there are none."""
    _kept(response_id, request)
    message = "only a response created with background: true can be cancelled; to cancel any other, close its connection"
    raise BadRequest(message, param="response_id", code="not_cancellable")


@router.get("/responses/{response_id}/input_items")
async def list_input_items(response_id: str, request: Request) -> Response:
    """What a response answered: its input and the conversation before it, newest first unless `order` is asc."""
    kept = _kept(response_id, request)
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise BadRequest(f"order must be asc or desc, not {order!r}", param="order")
    items = [item.wire for item in kept.items[: kept.n_input]]
    return json_response({"object": "list", **page(items if order == "asc" else items[::-1], request.query_params, MAX_PAGE)})


def _kept(response_id: str, request: Request) -> Kept:
    kept: Kept | None = request.app.state.responses.get(response_id)
    if kept is None:
        raise ResourceNotFound(f"Response with id {response_id!r} not found", param="response_id")
    return kept
