"""Ollama's routes. Each is decode, ask, answer; the rest is elsewhere."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from server.api.body import read_decoded
from server.api.interrupt import run_interruptibly
from server.api.lines import Line, LineEncoder, last_line
from server.api.ollama.answer import Encoder, Envelope, encode_completion, error_body
from server.api.ollama.models import encode_ps, encode_show, encode_tags, tagged
from server.api.ollama.request import decode_inputs, decode_request
from server.api.ollama.wire import RequestFields, read_request
from server.api.respond import Answer, json_response, respond, stream
from server.chat.continuation import generate_on
from server.chat.model import ModelManager
from server.chat.patience import wait_for_model
from server.chat.truncation import generate_fitted
from server.errors import ModelNotFound, UnsupportedParameter

router = APIRouter()

VERSION = "0.13.5"  # of Ollama, whose API this is: clients ask for a least one
_PATIENCE_S = 300.0  # as long as Ollama gives a model to load; its clients don't ask again


@router.get("/")
async def root() -> Response:
    """What clients look for to see that somebody is there."""
    return PlainTextResponse("Ollama is running")


@router.get("/api/version")
async def version() -> Response:
    """The version of the API."""
    return json_response({"version": VERSION})


@router.get("/api/tags")
async def list_models(request: Request) -> Response:
    """The models whose files are here."""
    return json_response(encode_tags(await request.app.state.manager.describe_all()))


@router.get("/api/ps")
async def list_running(request: Request) -> Response:
    """The models that are loaded."""
    return json_response(encode_ps(await request.app.state.manager.describe_all()))


@router.post("/api/show")
async def show(request: Request) -> Response:
    """All about one model."""
    fields = await read_decoded(request, read_request)
    status = await request.app.state.manager.describe(fields.asked_model)
    if status.details is None:
        raise ModelNotFound(f"model {fields.asked_model!r} not found: its files are not here", param="model")
    return json_response(encode_show(status, status.details, is_verbose=bool(fields.verbose)))


@router.delete("/api/delete")
async def delete(request: Request) -> Response:
    """Unload a model and delete its files from the cache; its line of models.txt stays."""
    fields = await read_decoded(request, read_request)
    await request.app.state.manager.remove(fields.asked_model)
    return Response()


@router.post("/api/pull")
async def pull(request: Request) -> Response:
    """Fetch a model's files, streamed unless `stream` is false."""
    fields = await read_decoded(request, read_request)
    lines = _pull(request.app.state.manager, fields.asked_model)
    if fields.stream is not False:
        return await stream(request, lines, LineEncoder(error_body), request.app.state.drain)
    return json_response(await run_interruptibly(last_line(lines), request.receive, request.app.state.drain))


async def _pull(manager: ModelManager, name: str | None) -> AsyncGenerator[Line, None]:
    """Lines of progress. `digest`, which clients tell files by, is of the source: nobody has seen the content yet."""
    digest = f"sha256:{hashlib.sha256((await manager.describe(name)).source.encode()).hexdigest()}"
    yield {"status": "pulling manifest"}
    async with aclosing(manager.pull(name)) as steps:
        async for step in steps:
            total = step.done_bytes if step.total_bytes is None else step.total_bytes
            yield {"status": f"pulling {step.name}", "digest": digest, "total": total, "completed": step.done_bytes}
    for status in ("verifying sha256 digest", "writing manifest", "success"):
        yield {"status": status}


@router.post("/api/chat")
@router.post("/api/generate")
async def generate(http: Request) -> Response:
    """A chat turn or a completion, streamed unless `stream` is false; without a prompt it loads or unloads the model."""
    state, is_chat = http.app.state, http.url.path.endswith("/chat")
    decode = partial(decode_request, limits=state.settings.request_limits, is_chat=is_chat)
    request, fields = await read_decoded(http, decode)
    envelope = Envelope(is_chat, fields.asked_model or tagged(state.manager.default), bool(fields.logprobs))
    if request is None and fields.keep_alive == 0:
        state.manager.unload(fields.asked_model)
        return json_response(envelope.last(envelope.line(), "unload"))
    await _load(http, fields, envelope)
    if request is None:
        return json_response(envelope.last(envelope.line(), "load"))
    request = replace(request, model=fields.asked_model)
    if is_chat and fields.truncate is not False:
        events = generate_fitted(state.service, request)
    elif is_chat or fields.raw or fields.suffix:
        events = state.service.generate(request)
    else:
        events = generate_on(state.service, request, fields.context or (), envelope.context.extend)
    encoder = Encoder(envelope) if fields.stream is not False else None
    return await respond(http, events, Answer(encoder, partial(encode_completion, envelope=envelope)), state.drain)


@router.post("/api/embed")
@router.post("/api/embeddings")
async def embed(http: Request) -> Response:
    """Vectors of texts, each of length 1; the older route takes one text, in `prompt`."""
    state, is_older = http.app.state, http.url.path.endswith("/embeddings")
    request, fields = await read_decoded(http, partial(decode_inputs, name="prompt" if is_older else "input"))
    envelope = Envelope(False, fields.asked_model or tagged(state.manager.default))
    await _load(http, fields, envelope)
    vectors, n_tokens = [], 0
    if request.inputs:
        found = await run_interruptibly(state.service.embed(request), http.receive, state.drain)
        vectors, n_tokens = await asyncio.to_thread(found.as_lists), found.n_prompt_tokens
    if is_older:
        return json_response({"embedding": vectors[0] if vectors else []})
    return json_response({"model": envelope.model, "embeddings": vectors, **envelope.figures(n_tokens)})


async def _load(http: Request, fields: RequestFields, envelope: Envelope) -> None:
    """Until the model is there, for as long as it is to stay."""
    manager = http.app.state.manager
    await run_interruptibly(wait_for_model(manager, fields.asked_model, _PATIENCE_S), http.receive, http.app.state.drain)
    envelope.load_ns = envelope.age_ns
    if fields.keep_alive is not None:
        manager.touch(fields.asked_model, fields.keep_alive)


@router.post("/api/create")
@router.post("/api/copy")
@router.post("/api/push")
@router.post("/api/blobs/{digest}")
async def refuse(request: Request) -> Response:
    """Models are lines of models.txt: none is made or published here."""
    raise UnsupportedParameter(f"{request.url.path} is not supported: models are added as lines of models.txt")
