"""From events to an HTTP answer, for every dialect: one way for whole answers and one for streams.

Headers go out with the first event, so whatever is wrong with a request is still a status code. After that an error is the
dialect's error event. No shape of any dialect here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server.api.interrupt import ClientGone, Drain, run_interruptibly
from server.chat.constraint import encode_notices
from server.chat.fold import fold
from server.chat.types import Completion, Event, Notice, Started
from server.errors import InternalError, ServerError
from server.json_text import dump_json

logger = logging.getLogger("gramserve.http")


HEARTBEAT_S = 10.0
"""How long a stream is silent at most, where the dialect has a heartbeat: clients and proxies give a silent one up."""

EventT = TypeVar("EventT")
EventT_contra = TypeVar("EventT_contra", contravariant=True)


class Encoder(Protocol[EventT_contra]):
    """A dialect's stream: `Encoder.encode(event)` and the frames of its error event."""

    @property
    def media_type(self) -> str:
        """The stream's Content-Type."""

    @property
    def heartbeat(self) -> bytes:
        """Frames that say nothing, b"" where there are none: a sign of life while a long prompt is read."""

    def encode(self, event: EventT_contra) -> bytes:
        """The frames of one event, b"" for none."""

    def encode_error(self, error: ServerError) -> bytes:
        """The frames that end a stream with an error."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a dialect wants a request answered: as a stream, or whole."""

    stream: Encoder[Event] | None
    encode_completion: Callable[[Completion], dict[str, Any]]


async def respond(request: Request, events: AsyncGenerator[Event, None], answer: Answer, drain: Drain) -> Response:
    """Answer with the events. Raises ServerError for what is wrong before the first byte, ClientGone when nobody waits."""
    if answer.stream is None:
        async with aclosing(events):
            completion = await run_interruptibly(fold(events), request.receive, drain)
        return json_response(answer.encode_completion(completion), headers=_notice_header(completion.warnings))
    return await stream(request, events, answer.stream, drain)


async def stream(request: Request, events: AsyncGenerator[EventT, None], encoder: Encoder[EventT], drain: Drain) -> Response:
    """Answer with a stream of the events, of whatever kind. Raises as `respond` does."""
    try:
        first = await run_interruptibly(anext(events), request.receive, drain)
    except BaseException:
        await events.aclose()
        raise
    return EventStream(first, events, encoder, drain, request.app.state.settings.stall_timeout_s)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON body, compact, in UTF-8."""
    return Response(dump_json(content).encode("utf-8"), status, headers, "application/json")


def error_response(error: ServerError, body: Any) -> Response:
    """The response of an error with the dialect's body, with Retry-After where it helps to wait."""
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(body, error.status, headers)


def named_message(error: ServerError) -> str:
    """The error's message with the field at fault in it, for dialects that have no other place for that."""
    is_named = error.param is None or error.param in error.message
    return error.message if is_named else f"{error.param}: {error.message}"


def _notice_header(notices: Sequence[Notice]) -> dict[str, str]:
    return {"X-Constraint-Warnings": encode_notices(notices)} if notices else {}


class EventStream(Response, Generic[EventT]):
    """Sends frames as events come. Whatever ends it, the generator of events is closed, which cancels the request."""

    def __init__(
        self,
        first: EventT,
        events: AsyncGenerator[EventT, None],
        encoder: Encoder[EventT],
        drain: Drain,
        stall_timeout_s: float,
    ) -> None:
        notices = first.warnings if isinstance(first, Started) else ()
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **_notice_header(notices)}
        super().__init__(None, 200, headers, encoder.media_type)
        del self.headers["content-length"]
        self._first = first
        self._events = events
        self._encoder = encoder
        self._drain = drain
        self._stall_timeout_s = stall_timeout_s
        self._n_sent = 0

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything. A client that is gone, or doesn't read for the stall timeout, ends it quietly."""
        async with aclosing(self._events):
            try:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await run_interruptibly(self._pump(send), receive, self._drain)
            except ClientGone:
                logger.info("client gone: request cancelled")
                return
            except ServerError as error:
                await self._end_with(error, send)
            except Exception:
                logger.exception("a stream failed")
                await self._end_with(InternalError("internal error; see the server's log"), send)

    async def _pump(self, send: Send) -> None:
        await self._send_frames(self._encoder.encode(self._first), send)
        beating = asyncio.ensure_future(self._beat(send))
        try:
            async for event in self._events:
                await self._send_frames(self._encoder.encode(event), send)
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _beat(self, send: Send) -> None:
        while True:
            n_sent = self._n_sent
            await asyncio.sleep(HEARTBEAT_S)
            if n_sent == self._n_sent:
                await self._send_frames(self._encoder.heartbeat, send)

    async def _end_with(self, error: ServerError, send: Send) -> None:
        try:
            await self._send_frames(self._encoder.encode_error(error), send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except ClientGone:
            logger.info("client gone before its error event")

    async def _send_frames(self, frames: bytes, send: Send) -> None:
        if not frames:
            return
        self._n_sent += 1
        sending = asyncio.ensure_future(send({"type": "http.response.body", "body": frames, "more_body": True}))
        try:  # not wait_for, which before Python 3.12 may swallow a cancellation
            await asyncio.wait({sending}, timeout=self._stall_timeout_s)
            if not sending.done():
                raise ClientGone
            sending.result()
        except OSError:
            raise ClientGone from None
        finally:
            sending.cancel()
