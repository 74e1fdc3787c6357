"""What every request passes before any route: paths, Host and Origin, CORS, the API key, the body's size, and the last catch.

Plain ASGI. Errors are given to `encode_error`, which knows the shape that the request's dialect wants.
"""

from __future__ import annotations

import hmac
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.api.interrupt import ClientGone, Drain
from server.errors import BodyTooLarge, ForeignOrigin, InternalError, ServerError, ShuttingDown, Unauthorized
from server.metrics import Metrics
from server.settings import Settings

logger = logging.getLogger("gramserve.http")

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
OPEN_PATHS = ("/health", "/v1/health")
_N_DRAINED_BODIES = 4  # a body this many times the limit is still read to its end, so that the client sees the 413


@dataclass(frozen=True, slots=True)
class Gate:
    """The outermost layer of the app."""

    app: ASGIApp
    settings: Settings
    drain: Drain
    encode_error: Callable[[Scope, ServerError], Response]
    metrics: Metrics = field(default_factory=Metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        passage = _Passage(self, _with_clean_path(scope), receive, send, Headers(scope=scope))
        try:
            await passage.run()
        except ServerError as error:
            await passage.fail(error)
        except ClientGone:
            logger.info("client gone: request cancelled")
            await passage.fail(ServerError("client closed the connection"))
        except Exception:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            await passage.fail(InternalError("internal error; see the server's log"))

    @property
    def is_loopback(self) -> bool:
        """Whether the server is bound to this machine alone, where a web page must not drive it."""
        return self.settings.host in LOOPBACK_NAMES or self.settings.host.startswith("127.")

    def allows_host(self, host: str) -> bool:
        """Whether a Host header names this server."""
        name = _host_name(f"//{host}")
        known = name in LOOPBACK_NAMES or name == self.settings.host or name in self._allowed_names
        return known or "*" in self.settings.allow_origins

    def allows_origin(self, origin: str) -> bool:
        """Whether pages of this origin may read answers."""
        allowed = self.settings.allow_origins
        return "*" in allowed or origin.rstrip("/") in allowed or _host_name(origin) in (*LOOPBACK_NAMES, *self._bare_names)

    @property
    def _allowed_names(self) -> set[str | None]:
        return {_host_name(entry if "://" in entry else f"//{entry}") for entry in self.settings.allow_origins}

    @property
    def _bare_names(self) -> tuple[str, ...]:
        return tuple(entry for entry in self.settings.allow_origins if "://" not in entry and entry != "*")


@dataclass(slots=True)
class _Passage:
    """One request on its way through the gate."""

    gate: Gate
    scope: Scope
    receive: Receive
    send: Send
    headers: Headers
    is_started: bool = False
    n_body_bytes: int = field(default=0)
    began: float = field(default_factory=time.monotonic)
    method: str = ""

    async def run(self) -> None:
        self.method = self.scope["method"]
        if self.method == "HEAD":  # answered as GET, without the body
            self.scope = {**self.scope, "method": "GET"}
        self._check_origin()
        if self.scope["method"] == "OPTIONS":
            await self._answer(Response(status_code=204, headers=self._preflight_headers()))
            return
        self._check_key()
        if self.gate.drain.is_draining and self.scope["path"] not in OPEN_PATHS:
            raise ShuttingDown("the server is shutting down", retry_after_s=5)
        await self._check_content_length()
        await self.gate.app(self.scope, self._receive_bounded, self._send_with_cors)

    async def fail(self, error: ServerError) -> None:
        if not self.is_started:
            await self._answer(self.gate.encode_error(self.scope, error))

    async def _answer(self, response: Response) -> None:
        await response(self.scope, self.receive, self._send_with_cors)

    # ---- who may ask

    def _check_origin(self) -> None:
        if not self.gate.is_loopback:
            return
        host, origin = self.headers.get("host"), self.headers.get("origin")
        if host and not self.gate.allows_host(host):
            raise ForeignOrigin(f"Host {host!r} is not this server; --allow-origin permits another name")
        if origin and not self.gate.allows_origin(origin):
            raise ForeignOrigin(f"Origin {origin!r} may not use this server; --allow-origin permits it")

    def _check_key(self) -> None:
        key = self.gate.settings.api_key
        if key is None or self.scope["path"] in OPEN_PATHS:
            return
        scheme, _, bearer = self.headers.get("authorization", "").partition(" ")
        given = [bearer.strip() if scheme.lower() == "bearer" else "", self.headers.get("x-api-key", "")]
        if not any(given):
            raise Unauthorized("an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY")
        if not any(hmac.compare_digest(text.encode("latin-1"), key.encode()) for text in given):  # headers come as latin-1
            raise Unauthorized("the API key is wrong")

    # ---- CORS

    def _preflight_headers(self) -> dict[str, str]:
        asked = self.headers.get("access-control-request-headers")
        return {
            "Access-Control-Allow-Methods": "GET, HEAD, POST, DELETE, OPTIONS",
            "Access-Control-Allow-Headers": asked or "Authorization, Content-Type, X-Api-Key",
            "Access-Control-Max-Age": "600",
            "Access-Control-Allow-Origin": self._own_origin,
        }

    @property
    def _own_origin(self) -> str:
        return f"{self.scope.get('scheme', 'http')}://{self.headers.get('host', 'localhost')}"

    async def _send_with_cors(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.is_started = True
            origin = self.headers.get("origin")
            if origin and self.gate.allows_origin(origin):
                headers = MutableHeaders(scope=message)
                headers["Access-Control-Allow-Origin"] = origin
                headers["Access-Control-Expose-Headers"] = "X-Constraint-Warnings, Retry-After"
                headers.add_vary_header("Origin")
            self._count(message["status"])
        elif self.method == "HEAD":
            message = {**message, "body": b""}
        await self.send(message)

    def _count(self, status: int) -> None:
        """By the route, never by a path that a client makes up."""
        path = self.scope["path"] if "route" in self.scope else "none"
        for name, value in self.scope.get("path_params", {}).items():
            before, _, after = path.rpartition(str(value))
            path = f"{before}{{{name}}}{after}"
        method = self.method if self.method in _METHODS else "other"
        self.gate.metrics.add_answer(path, method, status, time.monotonic() - self.began)

    # ---- the body's size

    async def _check_content_length(self) -> None:
        text = self.headers.get("content-length", "")
        limit = self.gate.settings.request_limits.body_bytes
        if not text.isdecimal() or int(text) <= limit:
            return
        if int(text) <= _N_DRAINED_BODIES * limit and "expect" not in self.headers:
            while (message := await self.receive())["type"] == "http.request" and message.get("more_body"):
                pass
        raise self._too_large(int(text))

    async def _receive_bounded(self) -> Message:
        message = await self.receive()
        self.n_body_bytes += len(message.get("body", b""))
        if self.n_body_bytes > self.gate.settings.request_limits.body_bytes:
            raise self._too_large(self.n_body_bytes)
        return message

    def _too_large(self, size: int) -> BodyTooLarge:
        limit = self.gate.settings.request_limits.body_bytes
        return BodyTooLarge(f"the request body has {size} bytes or more, where body_bytes allows {limit}")


def _with_clean_path(scope: Scope) -> Scope:
    """`//v1/models/` → `/v1/models`: clients join base URLs carelessly."""
    path = re.sub("/{2,}", "/", scope["path"])
    path = path.rstrip("/") or "/"
    return scope if path == scope["path"] else {**scope, "path": path, "raw_path": path.encode()}


def _host_name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
