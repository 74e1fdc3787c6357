"""Several models in one server: loaded on demand, unloaded when idle, and none harmed by another's death."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.live_server import LiveServer, body
from tests.tiny_encoder import write_tiny_encoder
from tests.tiny_models import TinyModel, write_tiny_model

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and ps"),
]

N_TOKENS = 800


@pytest.fixture(scope="module")
def models_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        write_tiny_model(folder / f"{name}.gguf", TinyModel(seed=seed))
    write_tiny_encoder(folder / "e.gguf")
    path = folder / "models.txt"
    path.write_text("a a.gguf\nb b.gguf aliases=bee,gpt-4o\nc c.gguf\ne e.gguf embedding=true\n")
    return path


def serving(models_file: Path, *options: str) -> LiveServer:
    return LiveServer(Path("a"), *options, "--models", str(models_file), "--threads", "1", "--parallel", "2")


class Stream:
    """A long reply of one model, read in a thread."""

    def __init__(self, server: LiveServer, model: str) -> None:
        self.events: list[tuple[float, Any]] = []
        self.is_running = threading.Event()
        self._lines = self._open(server, model)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _open(self, server: LiveServer, model: str) -> Iterator[tuple[float, Any]]:
        fields = body(model=model, stream=True, max_tokens=N_TOKENS, ignore_eos=True, stream_options={"include_usage": True})
        with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=fields, timeout=120) as reply:
            assert reply.status_code == 200, reply.read()
            for line in reply.iter_lines():
                if line.startswith("data: {"):
                    yield time.monotonic(), json.loads(line.removeprefix("data: "))

    def _read(self) -> None:
        for entry in self._lines:
            self.events.append(entry)
            if len(self.events) == 20:
                self.is_running.set()

    def finish(self) -> Any:
        """The last event."""
        self._thread.join(120)
        return self.events[-1][1]

    @property
    def gaps(self) -> list[float]:
        """Seconds between events."""
        return [after - before for (before, _), (after, _) in itertools.pairwise(self.events)]


def states(server: LiveServer) -> dict[str, str]:
    models = server.client.get("/v1/models").json()["data"]
    return {model["id"]: model["status"]["value"] for model in models}


def test_two_models_and_one_is_killed(models_file: Path) -> None:
    with serving(models_file, "--model", "b") as server:
        assert states(server) == {"a": "loaded", "b": "loaded", "c": "unloaded", "e": "unloaded"}
        pids = server.children("server.engine")
        assert len(pids) == 2
        streams = [Stream(server, name) for name in ("a", "b")]
        for stream in streams:
            assert stream.is_running.wait(30)
        os.kill(pids[0], signal.SIGKILL)
        last = [stream.finish() for stream in streams]
        killed, other = sorted(range(2), key=lambda i: "usage" in last[i])
        assert last[killed]["error"]["code"] == "engine_died"
        assert last[other]["usage"]["completion_tokens"] == N_TOKENS
        for name in ("a", "b"):
            assert server.chat(model=name, max_tokens=3, ignore_eos=True)["usage"]["completion_tokens"] == 3


def test_a_load_stalls_no_stream(models_file: Path) -> None:
    with serving(models_file) as server:
        stream = Stream(server, "a")
        assert stream.is_running.wait(30)
        answers: list[Any] = []
        asks = [threading.Thread(target=lambda: answers.append(server.chat(model="b", max_tokens=2))) for _ in range(4)]
        for ask in asks:
            ask.start()
        for ask in asks:
            ask.join()
        assert [answer["model"] for answer in answers] == ["b"] * 4
        assert len(server.children("server.engine")) == 2
        assert stream.finish()["usage"]["completion_tokens"] == N_TOKENS
        print(f"\nlongest gap {max(stream.gaps):.3f} s")
        assert max(stream.gaps) < 1


def test_idle_models_go(models_file: Path) -> None:
    with serving(models_file, "--keep-alive", "1") as server:
        assert server.chat(model="bee", max_tokens=2)["model"] == "b"
        assert states(server)["b"] == "loaded"
        deadline = time.monotonic() + 30
        while states(server)["b"] != "unloaded" and time.monotonic() < deadline:
            time.sleep(0.1)
        assert states(server) == {"a": "loaded", "b": "unloaded", "c": "unloaded", "e": "unloaded"}
        assert len(server.children("server.engine")) == 1
        assert server.chat(model="gpt-4o:latest", max_tokens=2)["model"] == "b"


def test_room_for_two(models_file: Path) -> None:
    with serving(models_file, "--max-memory", "4", "--ctx", "1024") as server:  # each takes 0.4 MB, and 0.5 of KV cache
        for name in ("b", "c", "b", "a"):
            assert server.chat(model=name, max_tokens=2)["model"] == name
        assert states(server) == {"a": "loaded", "b": "loaded", "c": "loaded", "e": "unloaded"}
    with serving(models_file, "--max-memory", "1", "--ctx", "1024") as server:
        for name in ("b", "c", "a"):
            assert server.chat(model=name, max_tokens=2)["model"] == name
            assert [alias for alias, state in states(server).items() if state == "loaded"] == [name]
        assert server.client.get("/health").status_code == 200


def test_embeddings_beside_replies_and_what_is_told_of_it(models_file: Path) -> None:
    with serving(models_file) as server:
        stream = Stream(server, "a")
        assert stream.is_running.wait(30)
        for model in ("a", "e"):
            inputs = ["the cat sat on the mat"] * 40
            reply = server.client.post("/v1/embeddings", json={"model": model, "input": inputs})
            assert reply.status_code == 200, reply.text
            vectors = [entry["embedding"] for entry in reply.json()["data"]]
            assert len(vectors) == 40
            assert all(sum(value * value for value in vector) == pytest.approx(1, abs=1e-5) for vector in vectors)
        refused = server.client.post("/v1/chat/completions", json=body(model="e"))
        assert (refused.status_code, "writes no text" in refused.text) == (400, True)
        assert stream.finish()["usage"]["completion_tokens"] == N_TOKENS
        text = server.client.get("/metrics").text
        assert f'gramserve_tokens_predicted_total{{model="a"}} {N_TOKENS}.0' in text
        assert 'gramserve_model_loaded{model="e"} 1.0' in text
        assert [slot["is_processing"] for slot in server.client.get("/slots").json()] == [False, False]
