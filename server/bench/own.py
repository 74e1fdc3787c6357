"""This server in a process of its own while it is measured."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx

from server.errors import EngineStartFailed

_PATIENCE_S = 300.0


@contextmanager
def running_server(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """`gramserve serve ARGUMENTS` on a free loopback port: its URL and the key that it demands. Raises EngineStartFailed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    key, url = secrets.token_urlsafe(24), f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "server.cli", "serve", *arguments, "--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, "GRAMSERVE_API_KEY": key, "GRAMSERVE_LOG_LEVEL": "warning"}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            _wait_ready(process, url)
            yield url, key
        except EngineStartFailed as error:
            log.seek(0)
            said = log.read().decode("utf-8", "replace").strip().splitlines()
            raise EngineStartFailed("; ".join([str(error), *said[-3:]])) from error
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise EngineStartFailed(f"the server ended with status {process.returncode}")
        try:
            if httpx.get(f"{url}/health", timeout=5.0).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise EngineStartFailed(f"the server wasn't ready after {_PATIENCE_S:.0f} s")
