"""A running server: uvicorn around the app, with our own answer to signals. Used by `serve`, and by `chat` and `generate`
when no server is named.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import ipaddress
import logging
import math
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING

from server.errors import EngineStartFailed
from server.models.catalogue import Catalogue
from server.models.manager import Manager
from server.models.store import Store
from server.settings import Settings

if TYPE_CHECKING:
    import uvicorn

    from server.engine.client import EngineClient
    from server.engine.messages import ModelSpec

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name))


@contextmanager
def bind(host: str, port: int) -> Iterator[socket.socket]:
    """A socket bound to the address; it doesn't listen yet. Raises OSError with one line that names the address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror as error:
        raise OSError(f"can't listen on {host}: {error.strerror}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        _set_options(listener)
        try:
            listener.bind(address)
        except OSError as error:
            reason = "the port is in use (try --port)" if error.errno == errno.EADDRINUSE else error.strerror
            raise OSError(f"can't listen on {host}:{port}: {reason}") from error
        yield listener
    finally:
        listener.close()


def _set_options(listener: socket.socket) -> None:
    if sys.platform == "win32":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listener.family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)


def is_loopback(listener: socket.socket) -> bool:
    """True when only this machine can reach the socket."""
    return ipaddress.ip_address(str(listener.getsockname()[0]).partition("%")[0]).is_loopback


def url_of(listener: socket.socket) -> str:
    """The address as a URL that works on this machine."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    settings: Settings,
    catalogue: Catalogue,
    store: Store,
    listener: socket.socket,
    *,
    preload: Sequence[str],
    on_ready: Callable[[str], None],
) -> int:
    """Serve until a signal. Returns the exit status; raises EngineStartFailed when the default model can't be loaded."""
    _configure_logging(settings.log_level)
    running = Running(settings, catalogue, store, listener, preload=preload, on_ready=on_ready)
    running.run()
    return 0


def _configure_logging(level: str) -> None:
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for name in ("httpx", "httpcore", "filelock", "asyncio", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)


class Running:
    """One server with its models. `run` blocks; `stop` may be called from any thread."""

    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        store: Store,
        listener: socket.socket,
        *,
        preload: Sequence[str],
        on_ready: Callable[[str], None],
    ) -> None:
        self.failure: BaseException | None = None
        self._settings = settings
        self._listener = listener
        self._on_ready = on_ready
        self._manager = Manager(catalogue, store, settings, _make_engine, preload=tuple(preload))
        self._end: Callable[[], None] = lambda: None
        self._force: Callable[[], None] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._n_signals = 0

    def run(self) -> None:
        """Serve. Raises what kept the default model from loading."""
        asyncio.run(self._serve())
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        """End the server, running replies included."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        with self._signals():
            try:
                await self._manager.start()  # the model loads in its process while HTTP is imported here
                server = await asyncio.to_thread(self._make_server)
                if not self._n_signals:
                    await self._serve_until_the_end(server)
            finally:
                await self._manager.stop()

    async def _serve_until_the_end(self, server: uvicorn.Server) -> None:
        ready = asyncio.create_task(self._announce(server), name="announce")
        await server.serve(sockets=[self._listener])
        ready.cancel()
        await asyncio.gather(ready, return_exceptions=True)
        if self.failure is None and not server.started and not self._n_signals:
            self.failure = EngineStartFailed("the server could not start; its log says why")

    def _make_server(self) -> uvicorn.Server:
        import uvicorn

        from server.app import begin_drain, create_app

        class Server(uvicorn.Server):
            """uvicorn's server without its signal handlers, which send the signal again when all is done."""

            @contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield

        app = create_app(self._settings, self._manager)
        gc.freeze()  # a full collection holds every thread up: it need not look at what stays for good
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=math.ceil(self._settings.drain_timeout_s) + 2,
        )
        server = Server(config)

        def end() -> None:
            begin_drain(app)
            server.should_exit = True

        def force() -> None:
            server.force_exit = True

        self._end, self._force = end, force
        return server

    async def _announce(self, server: uvicorn.Server) -> None:
        """Say that the server is ready when it is; end it when the default model can't be loaded."""
        try:
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for this
                await asyncio.sleep(0.01)
            await self._manager.wait_started()
            self._on_ready(url_of(self._listener))
        except Exception as error:
            self.failure = error
            server.should_exit = True

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Drain at the first signal, leave at once at the second."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._n_signals += 1
        if self._n_signals > 1:
            self._force()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end)


def _make_engine(_alias: str, spec: ModelSpec) -> EngineClient:
    from server.engine.client import ProcessClient

    return ProcessClient(spec)


@contextmanager
def private_server(settings: Settings, catalogue: Catalogue, store: Store, alias: str) -> Iterator[tuple[str, str]]:
    """A server of our own on a free loopback port while the block runs: its URL, and the key that it demands.

    Raises EngineStartFailed when the model can't be loaded.
    """
    key = secrets.token_urlsafe(24)
    settings = replace(settings, host="127.0.0.1", port=0, api_key=key, log_level="warning")
    _configure_logging(settings.log_level)
    ready = threading.Event()
    with bind(settings.host, settings.port) as listener:
        running = Running(settings, catalogue, store, listener, preload=(alias,), on_ready=lambda _: ready.set())
        failures: list[BaseException] = []

        def run() -> None:
            try:
                running.run()
            except BaseException as error:
                failures.append(error)
            ready.set()

        thread = threading.Thread(target=run, name="server", daemon=True)
        thread.start()
        try:
            while not ready.wait(0.1):  # in slices, so that Ctrl-C gets through on every system
                pass
            if failures:
                raise failures[0]
            yield url_of(listener), key
        finally:
            running.stop()
            thread.join(timeout=settings.drain_timeout_s + 3)
