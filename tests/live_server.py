"""A real server as its users have it: the command in a process of its own, over a socket, with a real model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx

REPOSITORY = Path(__file__).parents[1]


class LiveServer:
    """`gramserve serve MODEL --port 0 OPTIONS…`. A context manager; leaving it ends the server with SIGTERM."""

    def __init__(self, model: Path, *options: str) -> None:
        command = [sys.executable, "-m", "server.cli", "serve", str(model), "--port", "0", *options]
        self.process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self.url = self._wait_until_ready()
        self.client = httpx.Client(base_url=self.url, timeout=120)

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)

    def _wait_until_ready(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"ready on (http://\S+)", line):
                return found[1]
        raise AssertionError(f"the server did not start:\n{''.join(self.log)}")

    def __enter__(self) -> LiveServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(5)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def children(self, word: str = "") -> list[int]:
        """Process ids of the server's children whose command has `word`."""
        listing = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
        rows = [line.split(None, 2) for line in listing.splitlines()]
        return [int(pid) for pid, parent, args in rows if int(parent) == self.process.pid and word in args]

    def kill_model(self) -> int:
        """SIGKILL the model's process; its id."""
        (pid,) = self.children("server.engine")
        os.kill(pid, signal.SIGKILL)
        return pid

    def chat(self, **fields: Any) -> dict[str, Any]:
        """A whole answer."""
        reply = self.client.post("/v1/chat/completions", json=body(**fields))
        assert reply.status_code == 200, reply.text
        answer: dict[str, Any] = reply.json()
        return answer

    def stream(self, **fields: Any) -> Generator[tuple[float, Any], None, None]:
        """A stream's events with the time of each, in seconds of the monotonic clock."""
        with self.client.stream("POST", "/v1/chat/completions", json=body(stream=True, **fields)) as reply:
            if reply.status_code != 200:
                reply.read()
                raise AssertionError(reply.text)
            for line in reply.iter_lines():
                if line.startswith("data: "):
                    data = line.removeprefix("data: ")
                    yield time.monotonic(), data if data == "[DONE]" else json.loads(data)

    def contents(self, *, stream: bool, **fields: Any) -> list[tuple[str, str]]:
        """Text and finish_reason of every choice."""
        if not stream:
            return [(choice["message"]["content"], choice["finish_reason"]) for choice in self.chat(**fields)["choices"]]
        texts: dict[int, str] = {}
        reasons: dict[int, str] = {}
        for _, event in self.stream(**fields):
            for choice in event["choices"] if event != "[DONE]" else ():
                index = choice["index"]
                texts[index] = texts.get(index, "") + choice["delta"].get("content", "")
                if choice["finish_reason"]:
                    reasons[index] = choice["finish_reason"]
        return [(texts[index], reasons[index]) for index in sorted(texts)]


def body(prompt: str = "Say something.", **fields: Any) -> dict[str, Any]:
    """The body of a chat completion of one user message."""
    return {"messages": [{"role": "user", "content": prompt}], **fields}


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.strip()
    return bool(state) and not state.startswith("Z")
