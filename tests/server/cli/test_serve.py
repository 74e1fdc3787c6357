"""`gramserve serve` as a process: readiness, signals, and starts that fail."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.default_model import REPOSITORY
from tests.tiny_models import TinyModel, write_tiny_model

START_TIMEOUT_S = 60.0


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "server.cli", *words]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRAMSERVE_") or name == "GRAMSERVE_CACHE"}
    return {**kept, "PYTHONPATH": str(REPOSITORY)}


@contextmanager
def serving(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process that has said it is ready, and its URL."""
    with subprocess.Popen(
        command("serve", "--port", "0", "--log-level", "warning", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # so that CTRL_BREAK reaches only this process
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"ready on (http://\S+) with", process.stdout.readline())
            if found is None:
                assert process.stderr is not None
                raise AssertionError(process.stderr.read())
            yield process, found[1]
        finally:
            process.kill()


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_tiny_model(path, TinyModel(vocabulary="bpe"))
    return path


def ask(url: str, **fields: Any) -> httpx.Response:
    return httpx.post(f"{url}/v1/completions", json={"prompt": "yes", "max_tokens": 8, **fields}, timeout=30)


def test_serves_a_file_and_ends_quietly(tiny_model: Path) -> None:
    with serving(str(tiny_model), "--ctx", "512", "--threads", "1") as (process, url):
        assert httpx.get(f"{url}/health").json() == {"status": "ok"}
        assert httpx.get(f"{url}/v1/models").json()["data"][0]["id"] == "tiny"
        answer = ask(url, guided_choice=["red", "green"])
        assert answer.json()["choices"][0]["text"] in ("red", "green")
        assert ask(url, model="nobody").status_code == 404
        port = url.rsplit(":", 1)[1]
        second = subprocess.run(
            command("serve", str(tiny_model), "--port", port),
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
            timeout=30,
        )
        assert (second.returncode, second.stdout) == (1, "")
        assert second.stderr == f"gramserve: can't listen on 127.0.0.1:{port}: the port is in use (try --port)\n"
        stop: int = signal.SIGTERM
        if sys.platform == "win32":
            stop = signal.CTRL_BREAK_EVENT
        process.send_signal(stop)
        assert process.wait(15) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.skipif(os.name == "nt", reason="a test can't press Ctrl-C there without hitting itself")
@pytest.mark.live
def test_a_signal_drains_a_running_stream(default_model: Path) -> None:
    body = {"messages": [{"role": "user", "content": "Count to ten thousand."}], "max_tokens": 4000, "stream": True}
    words = ("--ctx", "4096", "--parallel", "1", "--drain-timeout", "1")
    with (
        serving(str(default_model), *words) as (process, url),
        httpx.stream("POST", f"{url}/v1/chat/completions", json={**body, "ignore_eos": True}, timeout=30) as response,
    ):
        lines = (line for line in response.iter_lines() if line)
        next(lines)
        process.send_signal(signal.SIGINT)
        started_s = time.monotonic()
        last = list(lines)[-1]
        assert time.monotonic() - started_s < 8
        assert last == "data: [DONE]" or "error" in json.loads(last.removeprefix("data: "))
        assert process.wait(15) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def write_cut(path: Path, model: Path) -> Path:
    path.write_bytes(model.read_bytes()[: model.stat().st_size // 2])
    return path


@pytest.mark.parametrize(
    "case", ["missing", "not-gguf", "old", "split", "host", pytest.param("cut", marks=pytest.mark.conformance)]
)  # the last one takes three processes, and what its model's process says is tested without the others too
def test_a_start_that_fails_is_one_line(case: str, tmp_path: Path, tiny_model: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    (tmp_path / "old.bin").write_bytes(b"tjgg\x03\x00\x00\x00")
    (tmp_path / "x-00001-of-00013.gguf").write_bytes(tiny_model.read_bytes())
    words, said = {
        "missing": (["--model", "nope.gguf"], "FileNotFoundError"),
        "not-gguf": (["text.gguf"], "not a GGUF file"),
        "old": (["./old.bin"], "needs conversion"),
        "split": (["x-00001-of-00013.gguf"], "x-00002-of-00013.gguf"),
        "cut": ([str(write_cut(tmp_path / "cut.gguf", tiny_model))], "cut.gguf"),
        "host": ([str(tiny_model), "--host", "192.0.2.1"], "can't listen on 192.0.2.1"),
    }[case]
    run = subprocess.run(
        command("serve", "--port", "0", *words),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
        timeout=60,
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert said in run.stderr
    assert run.stderr.count("\n") == 1, run.stderr


@pytest.mark.live
def test_chat_and_generate_start_a_server_of_their_own(default_model: Path) -> None:
    words = ("--model", str(default_model), "--ctx", "512")
    run = subprocess.run(
        command("generate", "Is water wet?", "--choice", "yes,no", "--n", "2", *words),
        capture_output=True, text=True, env=environment(), check=False, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert set(run.stdout.split()) <= {"yes", "no"}
    run = subprocess.run(
        command("chat", "--regex", "[a-z]{3}", *words),
        capture_output=True, text=True, env=environment(), check=False, timeout=120, input="Hello\nBye\n",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert re.fullmatch(r"([a-z]{3}\n){2}", run.stdout)
    assert run.stderr == ""


@pytest.mark.bench
def test_the_second_start_is_ready_in_three_seconds(default_model: Path) -> None:
    with serving(str(default_model)):
        pass
    started_s = time.monotonic()
    with serving(str(default_model)):
        took_s = time.monotonic() - started_s
    print(f"ready after {took_s:.2f} s")
    assert took_s < 3


def test_a_name_that_nobody_knows_is_no_address() -> None:
    from server.cli.running import bind

    with pytest.raises(OSError, match=r"can't listen on nobody\.invalid"), bind("nobody.invalid", 0):
        pass


def test_urls_work_on_this_machine() -> None:
    from server.cli.running import bind, is_loopback, url_of

    with bind("127.0.0.1", 0) as listener:
        assert is_loopback(listener)
    with bind("0.0.0.0", 0) as listener:
        assert not is_loopback(listener)
        assert url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
    if socket.has_ipv6:
        try:
            with bind("::1", 0) as listener:
                assert url_of(listener) == f"http://[::1]:{listener.getsockname()[1]}"
        except OSError:
            pytest.skip("no IPv6 here")


@pytest.mark.skipif(os.name == "nt", reason="a test can't press Ctrl-C there without hitting itself")
def test_a_signal_while_loading_is_quiet(tiny_model: Path) -> None:
    words = command("serve", "--port", "0", str(tiny_model))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert "Traceback" not in err
