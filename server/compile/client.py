"""The server's side of the compile process: one compile at a time, a deadline that holds, and a bounded cache."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import BinaryIO, TypeVar, cast

from converters.compile import CompileCache, Compiled, CompileOptions, cache_key
from converters.constraint import Constraint
from converters.errors import ConversionError, LimitExceeded, UnsupportedFeature
from converters.limits import Limits
from server.chat.constraint import CompileOutcome
from server.compile.messages import CompileJob, Crashed, Done, ExamplesJob, Job, Ready, Refused, Reply
from server.engine.channel import ChannelClosed, Receiver, Sender

logger = logging.getLogger("gramserve.constraint")

CACHE_BYTES = 64 * 1024 * 1024
MARGIN_S = 1.0  # past twice the compiler's own deadline, which counts only its work, before its process is killed
MAX_REFUSALS = 256
_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from server.compile.worker import main; main()"

T = TypeVar("T")


class CompilerDied(Exception):
    """The compile process ended under a job."""


class CompileClient:
    """Compiles off the event loop. `set_busy` is told True before and False after each job that really runs."""

    def __init__(
        self,
        limits: Limits,
        set_busy: Callable[[bool], None],
        *,
        cache_bytes: int = CACHE_BYTES,
        margin_s: float | None = None,
    ) -> None:
        self._limits = limits
        self._set_busy = set_busy
        self._margin_s = limits.compile_s + MARGIN_S if margin_s is None else margin_s
        self._cache = CompileCache(cache_bytes)
        self._refusals: OrderedDict[str, ConversionError] = OrderedDict()
        self._shared: dict[str, _Shared] = {}
        self._turn = asyncio.Lock()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self._process: _Process | None = None
        self._is_stopped = False

    async def start(self) -> None:
        """Start the process now, so that the first request doesn't wait for it. Does nothing while one runs."""
        async with self._turn:
            await self._on_thread(self._ensure_process)

    async def stop(self) -> None:
        """End the process, whatever it does."""
        self._is_stopped = True
        process = self._process
        if process is not None:
            process.kill()
            await self._on_thread(process.close)
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def compile(self, constraint: Constraint, options: CompileOptions) -> CompileOutcome:
        """The compiled constraint, from the cache or the process. Raises ConversionError.

        Requests for the same constraint share one compile. When all of them are cancelled before its turn, it is dropped.
        """
        options = replace(options, limits=self._limits)
        key = cache_key(constraint, options)
        cached = self._cache.get(key)
        if cached is not None:
            return CompileOutcome(key, cached, is_cached=True)
        if key in self._refusals:
            self._refusals.move_to_end(key)
            raise self._refusals[key]
        compiled = await self._share(key, CompileJob(constraint, options))
        return CompileOutcome(key, compiled, is_cached=False)

    async def examples(self, outcome: CompileOutcome, n_random: int) -> tuple[str, ...]:
        """The shortest sentence and up to `n_random` others. Raises LimitExceeded when that takes too long."""
        value = await asyncio.shield(self._run(ExamplesJob(outcome.compiled.tables, n_random)))
        assert isinstance(value, tuple)
        return value

    async def _share(self, key: str, job: CompileJob) -> Compiled:
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = _Shared()
            shared.task = asyncio.create_task(self._compile(key, job, shared))
            shared.task.add_done_callback(_retrieve)
        shared.n_waiting += 1
        assert shared.task is not None
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.n_waiting -= 1
            if not shared.n_waiting and not shared.is_running and self._shared.get(key) is shared:
                del self._shared[key]
                shared.task.cancel()

    async def _compile(self, key: str, job: CompileJob, shared: _Shared) -> Compiled:
        try:
            value = await self._run(job, shared)
        except ConversionError as error:
            self._remember(key, error)
            raise
        finally:
            if self._shared.get(key) is shared:
                del self._shared[key]
        assert isinstance(value, Compiled)
        self._cache.put(key, value)
        return value

    def _remember(self, key: str, error: ConversionError) -> None:
        """A refusal is as good an answer the next time, but for a deadline, which depends on the machine's load."""
        if isinstance(error, LimitExceeded) and error.limit == "compile_s":
            return
        self._refusals[key] = error
        if len(self._refusals) > MAX_REFUSALS:
            self._refusals.popitem(last=False)

    async def _run(self, job: Job, shared: _Shared | None = None) -> Compiled | tuple[str, ...]:
        """One job, alone in the process. Once it runs it isn't cancelled, so that the next job doesn't get its reply."""
        async with self._turn:
            if shared is not None:
                shared.is_running = True
            self._set_busy(True)
            try:
                reply = await self._exchange(job)
            finally:
                self._set_busy(False)
        match reply:
            case Done(value=value):
                return value
            case Refused(error=error):
                raise error
            case Crashed(report=report):
                logger.error("the compiler failed; please report this:\n%s", report)
                raise UnsupportedFeature("the compiler fails on this constraint (a bug; the server's log has the details)")
            case Ready():
                raise AssertionError("Ready is read when the process starts")

    async def _exchange(self, job: Job) -> Reply:
        """Send a job and wait for its reply. A process that died meanwhile is replaced; the next death is the job's fault."""
        try:
            return await self._exchange_once(job)
        except CompilerDied:
            logger.warning("the compile process died and is replaced")
        try:
            return await self._exchange_once(job)
        except CompilerDied:
            raise LimitExceeded("compiling ends the compile process", limit="memory_bytes", value=0) from None

    async def _exchange_once(self, job: Job) -> Reply:
        process = await self._on_thread(self._ensure_process)
        reply = asyncio.ensure_future(self._on_thread(lambda: process.ask(job)))
        limit = self._limits.compile_s
        await asyncio.wait({reply}, timeout=limit + self._margin_s)
        if reply.done():
            return reply.result()
        process.kill()
        await asyncio.wait({reply})
        if reply.exception() is None:
            return reply.result()
        raise LimitExceeded(f"compiling takes longer than {limit:g} s", limit="compile_s", value=limit)

    def _ensure_process(self) -> _Process:
        if self._is_stopped:
            raise CompilerDied
        if self._process is None or not self._process.is_alive:
            if self._process is not None:
                self._process.close()
            self._process = _Process()
        return self._process

    async def _on_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


@dataclass(slots=True)
class _Shared:
    """One compile that several requests may wait for."""

    task: asyncio.Task[Compiled] | None = None
    n_waiting: int = 0
    is_running: bool = False


class _Process:
    """The child and its two pipes. All of it may block, but `kill`, which is for the event loop's thread."""

    def __init__(self) -> None:
        path = json.dumps([os.path.abspath(entry) for entry in sys.path])
        self._popen = subprocess.Popen([sys.executable, "-I", "-c", _BOOT, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._pipes = cast(tuple[BinaryIO, BinaryIO], (self._popen.stdin, self._popen.stdout))
        self._sender = Sender[Job](self._pipes[0])
        self._receiver = Receiver[Reply](self._pipes[1])
        try:
            self._receiver.receive()
        except ChannelClosed:
            self.close()
            raise CompilerDied from None

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def ask(self, job: Job) -> Reply:
        """Raises CompilerDied."""
        try:
            self._sender.send(job)
            return self._receiver.receive()
        except ChannelClosed:
            self.close()
            raise CompilerDied from None

    def kill(self) -> None:
        """End the process without waiting for its end; whoever reads from it then gets CompilerDied."""
        self._popen.kill()

    def close(self) -> None:
        """End the process and forget its pipes."""
        self._popen.kill()
        self._popen.wait()
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.close()


def _retrieve(task: asyncio.Task[Compiled]) -> None:
    """A compile that nobody waits for any more may fail unseen."""
    if not task.cancelled():
        task.exception()
