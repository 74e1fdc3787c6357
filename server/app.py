"""The HTTP application: settings and a model manager in, an ASGI app out. It only wires the parts together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Scope

from server.api.anthropic import errors as anthropic_errors
from server.api.anthropic import routes as anthropic
from server.api.anthropic.routes import speaks_anthropic
from server.api.bounded import BoundedStore
from server.api.document import add_document
from server.api.gate import Gate
from server.api.interrupt import Drain
from server.api.native import models
from server.api.native import routes as native
from server.api.ollama import answer as ollama_answer
from server.api.ollama import routes as ollama
from server.api.openai import routes as openai
from server.api.openai_shape import encode_error as encode_openai_error
from server.api.responses import routes as responses
from server.api.responses.items import Kept
from server.api.vectors import embeddings, rerank
from server.chat.constraint import ConstraintCompiler
from server.chat.counted import CountedCompiler
from server.chat.model import ModelManager
from server.chat.service import Service
from server.compile.client import CompileClient
from server.errors import BadRequest, MethodNotAllowed, RouteNotFound, ServerError
from server.settings import Settings

DIALECTS: tuple[tuple[Callable[[Scope], bool], Callable[[ServerError], Response]], ...] = (
    (speaks_anthropic, anthropic_errors.encode_error),
    (lambda scope: scope["path"].startswith("/api/"), ollama_answer.encode_error),
    (lambda _scope: True, encode_openai_error),
)
"""Whose shape an error has; the first that a request speaks counts."""


def create_app(settings: Settings, manager: ModelManager, compiler: ConstraintCompiler | None = None) -> FastAPI:
    """The application. Its lifespan starts and stops the models and the compile process (none where `compiler` is given)."""
    own_compiler = None
    if compiler is None:
        own_compiler = compiler = CompileClient(settings.compile_limits, lambda busy: _set_busy(manager, busy))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        starting = asyncio.create_task(own_compiler.start()) if own_compiler is not None else None
        await manager.start()
        try:
            yield
        finally:
            if starting is not None and own_compiler is not None:
                await asyncio.wait({starting})
                await own_compiler.stop()
            await manager.stop()

    app = FastAPI(title="gramserve", lifespan=lifespan, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.settings = settings
    app.state.manager = manager
    app.state.service = Service(manager, CountedCompiler(compiler, manager.metrics), settings, _template(settings))
    limits = settings.request_limits
    app.state.responses = BoundedStore[Kept](limits.kept_responses, limits.kept_response_bytes)
    app.state.drain = Drain(settings.drain_timeout_s)
    app.state.started_s = int(time.time())
    app.router.routes.extend(_routes())
    add_document(app)
    _add_error_handlers(app)
    app.add_middleware(Gate, settings=settings, drain=app.state.drain, encode_error=encode_error, metrics=manager.metrics)
    return app


def begin_drain(app: FastAPI) -> None:
    """SIGTERM came: take nothing new, and end with an error event what still streams when the drain is over.

    Must be called on the event loop.
    """
    app.state.drain.begin()


def encode_error(scope: Scope, error: ServerError) -> Response:
    """The response of an error in the shape of the request's dialect."""
    encode = next(encode for speaks, encode in DIALECTS if speaks(scope))
    return encode(error)


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """Every route. They know nothing of an app, so what FastAPI finds out about them at a first request is found out once."""
    every = APIRouter()
    for part in (native, embeddings, rerank):
        every.include_router(part.router)
    every.include_router(ollama.router)
    every.include_router(anthropic.router, prefix="/v1")  # before the models: some of its routes are only for its own clients
    every.include_router(models.router)
    for router in (openai.router, responses.router):
        every.include_router(router, prefix="/v1")
        every.include_router(router, include_in_schema=False)  # llama.cpp answers without the prefix too
    return tuple(every.routes)


def _add_error_handlers(app: FastAPI) -> None:
    async def handle(request: Request, error: Exception) -> Response:
        return encode_error(request.scope, _server_error(request, error))

    for kind in (ServerError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, handle)


def _server_error(request: Request, error: Exception) -> ServerError:
    if isinstance(error, ServerError):
        return error
    if isinstance(error, HTTPException) and error.status_code == 404:
        return RouteNotFound(f"there is no {request.url.path}")
    if isinstance(error, HTTPException) and error.status_code == 405:
        return MethodNotAllowed(f"{request.url.path} does not take {request.method}")
    return BadRequest(str(error))


def _set_busy(manager: ModelManager, busy: bool) -> None:
    for model in manager.loaded():
        model.engine.set_busy(busy)


def _template(settings: Settings) -> str | None:
    path = settings.chat_template_file
    return None if path is None else Path(path).read_text("utf-8")
