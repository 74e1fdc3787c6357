"""The server's own routes, in llama.cpp's shapes where it has them: health, tokens, templates, and the constraint's report."""

from __future__ import annotations

from typing import cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.body import read_json_object
from server.api.chat_prompt import PromptFields, decode_prompt
from server.api.fields import Boolean, ModelFields, String, read_fields, read_model_name
from server.api.interrupt import run_interruptibly
from server.api.native import inspect, loading, metrics
from server.api.respond import json_response
from server.api.tools import decode_tool_use
from server.chat.report import report
from server.chat.types import ChatPrompt, GenerateRequest, JsonObject
from server.constraints import EXCLUSIVE_FIELDS, GUIDED_FIELDS, check_size, read_constraint
from server.errors import BadRequest, wrong_type
from server.settings import RequestLimits
from server.values import missing

router = APIRouter()
for part in (metrics, inspect, loading):
    router.include_router(part.router)

_BYTES_PER_ID = 4  # of /detokenize's input, as tokenize_bytes counts it
_HEALTH = {"loading": "loading model", "restarting": "restarting", "failed": "failed"}


@router.get("/health")
@router.get("/v1/health", include_in_schema=False)
async def health(request: Request) -> Response:
    """Whether the default model can take a request. Never waits for the model's process.

    A model that was unloaded takes one: it is loaded for it.
    """
    state = request.app.state.manager.state()
    if request.app.state.drain.is_draining:
        return json_response({"status": "shutting down"}, 503)
    if state in ("ready", "stopped"):
        return json_response({"status": "ok"})
    return json_response({"status": _HEALTH[state]}, 503, {"Retry-After": "1"})


class TokenizeFields(ModelFields):
    """Of /tokenize."""

    content: String | None = None
    add_special: Boolean | None = None
    parse_special: Boolean | None = None
    with_pieces: Boolean | None = None


@router.post("/tokenize")
async def tokenize(request: Request) -> Response:
    """{"content", "add_special", "parse_special", "with_pieces"} → {"tokens"}."""
    body = await read_json_object(request)
    fields = read_fields(TokenizeFields, body)
    if fields.content is None:
        raise missing("content")
    check_size(fields.content, "content", request.app.state.settings.request_limits.tokenize_bytes, "tokenize_bytes")
    model = await request.app.state.manager.engine(fields.model)
    tokens = await model.engine.tokenize(
        fields.content, add_special=bool(fields.add_special), parse_special=fields.parse_special is not False
    )
    if not fields.with_pieces:
        return json_response({"tokens": list(tokens)})
    pieces = await model.engine.spell(tokens)
    return json_response(
        {"tokens": [{"id": token, "piece": _piece(piece)} for token, piece in zip(tokens, pieces, strict=True)]}
    )


@router.post("/detokenize")
async def detokenize(request: Request) -> Response:
    """{"tokens"} → {"content"}."""
    body = await read_json_object(request)
    tokens = body.get("tokens")
    if not isinstance(tokens, list):
        raise wrong_type("tokens", "a list of token ids", tokens)
    most = request.app.state.settings.request_limits.tokenize_bytes // _BYTES_PER_ID
    if len(tokens) > most:
        message = f"tokens has {len(tokens)} ids, where tokenize_bytes allows {most} ({_BYTES_PER_ID} bytes each)"
        raise BadRequest(message, param="tokens", code="limit_exceeded")
    model = await request.app.state.manager.engine(read_model_name(body))
    n_vocab = model.engine.info.n_vocab
    for i, token in enumerate(tokens):
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < n_vocab:
            raise BadRequest(f"tokens[{i}] must be a token id below {n_vocab}", param=f"tokens[{i}]")
    text = await model.engine.detokenize(tuple(cast(list[int], tokens)))
    return json_response({"content": text.decode("utf-8", "replace")})


@router.post("/apply-template")
async def apply_template(request: Request) -> Response:
    """The body of a chat completion → {"prompt"}: what the model would be given."""
    body = await read_json_object(request)
    state = request.app.state
    limits = state.settings.request_limits
    fields = read_fields(PromptFields, body)
    prompt = decode_prompt(body, fields, limits)
    constraint = read_constraint(body, limits)
    asked = GenerateRequest((prompt,), read_model_name(body), constraint=constraint, effort=fields.reasoning_effort)
    return json_response({"prompt": await state.service.prompt_text(asked)})


@router.post("/v1/constraints/compile")
async def compile_constraint(request: Request) -> Response:
    """The constraint fields of a request → the report: its GBNF, what it cost, what was relaxed, what it lets through."""
    body = await read_json_object(request)
    state = request.app.state
    asked = _constrained(body, state.settings.request_limits)
    requested = await state.service.whole_constraint(asked)
    if requested is None:
        names = ", ".join([*GUIDED_FIELDS, *EXCLUSIVE_FIELDS])
        raise BadRequest(f"no constraint is set; the fields are {names}, and tools with a tool_choice that forces a call")
    is_loaded = state.manager.state(asked.model) == "ready"  # no model is loaded for a report's sake
    engine = (await state.manager.engine(asked.model)).engine if is_loaded else None
    work = report(state.service.compiler, requested, engine)
    return json_response(await run_interruptibly(work, request.receive, state.drain))


def _constrained(body: JsonObject, limits: RequestLimits) -> GenerateRequest:
    """The constraint fields and the tools of a request whose messages don't matter."""
    tools = decode_tool_use(body, limits)
    return GenerateRequest((ChatPrompt(()),), read_model_name(body), constraint=read_constraint(body, limits), tools=tools)


def _piece(data: bytes) -> str | list[int]:
    """A token's text, or its bytes where they are no whole characters."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return list(data)
